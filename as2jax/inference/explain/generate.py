"""What a Cross-VAE's latents generate, as text (`as2jax lab generate`).

For some questions of a split, spread over it evenly, with their right answers: the text that μ of
the question generates, and that of the answer, word by word the most probable (by `decoder: mlp`,
the most probable words). Written below the run, `generated/<split>.txt`.
"""

from collections.abc import Sequence

import jax
import numpy as np
from etils import epath

from as2jax.data.datasets import load
from as2jax.data.record import Question
from as2jax.evaluation.cross_vae_diagnostics import DIAGNOSTICS, Generated, generated, report
from as2jax.evaluation.diagnostics import TextGenerator
from as2jax.inference.run import Run
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole


def generate(
  run: epath.PathLike, *, split: str, count: int, length: int, seed: int | None
) -> list[Generated]:
  """Texts for `count` questions of a run's data, from the best checkpoint of a seed (the best one).

  Raises:
    InputError: a run without decoders or checkpoint, no such split, one without right answers.

  """
  opened = Run(run)
  config = opened.config
  cls = registry.find(registry.MODELS, config.model.name, "model.name")
  if not hasattr(cls, "generate"):
    raise InputError(f"{run} is a run of {config.model.name}, which generates no text")
  seed = opened.check_seed(seed)
  data = load.load(config.data, config.evaluation.task)
  load.require(data, (split,))
  questions = chosen(data.splits[split], count)
  if not questions:
    raise InputError(f"--split={split}: no question there has a right answer")
  ranker, components = opened.ranker(seed), opened.components
  generator = TextGenerator(
    components.model, components.source.tokenizer, DIAGNOSTICS.generate, length
  )
  texts = generator(
    jax.tree.map(lambda x: x[0], ranker.variables),
    {
      "question": {"mean": ranker.encode_query([q.text for q in questions])},
      "answer": {"mean": ranker.encode_document([q.candidates[0].text for q in questions])},
    },
  )
  if not texts:
    crossing = config.model.crossing
    raise InputError(f"model.crossing = {crossing!r} has no decoder, so it generates nothing")
  return generated(questions, texts)


def chosen(questions: Sequence[Question], count: int) -> tuple[Question, ...]:
  """`count` questions spread evenly, each with its first right answer alone."""
  full = [q for q in questions if q.positives]
  at = np.unique(np.linspace(0, max(len(full) - 1, 0), min(count, len(full))).round().astype(int))
  return tuple(
    Question(full[i].id, full[i].text, (full[i].candidates[full[i].positives[0]],)) for i in at
  )


def write(
  run: epath.PathLike, *, split: str, count: int, length: int, seed: int | None
) -> list[Generated]:
  """As `generate`, and writes the texts into `generated/<split>.txt` below the run."""
  texts = generate(run, split=split, count=count, length=length, seed=seed)
  folder = epath.Path(run) / "generated"
  folder.mkdir(parents=True, exist_ok=True)
  write_whole(folder / f"{split}.txt", report(texts))
  return texts
