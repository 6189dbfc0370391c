"""The other side: plain PyTorch loops over transformers' models, with dynamic padding.

Sentences are tokenised beforehand, as ours are; each batch is padded to its longest text. Of the common ways to
write such a loop (`choices`) the fastest on this machine is taken.
"""

import importlib.util
import itertools
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from as2jax.runtime import devices
from launch.benchmarks.steps import Load, Workload

# Names of transformers' configs for our encoders' fields.
THEIRS = {name: name for name in ("vocab_size", "hidden_size", "intermediate_size")}
THEIRS |= {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"}
THEIRS |= {"max_positions": "max_position_embeddings", "type_vocab_size": "type_vocab_size"}
THEIRS |= {"layer_norm_eps": "layer_norm_eps", "activation": "hidden_act"}
THEIRS |= {"window": "local_attention", "global_every": "global_attn_every_n_layers"}
BATCH = 32  # the papers', and sentence-transformers' default
SIZES = (32, 128, 512, 2048)  # of batches to encode or score on a GPU
Choice = tuple[str, bool, int]


class TorchSide:
  """Trains on triplets of mean vectors or pairs under a classifier, with Adam; or encodes, or scores.

  Weights are random: they take the same time. `half`: training is under autocast to bfloat16, else the
  weights are bfloat16, as sentence-transformers' with `model_kwargs={"dtype": torch.bfloat16}`.
  """

  def __init__(self, work: Workload, half: bool = False):
    torch.set_num_threads(devices.cores())
    torch.manual_seed(0)
    self.work, self.half = work, half
    self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    units, examples = work.batcher.units, work.batcher.examples
    self.lengths = np.diff(units.offsets)
    tokens = np.stack([np.asarray(units.ids), np.asarray(units.type)])
    self.units = np.split(tokens, units.offsets[1:-1], 1)
    self.members, self.labels = np.asarray(examples.members), np.asarray(examples.labels)[:, 0]
    self._stream: Iterator[np.ndarray] | None = None
    self.reset(*self.choices[0])

  @property
  def choices(self) -> list[Choice]:
    """Return attentions, whether a batch takes one forward pass or one a text, and batch sizes."""
    if self.work.trained:
      size = self.work.batch_size or BATCH
      return [("sdpa", False, size), ("sdpa", True, size), ("eager", True, size)]
    attentions, sizes = ["sdpa"], SIZES[:1]
    if self.device.type == "cuda":
      sizes = SIZES
      if self.half and importlib.util.find_spec("flash_attn"):
        attentions.append("flash_attention_2")
    return [(attention, True, size) for attention in attentions for size in sizes]

  def reset(self, attention: str, at_once: bool, size: int) -> None:
    """Make a fresh model and optimizer."""
    self.at_once, self.size, o = at_once, size, self.work.optimizer
    model = model_of(self.work, attention).to(self.device)
    if self.half and not self.work.trained:
      model = model.to(torch.bfloat16)
    self.model = model.train() if self.work.trained else model.eval()
    self.optimizer = torch.optim.Adam(
      self.model.parameters(), lr=o["rate"], betas=(o["b1"], o["b2"]), eps=o["eps"]
    )

  def batches(self, examples: np.ndarray) -> list[np.ndarray]:
    """Cut examples into batches; texts to encode or score by length, as sentence-transformers sorts them."""
    if not self.work.trained:
      lengths = self.lengths[self.members[examples, 0]]
      examples = examples[np.argsort(-lengths, kind="stable")]
    return np.split(examples, range(self.size, len(examples), self.size))

  def plan(self, epoch: int) -> list[np.ndarray]:
    """Return the examples of each batch, in random order, so that a short block sees all lengths."""
    random = np.random.default_rng((7, epoch))
    batches = self.batches(random.permutation(len(self.members)))
    return [batches[i] for i in random.permutation(len(batches))]

  def passes(self, members: np.ndarray) -> list[np.ndarray]:
    """Return the units of each forward pass."""
    return [members.T.ravel()] if self.at_once else list(members.T)

  def load(self, examples: np.ndarray) -> Load:
    """Return the load of a batch: each forward pass is padded to its longest text."""
    passes = self.passes(self.members[examples])
    positions = sum(len(units) * self.lengths[units].max() for units in passes)
    return self.work.load(len(examples), self.lengths[np.concatenate(passes)], positions)

  def pad(self, numbers: np.ndarray) -> dict[str, torch.Tensor]:
    """Return the model's inputs for some units, padded to the longest of them."""
    lengths = self.lengths[numbers]
    real = np.arange(lengths.max()) < lengths[:, None]
    values = np.zeros((2, *real.shape), np.int64)
    values[:, real] = np.concatenate([self.units[n] for n in numbers], axis=1)
    arrays = {"input_ids": values[0], "attention_mask": real.astype(np.int64)}
    if self.work.family == "bert":
      arrays["token_type_ids"] = values[1]
    return {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}

  def encode(self, numbers: np.ndarray) -> torch.Tensor:
    """Return mean-pooled vectors of some units, `[n, d]`."""
    inputs = self.pad(numbers)
    hidden = self.model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None].to(hidden.dtype)
    return (hidden * mask).sum(1) / mask.sum(1)

  def loss(self, examples: np.ndarray) -> torch.Tensor:
    """Return the cross entropy of pairs, or the sum of the hinges of triplets."""
    members = self.members[examples]
    if self.work.system == "crossencoder":
      labels = torch.from_numpy(self.labels[examples].astype(np.int64)).to(self.device)
      return functional.cross_entropy(self.model(**self.pad(members[:, 0])).logits, labels)
    vectors = torch.cat([self.encode(units) for units in self.passes(members)])
    anchor, positive, negative = vectors.unflatten(0, (3, -1))
    near, far = (anchor - positive).square().sum(-1), (anchor - negative).square().sum(-1)
    return functional.relu(near - far + self.work.loss.margin).sum()

  def step(self, examples: np.ndarray) -> Any:
    """Take one update, or return the vectors or logits of these examples on the host."""
    if not self.work.trained:
      units = self.members[examples, 0]
      with torch.inference_mode():
        scored = self.work.system == "score"
        output = self.model(**self.pad(units)).logits if scored else self.encode(units)
        return output.float().cpu().numpy()
    with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
      loss = self.loss(examples)
    self.optimizer.zero_grad()
    loss.backward()
    norm = self.work.optimizer["clip_norm"] or float("inf")
    torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)
    return self.optimizer.step()

  def warm_up(self) -> None:
    """Try each choice on the same examples in three rounds; keep the one with the best time."""
    choices = self.choices
    best = dict.fromkeys(choices, float("inf"))
    count = 2 * max(size for *_, size in choices)
    examples = np.random.default_rng(7).permutation(len(self.members))[:count]
    for _, choice in itertools.product(range(3), choices):
      self.reset(*choice)
      trial = self.batches(examples)
      self.step(trial[0])
      began = time.perf_counter()
      for part in trial:
        self.step(part)
      self.wait()
      best[choice] = min(time.perf_counter() - began, best[choice])
    attention, at_once, size = min(choices, key=best.__getitem__)
    print(f"torch: {attention}, batches of {size}", flush=True)
    self.reset(attention, at_once, size)
    self.step(self.batches(examples)[0])
    self.whole = sum(map(self.load, self.plan(1)), Load())

  def wait(self) -> None:
    """Wait until the device has done what it was given."""
    if self.device.type == "cuda":
      torch.cuda.synchronize()

  def block(self, seconds: float) -> tuple[Load, float]:
    """Run for about `seconds`, at least one step; return the work done and the time it took."""
    self._stream = self._stream or (b for e in itertools.count(1) for b in self.plan(e))
    done, began = Load(), time.perf_counter()
    while not done.examples or time.perf_counter() - began < seconds:
      examples = next(self._stream)
      self.step(examples)
      done += self.load(examples)
    self.wait()
    return done, time.perf_counter() - began


def model_of(work: Workload, attention: str) -> torch.nn.Module:
  """Return transformers' model of the same sizes and dropout rates."""
  e, dropout = work.model.encoder, getattr(work.model, "dropout", None)
  fields = {theirs: getattr(e, ours) for ours, theirs in THEIRS.items() if hasattr(e, ours)}
  fields |= {"num_labels": 2, "pad_token_id": 0, "attn_implementation": attention}
  if work.family == "bert":
    fields["attention_probs_dropout_prob"] = e.attention_dropout
    fields |= {"hidden_dropout_prob": e.hidden_dropout, "classifier_dropout": dropout}
  else:
    fields |= {"attention_dropout": e.attention_dropout, "mlp_dropout": e.hidden_dropout}
    fields["classifier_dropout"] = dropout or 0.0
  config = transformers.AutoConfig.for_model(work.family, **fields)
  if work.system in ("crossencoder", "score"):
    return transformers.AutoModelForSequenceClassification.from_config(config)
  options = {"add_pooling_layer": False} if work.family == "bert" else {}
  return transformers.AutoModel.from_config(config, **options)


class TokenVectors(torch.nn.Module):
  """Adds a model's vectors of the tokens to sentence-transformers' features."""

  def __init__(self, model: torch.nn.Module):
    super().__init__()
    self.model = model

  def forward(self, features: dict[str, Any]) -> dict[str, Any]:
    """Return the features, with the vectors."""
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: features[name] for name in names if name in features}
    return {**features, "token_embeddings": self.model(**inputs).last_hidden_state}


class TrainerSide(TorchSide):
  """Trains on the same triplets by sentence-transformers' own trainer and `TripletLoss`, 32 a batch."""

  steps = 0  # taken until now

  @property
  def choices(self) -> list[Choice]:
    """Return the one way: its loss takes a forward pass a text."""
    return [("sdpa", False, BATCH)]

  def warm_up(self) -> None:
    """Take a few steps, which say how long one takes."""
    super().warm_up()
    self.step_seconds = self.train(3)[1] / 3

  def block(self, seconds: float) -> tuple[Load, float]:
    """Run for about `seconds`, at least one step; return the work done and the time it took."""
    return self.train(max(1, round(seconds / self.step_seconds)))

  def train(self, steps: int) -> tuple[Load, float]:
    """Take so many steps; return the work done and the time from the first batch to the last update."""
    import datasets
    import sentence_transformers as st
    from sentence_transformers.base import data_collator
    from sentence_transformers.sentence_transformer import losses, modules

    read, times = [], []

    def inputs(units: list[int], **_: Any) -> dict[str, torch.Tensor]:
      read.append(np.asarray(units))
      return {name: array.cpu() for name, array in self.pad(read[-1]).items()}

    class Clock(transformers.TrainerCallback):
      def on_train_begin(self, *_: Any, **__: Any) -> None:
        times.append(time.perf_counter())

      def on_train_end(_, *__: Any, **___: Any) -> None:
        self.wait()
        times.append(time.perf_counter())

    columns = dict(zip(("anchor", "positive", "negative"), self.members.T.tolist(), strict=True))
    parts = [TokenVectors(self.model), modules.Pooling(self.work.model.encoder.hidden_size)]
    model = st.SentenceTransformer(modules=parts, device=self.device.type)
    arguments = st.SentenceTransformerTrainingArguments(
      output_dir=tempfile.gettempdir(),
      max_steps=steps,
      seed=self.steps,
      per_device_train_batch_size=BATCH,
      learning_rate=self.work.optimizer["rate"],
      bf16=self.half,
      save_strategy="no",
      logging_strategy="no",
      report_to="none",
      disable_tqdm=True,
      use_cpu=self.device.type == "cpu",
    )
    st.SentenceTransformerTrainer(
      model=model,
      args=arguments,
      train_dataset=datasets.Dataset.from_dict(columns),
      data_collator=data_collator.BaseDataCollator(inputs),
      loss=losses.TripletLoss(model),
      callbacks=[Clock()],
    ).train()
    self.steps += steps
    taken = read[: 3 * steps]  # it has made a batch more
    positions = sum(len(units) * int(self.lengths[units].max()) for units in taken)
    count = sum(map(len, taken)) // 3
    load = self.work.load(count, self.lengths[np.concatenate(taken)], positions)
    return load, times[1] - times[0]
