"""The other side of the benchmark: plain PyTorch loops with dynamic padding.

Sentences are tokenised beforehand, as ours are; each batch is padded to its longest text. Of the
common ways to write such a loop (`choices`) the fastest on this machine is taken.
"""

import abc
import importlib.util
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from as2jax.runtime.errors import InputError
from launch.benchmarks.workload import Load, Workload, load_of

# The references of the tests: M²S-Net and Cross-VAEs in PyTorch.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "models"))

ENCODE_BATCH = 32  # sentence-transformers' default


class TorchSide(abc.ABC):
  """A training loop: forward, loss, backward, clipping, update.

  Args:
    work: the workload.
    params: our parameters and `batch_stats`, from which PyTorch's begin; None for random ones.
    threads: that PyTorch computes with.
    fused: whether Adam is PyTorch's fused one.
    half: whether the forward pass is under autocast to bfloat16.

  """

  name = "torch"
  accelerated = False  # whether it runs on a GPU where there is one
  batch_size = 32  # where our sampler has none of its own: the papers'

  def __init__(
    self, work: Workload, params: Any, threads: int, fused: bool = False, half: bool = False
  ):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    self.work, self.fused, self.half = work, fused, half
    self.device = torch.device("cuda" if self.accelerated and torch.cuda.is_available() else "cpu")
    self.size = work.settings["batch_size"] or self.batch_size
    self.lengths = np.diff(work.offsets)
    tensor = lambda value: value if torch.is_tensor(value) else torch.tensor(np.array(value))
    self.state = params and {n: tensor(value) for n, value in self.to_state(*params).items()}
    self.trials: dict[str, float] = {}
    self._stream: Iterator[np.ndarray] | None = None
    self.reset(self.choices()[0])

  @staticmethod
  @abc.abstractmethod
  def to_state(params: Mapping[str, Any], statistics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our parameters and statistics as the state of the PyTorch model."""

  @abc.abstractmethod
  def model_of(self, choice: str) -> torch.nn.Module:
    """A fresh model."""

  @abc.abstractmethod
  def loss(self, examples: np.ndarray) -> torch.Tensor:
    """The loss of the examples of these numbers."""

  @abc.abstractmethod
  def rows(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of the texts of a batch, and of the rows that they are computed in."""

  def choices(self) -> Sequence[str]:
    """The ways to compute a step that are tried."""
    return ("plain",)

  def reset(self, choice: str) -> None:
    """A fresh model and optimiser."""
    self.choice, o = choice, self.work.settings["optimizer"]
    self.model = self.model_of(choice).train().to(self.device)
    if self.state:
      self.model.load_state_dict(self.state)
    if o["name"] == "adadelta":
      self.optimizer = torch.optim.Adadelta(
        self.model.parameters(), lr=o["rate"], rho=o["b2"], eps=o["eps"]
      )
    else:
      betas = (o["b1"], o["b2"])
      self.optimizer = torch.optim.Adam(
        self.model.parameters(), lr=o["rate"], betas=betas, eps=o["eps"], fused=self.fused or None
      )

  def step(self, examples: np.ndarray) -> Any:
    """One update on the examples of these numbers."""
    with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
      loss = self.loss(examples)
    self.optimizer.zero_grad()
    loss.backward()
    if norm := self.work.settings["optimizer"]["clip_norm"]:
      torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)
    self.optimizer.step()

  def load(self, examples: np.ndarray) -> Load:
    """What a batch costs."""
    return load_of(self.work.settings, len(examples), *self.rows(examples))

  def plan(self, epoch: int) -> list[np.ndarray]:
    """The examples of each batch of an epoch, in random order."""
    order = np.random.default_rng((7, epoch)).permutation(len(self.work.members))
    return [order[at : at + self.size] for at in range(0, len(order), self.size)]

  def warm_up(self, rounds: int = 3, batches: int = 2) -> None:
    """Tries each choice on the same batches in several rounds, keeps the fastest.

    A batch counts with its best time, so that another process's load decides nothing.
    """
    trial, best = self.plan(0)[:batches], {}
    for _, choice in itertools.product(range(rounds), self.choices()):
      self.reset(choice)
      self.step(trial[0])
      seconds = np.asarray([self._seconds(examples) for examples in trial])
      best[choice] = np.minimum(seconds, best.get(choice, seconds))
    self.trials = {c: float(s.sum()) / sum(map(len, trial)) for c, s in best.items()}
    self.reset(min(self.trials, key=self.trials.get))
    if self.device.type == "cuda":
      torch.cuda.reset_peak_memory_stats()  # so that the peak is that of this choice alone
    self.step(trial[0])
    self.whole = sum((self.load(examples) for examples in self.plan(1)), Load())

  def _seconds(self, examples: np.ndarray) -> float:
    began = time.perf_counter()
    self.step(examples)
    self.wait()
    return time.perf_counter() - began

  def wait(self) -> None:
    """Until the device has done what it was given."""
    if self.device.type == "cuda":
      torch.cuda.synchronize()

  def peak_memory(self) -> int:
    """The most bytes of the GPU that were in use; 0 on a CPU."""
    return torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0

  def block(self, seconds: float) -> tuple[Load, float]:
    """Runs for about `seconds`, at least one step: the work done and the time it took."""
    self._stream = self._stream or (b for e in itertools.count(1) for b in self.plan(e))
    done, began = Load(), time.perf_counter()
    while not done.examples or time.perf_counter() - began < seconds:
      examples = next(self._stream)
      self.step(examples)
      done += self.load(examples)
    self.wait()
    return done, time.perf_counter() - began

  def description(self) -> dict:
    """How it ran."""
    return {
      "torch": torch.__version__,
      "threads": torch.get_num_threads(),
      "batch_size": self.size,
      "fused_adam": self.fused,
      "chosen": self.choice,
      "trials_ms_per_example": {c: round(1e3 * s, 2) for c, s in self.trials.items()},
    }


def _bert(e: Mapping[str, Any], dropout: float | None) -> dict[str, Any]:
  """What a BERT's config says beside its sizes."""
  return {
    "type_vocab_size": e["type_vocab_size"],
    "layer_norm_eps": e["layer_norm_eps"],
    "hidden_act": e["activation"],
    "hidden_dropout_prob": e["hidden_dropout"],
    "attention_probs_dropout_prob": e["attention_dropout"],
    "classifier_dropout": dropout,
  }


def _modernbert(e: Mapping[str, Any], dropout: float | None) -> dict[str, Any]:
  """What a ModernBERT's config says beside its sizes."""
  return {
    "local_attention": e["window"],
    "global_attn_every_n_layers": e["global_every"],
    "mlp_dropout": e["hidden_dropout"],
    "attention_dropout": e["attention_dropout"],
    "classifier_dropout": dropout or 0.0,
    "pad_token_id": 0,
  }


CONFIGS = {"bert": ("Bert", _bert), "modernbert": ("ModernBert", _modernbert)}


class Bert(TorchSide):
  """transformers' BERT: triplets of mean vectors, or pairs under a classifier.

  A choice is an attention, and how many forward passes a batch takes: one for each side (anchor,
  positive, negative), or one for all together.
  """

  accelerated = True

  def choices(self) -> Sequence[str]:
    """`sdpa`, `eager` or, installed on a GPU, `flash_attention_2`; one pass or one for each side."""
    passes = sorted({1, self.work.members.shape[1]})
    kinds = ["sdpa", "eager"]
    if self.device.type == "cuda" and self.half and importlib.util.find_spec("flash_attn"):
      kinds.append("flash_attention_2")  # transformers' ModernBERT then computes without padding
    return [f"{attention}, {n} forward" for attention in kinds for n in passes]

  def model_of(self, choice: str) -> torch.nn.Module:
    """Transformers' model of the same sizes and dropout rates."""
    import transformers

    settings, e = self.work.settings, self.work.settings["encoder"]
    if e["name"] not in CONFIGS:
      names = " and ".join(CONFIGS)
      raise InputError(f"the PyTorch side has {names} alone; add --no-torch for other encoders")
    self.units = np.split(np.stack([self.work.ids, self.work.type]), self.work.offsets[1:-1], 1)
    stem, rates = CONFIGS[e["name"]]
    config = getattr(transformers, f"{stem}Config")(
      vocab_size=e["vocab_size"],
      hidden_size=e["hidden_size"],
      num_hidden_layers=e["num_layers"],
      num_attention_heads=e["num_heads"],
      intermediate_size=e["intermediate_size"],
      max_position_embeddings=e["max_positions"],
      num_labels=2,
      attn_implementation=choice.partition(",")[0],
      **rates(e, settings["model"].get("dropout")),
    )
    if settings["system"] in ("crossencoder", "score"):
      return getattr(transformers, f"{stem}ForSequenceClassification")(config)
    if stem == "Bert":
      return transformers.BertModel(config, add_pooling_layer=False)
    return getattr(transformers, f"{stem}Model")(config)

  @staticmethod
  def to_state(params: Mapping[str, Any], statistics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hugging Face's names; a classifier's where ours has a head."""
    from as2jax.encoders.checkpoints.pretrained import to_tensors

    encoder = to_tensors(params["encoder"], params.get("pooler"))
    if "head" not in params:
      return encoder
    return {
      **{f"bert.{name}": tensor for name, tensor in encoder.items()},
      "classifier.weight": np.asarray(params["head"]["kernel"]).T,
      "classifier.bias": params["head"]["bias"],
    }

  def pad(self, numbers: np.ndarray) -> dict[str, torch.Tensor]:
    """The model's inputs for some units, padded to the longest of them."""
    lengths = self.lengths[numbers]
    real = np.arange(lengths.max()) < lengths[:, None]
    values = np.zeros((2, *real.shape), np.int64)
    values[:, real] = np.concatenate([self.units[n] for n in numbers], axis=1)
    arrays = {"input_ids": values[0], "token_type_ids": values[1], "attention_mask": real}
    if self.work.settings["encoder"]["name"] != "bert":
      del arrays["token_type_ids"]
    move = lambda array: torch.from_numpy(array.astype(np.int64)).to(self.device)
    return {name: move(array) for name, array in arrays.items()}

  def encode(self, numbers: np.ndarray) -> torch.Tensor:
    """Mean-pooled vectors of some units, `[n, d]`."""
    inputs = self.pad(numbers)
    hidden = self.model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None].to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1)

  def _groups(self, members: np.ndarray) -> list[np.ndarray]:
    """The units of each forward pass."""
    return [members.T.ravel()] if ", 1 " in self.choice else list(members.T)

  def loss(self, examples: np.ndarray) -> torch.Tensor:
    """Cross entropy of pairs, or the sum of hinges of triplets."""
    members = self.work.members[examples]
    if self.work.settings["system"] == "crossencoder":
      labels = torch.from_numpy(self.work.labels[examples].astype(np.int64)).to(self.device)
      return functional.cross_entropy(self.model(**self.pad(members[:, 0])).logits, labels)
    vectors = torch.cat([self.encode(group) for group in self._groups(members)])
    return self.hinges(*vectors.chunk(3))

  def hinges(
    self, anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor
  ) -> torch.Tensor:
    """The sum of the hinges of triplets of vectors `[n, d]`."""
    squared = lambda other: (anchor - other).square().sum(-1)
    margin = self.work.settings["loss"]["margin"]
    return functional.relu(squared(positive) - squared(negative) + margin).sum()

  def rows(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each forward pass is padded to its longest text."""
    members = self.work.members[examples]
    padded = [np.full(len(g), self.lengths[g].max()) for g in self._groups(members)]
    return self.lengths[members.ravel()], np.concatenate(padded)


class Encoding(Bert):
  """Encodes sentences sorted by length, as sentence-transformers does."""

  def reset(self, choice: str) -> None:
    """A fresh model."""
    super().reset(choice)
    self.model.eval()
    self.size = ENCODE_BATCH

  def plan(self, epoch: int) -> list[np.ndarray]:
    """Batches of sentences of like length, the batches in random order.

    So that a block that is shorter than a pass sees short and long sentences alike.
    """
    order = np.argsort(-self.lengths[self.work.members[:, 0]], kind="stable")
    batches = [order[at : at + ENCODE_BATCH] for at in range(0, len(order), ENCODE_BATCH)]
    return [batches[i] for i in np.random.default_rng((7, epoch)).permutation(len(batches))]

  def step(self, examples: np.ndarray) -> np.ndarray:
    """The vectors of the sentences of these numbers, on the host."""
    with (
      torch.inference_mode(),
      torch.autocast(self.device.type, torch.bfloat16, enabled=self.half),
    ):
      return self.output(self.work.members[examples, 0]).float().cpu().numpy()

  def output(self, numbers: np.ndarray) -> torch.Tensor:
    """What is read of some units."""
    return self.encode(numbers)


class Scoring(Encoding):
  """Scores pairs sorted by length, as sentence-transformers does."""

  def output(self, numbers: np.ndarray) -> torch.Tensor:
    """The logits of some pairs, `[n, 2]`."""
    return self.model(**self.pad(numbers)).logits


class CrossVAE(TorchSide):
  """Cross-VAEs; a choice is how a padded text is read backward."""

  batch_size = 128

  def choices(self) -> Sequence[str]:
    """Packed sequences, or each text turned round."""
    import cross_vae_torch

    return cross_vae_torch.WAYS

  @staticmethod
  def to_state(params: Mapping[str, Any], statistics: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the tests' reference."""
    import cross_vae_torch

    return cross_vae_torch.to_state(params)

  def model_of(self, choice: str) -> torch.nn.Module:
    """The tests' reference."""
    import cross_vae_torch

    s, e = self.work.settings, self.work.settings["encoder"]
    sizes = (e["vocab_size"], e["hidden_size"])
    return cross_vae_torch.CrossVAE(s["model"], s["loss"], *sizes, choice)

  def rows(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Texts are cut; each side is padded to its longest."""
    model = self.work.settings["model"]
    limits = [model["question_length"], model["answer_length"]]
    lengths = np.minimum(self.lengths[self.work.members[examples]], limits)
    return lengths.ravel(), np.broadcast_to(lengths.max(0), lengths.shape).ravel()

  def batch(self, examples: np.ndarray) -> tuple[dict, dict, torch.Tensor]:
    """Padded ids and lengths of each side, and which pairs are no negatives."""
    members, lengths = self.work.members[examples], self.rows(examples)[0].reshape(-1, 2)
    starts, ids, length = self.work.offsets[members], {}, {}
    for k, side in enumerate(("question", "answer")):
      texts = [
        torch.tensor(self.work.ids[at : at + n].astype(np.int64))
        for at, n in zip(starts[:, k], lengths[:, k], strict=True)
      ]
      ids[side] = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
      length[side] = torch.tensor(lengths[:, k])
    question, answer = torch.tensor(members).T
    same = (question[:, None] == question) | (answer[:, None] == answer)
    return ids, length, same

  def loss(self, examples: np.ndarray) -> torch.Tensor:
    """After the KL's annealing."""
    return self.model.loss(*self.batch(examples), share=1.0)


class M2SNet(TorchSide):
  """M²S-Net over grids of one size."""

  batch_size = 64

  @staticmethod
  def to_state(params: Mapping[str, Any], statistics: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the tests' reference."""
    import m2snet_torch

    return m2snet_torch.to_state(params, statistics)

  def model_of(self, choice: str) -> torch.nn.Module:
    """The tests' reference over the same word vectors."""
    import m2snet_torch

    model = self.work.settings["model"]
    self.sides = model["question_length"], model["candidate_length"]
    inside = np.arange(max(self.sides)) < self.lengths[:, None]
    self.padded = np.zeros(inside.shape, np.int64)
    self.padded[inside] = self.work.ids
    return m2snet_torch.M2SNet(model, np.array(self.work.weights["encoder/embeddings/word"]))

  def rows(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every pair is computed in the whole grid."""
    members = self.work.members[examples]
    rows = np.broadcast_to(self.sides, members.shape)
    return self.lengths[members.ravel()], rows.ravel()

  def loss(self, examples: np.ndarray) -> torch.Tensor:
    """Mean cross entropy with the penalty on the metric."""
    members = self.work.members[examples].T
    inside = [np.arange(n) < self.lengths[m][:, None] for m, n in zip(members, self.sides)]
    mask = torch.from_numpy((inside[0][:, :, None] & inside[1][:, None]).astype(np.float32))
    ids = (torch.from_numpy(self.padded[m][:, :n]) for m, n in zip(members, self.sides))
    labels = torch.from_numpy(self.work.labels[examples].astype(np.float32))
    features = torch.from_numpy(self.work.features[examples])
    return self.model.loss(labels, self.work.settings["loss"]["weight"], *ids, mask, features)


SIDES = {
  "triplet": Bert,
  "crossencoder": Bert,
  "encode": Encoding,
  "score": Scoring,
  "crossvae": CrossVAE,
  "m2snet": M2SNet,
}


def side(
  work: Workload, params: Any, threads: int, fused: bool = False, half: bool = False
) -> TorchSide:
  """PyTorch's side of a workload."""
  return SIDES[work.settings["system"]](work, params, threads, fused, half)
