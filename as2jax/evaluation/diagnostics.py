"""Measure what a system says of itself at each evaluation, beside the metrics.

A system names its `Diagnostics` (`System.diagnostics`). The outputs of one evaluation are gathered
for any system. The loop asks on the split that selects after each epoch, and again of the best
checkpoint at the end. Below are those of Cross-VAE: whether its posterior collapses.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.data.batches.batcher import Batcher
from as2jax.data.record import Question
from as2jax.evaluation.predict import gather, make_predict_step
from as2jax.models.cross_vae import ACTIVE, kl_of_dimensions
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Diagnostics:
  """Declare what a system is asked at an evaluation.

  Attributes:
    method: of the system: `(batch, train) → {…: array [s, e, …]}`, of the system's layout.
    diagnose: from these outputs of one seed, float64 `[n, …]`, to scalars by name.

  """

  method: str
  questions: Callable[[Sequence[Question]], tuple[Question, ...]]  # those of a split that are asked
  diagnose: Callable[[dict[str, Any]], dict[str, float]]


class Diagnoser:
  """Gather and diagnose splits for the variables of one run; compiled once."""

  def __init__(self, components: Any, mesh: jax.sharding.Mesh, seeds: int):
    self.components, self.mesh, self.seeds = components, mesh, seeds
    model = components.model
    self._batchers: dict[str, Batcher] = {}
    self.diagnostics: Any = registry.resolve(model.diagnostics) if model.diagnostics else None
    if self.diagnostics:
      self.step = make_predict_step(model, self.diagnostics.method, mesh=mesh, seeds=seeds)

  def __call__(self, variables: Any, split: str) -> list[dict[str, float]]:
    """Return the scalars of each seed of the variables; their names end in the split's."""
    if self.diagnostics is None:
      return [{} for _ in range(self.seeds)]
    if split not in self._batchers:
      self._batchers[split] = self._batcher(split)
    batcher = self._batchers[split]
    parts = [(batcher, batcher.plan(batcher.sampler.blocks(), 0, 0))]
    double = lambda outputs: jax.tree.map(lambda x: np.asarray(x, np.float64), outputs)
    size = len(batcher.examples)
    outputs = gather(self.step, self.mesh, variables, parts, size, "examples", double)
    diagnoses = []
    for seed in range(self.seeds):
      scalars = self.diagnostics.diagnose(jax.tree.map(lambda x, seed=seed: x[seed], outputs))
      diagnoses.append({f"{name}[{split}]": value for name, value in scalars.items()})
    return diagnoses

  def _batcher(self, split: str) -> Batcher:
    model = self.components.model
    questions = self.diagnostics.questions(self.components.dataset.splits[split])
    if not questions:
      raise InputError(
        f"{split}: none of its questions has a right answer, which the diagnostics of "
        f"{type(model).__name__} want: select on another split (data.holdout)"
      )
    return self.components.predict_batcher(questions, model.layout)


def with_first_answer(questions: Sequence[Question]) -> tuple[Question, ...]:
  """Return the questions with a right answer, each with the first of them as its one candidate."""
  return tuple(
    Question(q.id, q.text, (q.candidates[q.positives[0]],)) for q in questions if q.positives
  )


def cross_vae(outputs: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, float]:
  """Return scalars by `<what>_<side>`, of the sides `question` and `answer`; z = μ.

  `kl`: the sum over dimensions of the mean KL(q(z | text) ‖ N(0, 1)); `kl_active_dimensions`:
  dimensions whose mean KL exceeds 0.01 nats; `active_units`: those whose μ has a variance over
  texts above 0.01 (Burda et al. 2016); `perplexity`: of the words that a decoder can generate;
  `words_not_generated`: the share of the others. Of Dual-GRUs only the variance.

  Args:
    outputs: by side, of `CrossVAE.reconstruct`: mean, log_variance `[n, z]`, others `[n]`.

  """
  scalars = {}
  for side, values in outputs.items():
    scalars[f"active_units_{side}"] = float((values["mean"].var(axis=0) > ACTIVE).sum())
    if "log_variance" in values:
      mean, log_variance = map(jnp.asarray, (values["mean"], values["log_variance"]))
      kl = kl_of_dimensions(mean, log_variance).mean(axis=0)
      scalars[f"kl_{side}"] = float(kl.sum())
      scalars[f"kl_active_dimensions_{side}"] = float((kl > ACTIVE).sum())
    if "log_likelihood" in values:
      words = values["words"].sum()
      scalars[f"perplexity_{side}"] = float(np.exp(-values["log_likelihood"].sum() / max(words, 1)))
      scalars[f"words_not_generated_{side}"] = float(1 - words / max(values["all_words"].sum(), 1))
  return scalars


CROSS_VAE = Diagnostics("reconstruct", with_first_answer, cross_vae)
