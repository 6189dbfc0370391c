"""Measure what a system says of itself at each evaluation, beside the metrics.

A system names its `Diagnostics` (`System.diagnostics`). The outputs of one evaluation are gathered
for any system; what they say is a pure function of the gathered outputs of one seed. The loop asks
on the split that selects after each epoch, and again of the best checkpoint at the end. Below are
those of Cross-VAE: whether its posterior collapses, and what its latents generate.
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
from as2jax.models.cross_vae_loss import ACTIVE, kl_of_dimensions
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

Tree = dict[str, Any]  # of arrays with one row an example, `[n, …]`
Texts = dict[str, dict[str, list[str]]]


@dataclasses.dataclass(frozen=True)
class Gathered:
  """Hold the outputs of one seed on one split."""

  questions: Sequence[Question]  # that were asked, `n` of them
  outputs: Tree  # of the system's method, float64, in the order of the examples
  chosen: np.ndarray  # positions of the questions for which texts were generated
  texts: Texts  # {name: {name: the text of each chosen question}}, {} where there are none


@dataclasses.dataclass(frozen=True)
class Diagnosis:
  """Hold what is known of one seed on one split: scalars for the log, `summary` for the results."""

  scalars: dict[str, float] = dataclasses.field(default_factory=dict)
  summary: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Diagnostics:
  """Declare what a system is asked at an evaluation.

  Attributes:
    method: of the system: `(batch, train) → {…: array [s, e, …]}`, of the system's layout.
    generate: of the system: `(outputs, length) → {name: {name: word ids [n, l]}}`, 0 for none;
      called with the outputs of some examples, spread evenly over the split.

  """

  method: str
  questions: Callable[[Sequence[Question]], tuple[Question, ...]]  # those of a split that are asked
  diagnose: Callable[[Gathered], Diagnosis]
  generate: str = ""
  examples: int = 5  # questions that are generated for
  length: int = 20  # words of a text, at most


class Diagnoser:
  """Gather and diagnose splits for the variables of one run; compiled once."""

  def __init__(self, components: Any, mesh: jax.sharding.Mesh, seeds: int):
    self.components, self.mesh, self.seeds = components, mesh, seeds
    model = components.model
    self.diagnostics: Diagnostics | None = None
    self._splits: dict[str, tuple[tuple[Question, ...], Batcher]] = {}
    if model.diagnostics:
      self.diagnostics = declared = registry.resolve(model.diagnostics)
      self.step = make_predict_step(model, declared.method, mesh=mesh, seeds=seeds)
      self._generate = jax.jit(
        lambda variables, outputs: model.apply(
          variables, outputs, declared.length, method=declared.generate
        )
      )

  def __call__(self, variables: Any, split: str) -> list[Diagnosis]:
    """Return the diagnosis of each seed of the variables; scalars have the split in their names."""
    declared = self.diagnostics
    if declared is None:
      return [Diagnosis()] * self.seeds
    questions, batcher = self._split(declared, split)
    every = self._outputs(variables, batcher)
    places = np.linspace(0, len(questions) - 1, declared.examples)
    chosen = np.unique(places.round().astype(int))
    diagnoses = []
    for seed in range(self.seeds):
      outputs = jax.tree.map(lambda x, seed=seed: x[seed], every)
      texts: Texts = {}
      if declared.generate:
        of_seed = jax.tree.map(lambda x, seed=seed: x[seed], variables)
        texts = self._texts(of_seed, jax.tree.map(lambda x: x[chosen], outputs))
      diagnosis = declared.diagnose(Gathered(questions, outputs, chosen, texts))
      scalars = {f"{name}[{split}]": value for name, value in diagnosis.scalars.items()}
      diagnoses.append(dataclasses.replace(diagnosis, scalars=scalars))
    return diagnoses

  def _split(self, declared: Diagnostics, split: str) -> tuple[tuple[Question, ...], Batcher]:
    if split not in self._splits:
      questions = declared.questions(self.components.dataset.splits[split])
      if not questions:
        raise InputError(
          f"{split}: none of its questions has a right answer, which the diagnostics of "
          f"{type(self.components.model).__name__} want: select on another split (data.holdout)"
        )
      layout = self.components.model.layout
      self._splits[split] = questions, self.components.predict_batcher(questions, layout)
    return self._splits[split]

  def _outputs(self, variables: Any, batcher: Batcher) -> Tree:
    """Return the step's outputs for every example, `[seed, n, …]`, in the examples' order."""
    parts = [(batcher, batcher.plan(batcher.sampler.blocks(), 0, 0))]
    size = len(batcher.examples)
    double = lambda outputs: jax.tree.map(lambda x: np.asarray(x, np.float64), outputs)
    return gather(self.step, self.mesh, variables, parts, size, "examples", double)

  def _texts(self, variables: Any, outputs: Tree) -> Texts:
    """Return the texts generated from outputs of examples `[n, …]`, of one seed's variables."""
    outputs = jax.tree.map(lambda x: np.asarray(x, np.float32), outputs)
    tokens = self.components.source.tokenizer.tokens
    return jax.tree.map(
      lambda rows: [" ".join(tokens(row[row > 0])) for row in np.asarray(rows)],
      self._generate(variables, outputs),
    )


def with_first_answer(questions: Sequence[Question]) -> tuple[Question, ...]:
  """Return the questions with a right answer, each with the first of them as its one candidate."""
  return tuple(
    Question(q.id, q.text, (q.candidates[q.positives[0]],)) for q in questions if q.positives
  )


SIDES = ("question", "answer")  # of a Cross-VAE
# By side: mean, log_variance [n, z], others [n], as `CrossVAE.reconstruct` gives them.
Outputs = Mapping[str, Mapping[str, np.ndarray]]


def cross_vae(gathered: Gathered) -> Diagnosis:
  """Return scalars and texts of one seed of a Cross-VAE: z = μ, decoders read the true words."""
  examples = []
  for number, place in enumerate(gathered.chosen if gathered.texts else ()):
    question = gathered.questions[place]
    example: dict[str, Any] = {"question": question.text, "answer": question.candidates[0].text}
    for source in SIDES:  # (side, text): which side's text is generated from the latent of `source`
      ((side, texts),) = gathered.texts[source].items()
      example[f"from_{source}"] = (side, texts[number])
    examples.append(example)
  return Diagnosis(latents_summary(gathered.outputs), {"generated": examples})


def latents_summary(outputs: Outputs) -> dict[str, float]:
  """Return scalars by `<what>_<side>`, of the sides `question` and `answer`.

  `kl`: the sum over dimensions of the mean KL(q(z | text) ‖ N(0, 1)); `kl_active_dimensions`:
  dimensions whose mean KL exceeds 0.01 nats; `active_units`: those whose μ has a variance over
  texts above 0.01 (Burda et al. 2016); `perplexity`: of the words that a decoder can generate;
  `words_not_generated`: the share of the others. Of Dual-GRUs only the variance.
  """
  scalars = {}
  for side in SIDES:
    values = outputs[side]
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


CROSS_VAE = Diagnostics(
  method="reconstruct", questions=with_first_answer, diagnose=cross_vae, generate="generate_texts"
)
