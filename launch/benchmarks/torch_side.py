"""The other side of `launch/benchmarks/benchmark.py`: a plain PyTorch loop with dynamic padding.

Sentences are tokenised beforehand, as ours are; each batch is padded to its longest sentence. Of
the common ways to write such a loop, the fastest on this machine is taken (`Choice`).
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from as2jax.runtime.errors import InputError
from launch.benchmarks.torch_loop import TorchLoop
from launch.benchmarks.workload import Load, Workload, load_of

ENCODE_BATCH = 32  # sentence-transformers' default


@dataclasses.dataclass(frozen=True)
class Choice:
  """One way to write the loop.

  Attributes:
    attention: transformers' implementation.
    passes: forward passes a batch: one a side (anchor, positive, negative), or 1 for all together.

  """

  attention: str
  passes: int


class Training(TorchLoop):
  """A training loop: forward, loss, backward, clip, Adam."""

  def __init__(
    self,
    work: Workload,
    tensors: Mapping[str, np.ndarray] | None,
    threads: int,
    fused: bool = False,
  ):
    """`tensors`: the model's state by name (`to_state`), None for random values."""
    import torch

    super().__init__(work, work.settings["batch_size"] or 32, threads)  # 32: the paper's
    if work.settings["encoder"]["name"] != "bert":
      raise InputError("the PyTorch side has BERT alone; add --no-torch for other encoders")
    self.torch, self.tensors, self.fused = torch, tensors, fused
    self.units = np.split(np.stack([work.ids, work.type]), work.offsets[1:-1], axis=1)
    self.trials: dict[Choice, float] = {}
    self.choice = self.choices()[0]
    self.reset(self.choice)

  def choices(self) -> list[Choice]:
    sides = {1, self.work.members.shape[1]}
    return [
      Choice(attention, passes) for attention in ("sdpa", "eager") for passes in sorted(sides)
    ]

  def reset(self, choice: Choice) -> None:
    """A fresh model and optimiser."""
    torch, settings = self.torch, self.work.settings
    self.model = _model(settings, choice.attention)
    if self.tensors is not None:
      self.model.load_state_dict(
        {name: torch.from_numpy(np.array(tensor)) for name, tensor in self.tensors.items()}
      )
    self.choice = choice
    if settings["system"] != "encode":
      o = settings["optimizer"]
      self.optimizer = torch.optim.Adam(
        self.model.parameters(),
        lr=o["rate"],
        betas=(o["b1"], o["b2"]),
        eps=o["eps"],
        fused=self.fused or None,
      )
    self.model.train(settings["system"] != "encode")

  def pad(self, numbers: np.ndarray) -> dict[str, Any]:
    """The model's inputs for some units, padded to the longest of them."""
    lengths = self.lengths[numbers]
    real = np.arange(lengths.max()) < lengths[:, None]
    values = np.zeros((2, *real.shape), np.int64)
    values[:, real] = np.concatenate([self.units[n] for n in numbers], axis=1)
    give = self.torch.from_numpy
    return {
      "input_ids": give(values[0]),
      "token_type_ids": give(values[1]),
      "attention_mask": give(real.astype(np.int64)),
    }

  def encode(self, numbers: np.ndarray) -> Any:
    """Mean-pooled vectors of some units, `[n, d]`."""
    inputs = self.pad(numbers)
    hidden = self.model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None].to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1)

  def loss(self, members: np.ndarray, labels: np.ndarray) -> Any:
    """The loss of some examples: units `[n, k]`, labels `[n]`."""
    settings, functional = self.work.settings, self.torch.nn.functional
    if settings["system"] == "crossencoder":
      logits = self.model(**self.pad(members[:, 0])).logits
      return functional.cross_entropy(logits, self.torch.from_numpy(labels.astype(np.int64)))
    if self.choice.passes == 1:
      anchor, positive, negative = self.encode(members.T.ravel()).chunk(3)
    else:
      anchor, positive, negative = (self.encode(side) for side in members.T)
    squared = lambda other: (anchor - other).square().sum(-1)
    margin = settings["loss"]["margin"]
    return functional.relu(squared(positive) - squared(negative) + margin).sum()

  def step(self, examples: np.ndarray) -> None:
    """One update on the examples of these numbers."""
    loss = self.loss(self.work.members[examples], self.work.labels[examples])
    self.optimizer.zero_grad()
    loss.backward()
    norm = self.work.settings["optimizer"]["clip_norm"]
    self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)
    self.optimizer.step()

  def load(self, examples: np.ndarray) -> Load:
    """What a batch costs, as the choice pads it."""
    members = self.work.members[examples]
    groups = members.T if self.choice.passes > 1 else [members.T.ravel()]
    rows = np.concatenate([np.full(len(g), self.lengths[g].max()) for g in groups])
    return load_of(self.work.settings, len(examples), self.lengths[members.ravel()], rows)

  def warm_up(self, rounds: int = 3, batches: int = 2) -> None:
    """Tries each choice on the same batches in several rounds; keeps the fastest.

    A batch counts with its best time, so that another process's load decides nothing.
    """
    trial = self.plan(0)[:batches]
    best: dict[Choice, np.ndarray] = {}
    for _ in range(rounds):
      for choice in self.choices():
        self.reset(choice)
        self.step(trial[0])
        seconds = np.asarray([self._seconds(examples) for examples in trial])
        best[choice] = np.minimum(seconds, best.get(choice, seconds))
    self.trials = {c: seconds.sum() / sum(map(len, trial)) for c, seconds in best.items()}
    self.reset(min(self.trials, key=self.trials.get))
    self.step(trial[0])
    self.measure_epoch()

  def _seconds(self, examples: np.ndarray) -> float:
    began = time.perf_counter()
    self.step(examples)
    return time.perf_counter() - began

  def facts(self) -> dict:
    """How it ran."""
    name = lambda choice: f"{choice.attention}, {choice.passes} forward a step"
    import transformers

    return {
      "torch": self.torch.__version__,
      "transformers": transformers.__version__,
      "threads": self.torch.get_num_threads(),
      "batch_size": self.size,
      "fused_adam": self.fused,
      "chosen": name(self.choice),
      "trials_ms_per_example": {
        name(tried): round(1e3 * float(spent), 2) for tried, spent in self.trials.items()
      },
    }


class Encoding(Training):
  """Encodes sentences sorted by length, as sentence-transformers does."""

  def choices(self) -> list[Choice]:
    return [Choice("sdpa", 1), Choice("eager", 1)]

  def plan(self, epoch: int) -> list[np.ndarray]:
    """Batches of sentences of like length, the batches in random order.

    So that a block that is shorter than a pass sees short and long sentences alike.
    """
    order = np.argsort(-self.lengths[self.work.members[:, 0]], kind="stable")
    batches = [order[at : at + ENCODE_BATCH] for at in range(0, len(order), ENCODE_BATCH)]
    return [batches[i] for i in np.random.default_rng((7, epoch)).permutation(len(batches))]

  def step(self, examples: np.ndarray) -> Any:
    """The vectors of the sentences of these numbers, on the host."""
    with self.torch.inference_mode():
      return self.encode(self.work.members[examples, 0]).numpy()

  def facts(self) -> dict:
    return {**super().facts(), "batch_size": ENCODE_BATCH}


def _model(settings: Mapping[str, Any], attention: str) -> Any:
  """Transformers' torch model of the same sizes and dropout rates."""
  from transformers import BertConfig, BertForSequenceClassification, BertModel

  e, classifies = settings["encoder"], settings["system"] == "crossencoder"
  config = BertConfig(
    vocab_size=e["vocab_size"],
    hidden_size=e["hidden_size"],
    num_hidden_layers=e["num_layers"],
    num_attention_heads=e["num_heads"],
    intermediate_size=e["intermediate_size"],
    max_position_embeddings=e["max_positions"],
    type_vocab_size=e["type_vocab_size"],
    layer_norm_eps=e["layer_norm_eps"],
    hidden_act=e["activation"],
    hidden_dropout_prob=e["hidden_dropout"],
    attention_probs_dropout_prob=e["attention_dropout"],
    num_labels=2,
    classifier_dropout=settings["model"].get("dropout"),
    attn_implementation=attention,
  )
  return (
    BertForSequenceClassification(config)
    if classifies
    else BertModel(config, add_pooling_layer=False)
  )


def to_state(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """Our parameter tree as the state of the torch model (a cross-encoder where it has a head)."""
  from as2jax.encoders.checkpoints.pretrained import to_tensors

  encoder = to_tensors(params["encoder"], params.get("pooler"))
  if "head" not in params:
    return encoder
  return {
    **{f"bert.{name}": tensor for name, tensor in encoder.items()},
    "classifier.weight": np.asarray(params["head"]["kernel"]).T,
    "classifier.bias": np.asarray(params["head"]["bias"]),
  }


def side(
  work: Workload, tensors: Mapping[str, np.ndarray] | None, threads: int, fused: bool = False
) -> Training:
  """PyTorch's side of a workload."""
  kind = Encoding if work.settings["system"] == "encode" else Training
  return kind(work, tensors, threads, fused)
