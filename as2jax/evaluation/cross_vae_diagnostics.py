"""Whether the posterior of a Cross-VAE collapses, and what its latents generate, on a whole split.

Each question that has a right answer, with the first of them; z = μ, decoders read the true words
(teacher forcing) without word dropout.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from as2jax.data.record import Question
from as2jax.evaluation.diagnostics import Seen
from as2jax.evaluation.predict_steps import make_predict_step
from as2jax.models.cross_vae import SIDES, SOURCES
from as2jax.models.cross_vae_loss import ACTIVE, kl_of_dimensions
from as2jax.runtime import sharding

EXAMPLES = 5  # questions whose latent, and whose answer's, is made to speak
LENGTH = 20  # words at most of what it says

Measured = dict[str, dict[str, np.ndarray]]  # by side: mean, log_variance [n, z], others [n]


class Generated(NamedTuple):
  """A question, its right answer, and what the latent of each side generates.

  `from_question` and `from_answer` are (side, text): which side's text it stands for.
  """

  question: str
  answer: str
  from_question: tuple[str, str]
  from_answer: tuple[str, str]


class Speaker:
  """What latents generate as text, `length` words at most; compiled once a side and count of them."""

  def __init__(self, experiment: Any, length: int):
    self.tokenizer, self.side = experiment.source.tokenizer, {}
    model = experiment.model

    def words(params, z, source):
      self.side[source], ids = model.apply({"params": params}, z, source, length, method="generate")
      return ids

    self._words = jax.jit(words, static_argnames="source")

  def __call__(self, params: Any, source: str, z: np.ndarray) -> list[tuple[str, str]]:
    """(side, text) that each latent `[n, z]` of the side `source` generates."""
    found = np.asarray(self._words(params, z, source=source))
    return [(self.side[source], " ".join(self.tokenizer.tokens(row[row > 0]))) for row in found]


def report(found: Sequence[Generated]) -> str:
  """All of them as text."""
  blocks = []
  for one in found:
    lines = [f"question   {one.question}", f"answer     {one.answer}"]
    for source in ("question", "answer"):
      side, text = getattr(one, f"from_{source}")
      lines.append(f"{side} generated from the {source}: {text}")
    blocks.append("\n".join(lines))
  return "\n\n".join(blocks) + "\n"


class LatentWatch:
  """KL of each dimension, active units, perplexities, generated examples; see `as2jax.evaluation.diagnostics`.

  By side (`question`, `answer`): `kl`, the sum over dimensions of the mean KL(q(z | text) ‖
  N(0, 1)); `kl_active_dimensions`, dimensions whose mean KL exceeds 0.01 nats; `active_units`,
  those whose μ has a variance over texts above 0.01 (Burda et al. 2016); `perplexity`, of the words
  that a decoder can generate; `words_not_generated`, the share of the others. Of Dual-GRUs only the
  variance.
  """

  def __init__(self, experiment: Any, mesh: jax.sharding.Mesh, seeds: int):
    self.experiment, self.mesh, self.seeds = experiment, mesh, seeds
    model = experiment.model
    self.step = make_predict_step(model, "reconstruct", mesh=mesh, seeds=seeds)
    self.sources = tuple(SOURCES[model.crossing].values())
    self.speaker = Speaker(experiment, LENGTH)
    self._splits: dict[str, tuple[Sequence[Question], Any]] = {}

  def __call__(self, variables: Any, split: str) -> list[Seen]:
    """What there is to see of a split, one entry a seed."""
    questions, _ = self._split(split)
    measured = self._measure(variables, split)
    found = []
    for seed, its in enumerate(measured):
      scalars = {f"{name}[{split}]": value for name, value in summary(its).items()}
      examples = self._examples(variables, seed, questions, its)
      files = {"latents.tsv": table(its)}
      if examples:
        files["generated.txt"] = report(examples)
      found.append(Seen(scalars, files, {"generated": [one._asdict() for one in examples]}))
    return found

  def _split(self, split: str) -> tuple[Sequence[Question], Any]:
    """Its questions, each with its first right answer alone, and their batches."""
    if split not in self._splits:
      questions = tuple(
        Question(q.id, q.text, (q.candidates[q.positives[0]],))
        for q in self.experiment.dataset.splits[split]
        if q.positives
      )
      self._splits[split] = questions, self.experiment.predict_batcher(questions, "pairs")
    return self._splits[split]

  def _measure(self, variables: Any, split: str) -> list[Measured]:
    """What the model makes of each example, in the order of the questions, by seed."""
    questions, batcher = self._split(split)
    plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
    found: list[Measured] = [{side: {} for side in SIDES} for _ in range(self.seeds)]
    mine = sharding.local_shards(self.mesh, batcher.shards)
    for i in range(len(plan)):
      placed = sharding.place_predict(
        batcher.batch(plan, i, only=mine), self.mesh, shards=batcher.shards
      )
      output = jax.tree.map(np.asarray, self.step(variables, placed))
      for s, shard in enumerate(plan.steps[i][0]):
        if shard is None:
          continue
        for seed, its in enumerate(found):
          for side, values in output.items():
            for name, value in values.items():
              into = its[side].setdefault(
                name, np.zeros((len(questions), *value.shape[3:]), np.float64)
              )
              into[shard.examples] = value[seed, s, : len(shard.examples)]
    return found

  def _examples(
    self, variables: Any, seed: int, questions: Sequence[Question], its: Measured
  ) -> list[Generated]:
    if not self.sources or not questions:
      return []
    at = np.unique(np.linspace(0, len(questions) - 1, EXAMPLES).round().astype(int))
    params = jax.tree.map(lambda x: x[seed], variables["params"])
    said = {
      source: self.speaker(params, source, its[source]["mean"][at].astype(np.float32))
      for source in SIDES
    }
    return [
      Generated(questions[i].text, questions[i].candidates[0].text, *both)
      for i, *both in zip(at, said["question"], said["answer"], strict=True)
    ]


def summary(measured: Measured) -> dict[str, float]:
  """Scalars by `<what>_<side>`; see `LatentWatch`."""
  found = {}
  for side, its in measured.items():
    found[f"active_units_{side}"] = float((its["mean"].var(axis=0) > ACTIVE).sum())
    if "log_variance" in its:
      kl = kl_of_dimensions(its["mean"], its["log_variance"]).mean(axis=0)
      found[f"kl_{side}"] = float(kl.sum())
      found[f"kl_active_dimensions_{side}"] = float((kl > ACTIVE).sum())
    if "log_likelihood" in its:
      words = its["words"].sum()
      found[f"perplexity_{side}"] = float(np.exp(-its["log_likelihood"].sum() / max(words, 1)))
      found[f"words_not_generated_{side}"] = float(1 - words / max(its["all_words"].sum(), 1))
  return found


def table(measured: Measured) -> str:
  """Tab-separated, one row a dimension: the mean KL in nats and the variance of μ of each side."""
  columns: dict[str, np.ndarray] = {}
  for side, its in measured.items():
    if "log_variance" in its:
      columns[f"kl_{side}"] = np.asarray(kl_of_dimensions(its["mean"], its["log_variance"])).mean(
        axis=0
      )
    columns[f"variance_of_mean_{side}"] = its["mean"].var(axis=0)
  lines = ["\t".join(["dimension", *columns])]
  for number, row in enumerate(zip(*columns.values(), strict=True)):
    lines.append("\t".join([str(number), *(f"{value:.6g}" for value in row)]))
  return "\n".join(lines) + "\n"
