"""Whether the posterior of a Cross-VAE collapses, and what its latents generate.

Of each question that has a right answer, with the first of them; z = μ, decoders read the true words
(teacher forcing) without word dropout.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from as2jax.data.record import Question
from as2jax.evaluation.diagnostics import Diagnosis, Diagnostics, Gathered, Texts, with_first_answer
from as2jax.models.cross_vae import SIDES
from as2jax.models.cross_vae_loss import ACTIVE, kl_of_dimensions

# By side: mean, log_variance [n, z], others [n], as `CrossVAE.reconstruct` gives them.
Outputs = Mapping[str, Mapping[str, np.ndarray]]


class Generated(NamedTuple):
  """A question, its right answer, and what the latent of each side generates.

  `from_question` and `from_answer` are (side, text): which side's text it stands for.
  """

  question: str
  answer: str
  from_question: tuple[str, str]
  from_answer: tuple[str, str]


def generated(questions: Sequence[Question], texts: Texts) -> list[Generated]:
  """Questions of one candidate beside the texts by (side of the latent, side of the text)."""
  if not texts:
    return []
  by_source = []
  for source in SIDES:
    ((side, its_texts),) = texts[source].items()
    by_source.append([(side, text) for text in its_texts])
  return [
    Generated(question.text, question.candidates[0].text, *both)
    for question, *both in zip(questions, *by_source, strict=True)
  ]


def report(examples: Sequence[Generated]) -> str:
  """All of them as text."""
  blocks = []
  for example in examples:
    lines = [f"question   {example.question}", f"answer     {example.answer}"]
    for source in SIDES:
      side, text = getattr(example, f"from_{source}")
      lines.append(f"{side} generated from the {source}: {text}")
    blocks.append("\n".join(lines))
  return "\n\n".join(blocks) + "\n"


def diagnose(gathered: Gathered) -> Diagnosis:
  """Scalars (`summary`), `latents.tsv` (`table`) and `generated.txt` (`report`) of one seed."""
  examples = generated([gathered.questions[i] for i in gathered.chosen], gathered.texts)
  files = {"latents.tsv": table(gathered.outputs)}
  if examples:
    files["generated.txt"] = report(examples)
  return Diagnosis(
    summary(gathered.outputs), files, {"generated": [example._asdict() for example in examples]}
  )


def summary(outputs: Outputs) -> dict[str, float]:
  """Scalars by `<what>_<side>`, of the sides `question` and `answer`.

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
      kl = _kl(values).mean(axis=0)
      scalars[f"kl_{side}"] = float(kl.sum())
      scalars[f"kl_active_dimensions_{side}"] = float((kl > ACTIVE).sum())
    if "log_likelihood" in values:
      words = values["words"].sum()
      scalars[f"perplexity_{side}"] = float(np.exp(-values["log_likelihood"].sum() / max(words, 1)))
      scalars[f"words_not_generated_{side}"] = float(1 - words / max(values["all_words"].sum(), 1))
  return scalars


def _kl(values: Mapping[str, np.ndarray]) -> jax.Array:
  return kl_of_dimensions(jnp.asarray(values["mean"]), jnp.asarray(values["log_variance"]))


def table(outputs: Outputs) -> str:
  """Tab-separated, one row a dimension: the mean KL in nats and the variance of μ of each side."""
  columns: dict[str, np.ndarray] = {}
  for side in SIDES:
    values = outputs[side]
    if "log_variance" in values:
      kl = np.asarray(_kl(values))
      columns[f"kl_{side}"] = kl.mean(axis=0)
    columns[f"variance_of_mean_{side}"] = values["mean"].var(axis=0)
  lines = ["\t".join(["dimension", *columns])]
  for number, row in enumerate(zip(*columns.values(), strict=True)):
    lines.append("\t".join([str(number), *(f"{value:.6g}" for value in row)]))
  return "\n".join(lines) + "\n"


DIAGNOSTICS = Diagnostics(
  method="reconstruct", questions=with_first_answer, diagnose=diagnose, generate="generate_texts"
)
