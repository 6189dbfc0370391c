"""python -m as2jax.inference.explain.generate --run=runs/x: what a Cross-VAE's latents generate, as text.

For some questions of a split, spread over it evenly, with their right answers: the text that μ of
the question generates, and that of the answer, word by word the most probable (by `decoder: mlp`,
the most probable words). Written below the run, `generated/<split>.txt`.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import traverse_util

from as2jax.data.datasets.load import require
from as2jax.data.record import Question
from as2jax.evaluation.cross_vae_diagnostics import DIAGNOSTICS, Generated, generated, report
from as2jax.evaluation.diagnostics import TextGenerator
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.training.build import Components, load
from as2jax.training.run_folder import config_of


def generate(
  run: epath.PathLike, *, split: str, count: int, length: int, seed: int | None
) -> list[Generated]:
  """Texts for `count` questions of a run's data, from the best checkpoint of a seed (the first).

  Raises:
    InputError: a run without decoders or checkpoint, no such split, one without right answers.

  """
  from as2jax.inference.export import best_parameters

  config = config_of(run)
  cls = registry.find(registry.MODELS, config.model.name, "model.name")
  if not hasattr(cls, "generate"):
    raise InputError(f"{run} is a run of {config.model.name}, which generates no text")
  if seed is not None and seed not in tuple(config.seeds):
    raise InputError(f"--seed={seed}: {run} has the seeds {tuple(config.seeds)}")
  experiment = load(config, workdir=run)
  require(experiment.dataset, (split,))
  questions = chosen(experiment.dataset.splits[split], count)
  if not questions:
    raise InputError(f"--split={split}: no question there has a right answer")
  flat = best_parameters(experiment, run, tuple(config.seeds)[0] if seed is None else seed)
  params = traverse_util.unflatten_dict({k: jnp.asarray(v) for k, v in flat.items()}, sep="/")
  vectors = latents(experiment, params, questions)
  latents_of = lambda texts: {"mean": np.stack([vectors[text] for text in texts])}
  generator = TextGenerator(
    experiment.model, experiment.source.tokenizer, DIAGNOSTICS.generate, length
  )
  texts = generator(
    {"params": params},
    {
      "question": latents_of([q.text for q in questions]),
      "answer": latents_of([q.candidates[0].text for q in questions]),
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


def latents(
  experiment: Components, params: Any, questions: Sequence[Question]
) -> dict[str, np.ndarray]:
  """μ of each distinct text."""
  batcher = experiment.predict_batcher(questions, "sentences")
  model, found = experiment.model, {}
  encode = jax.jit(lambda p, b: model.apply({"params": p}, b, train=False, method="encode").units)
  plan = batcher.plan(batcher.sampler.blocks(), 0, 0)
  for i in range(len(plan)):
    batch = jax.tree.map(lambda x: x[0], batcher.batch(plan, i))
    used = batch.units.id >= 0
    found.update(zip(batch.units.id[used].tolist(), np.asarray(encode(params, batch))[used]))
  texts = dict.fromkeys(t for q in questions for t in (q.text, *(c.text for c in q.candidates)))
  return {text: found[number] for number, text in enumerate(texts)}


def main(arguments: Sequence[str] | None = None) -> int:
  """Writes and prints; returns the exit status: 0, or 2 for bad input."""
  parser = argparse.ArgumentParser(
    prog="python -m as2jax.inference.explain.generate",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument("--run", required=True, help="folder of a run")
  parser.add_argument("--split", default="dev")
  parser.add_argument("--count", type=int, default=10, help="of questions")
  parser.add_argument("--length", type=int, default=40, help="of a text, in words")
  parser.add_argument("--seed", type=int, help="which of the run's; the first where not given")
  given = parser.parse_args(arguments)
  try:
    if min(given.count, given.length) < 1:
      raise InputError("--count and --length: give 1 or more")
    text = report(
      generate(
        given.run, split=given.split, count=given.count, length=given.length, seed=given.seed
      )
    )
  except InputError as error:
    print(f"as2jax: {error}", file=sys.stderr)
    return 2
  folder = epath.Path(given.run) / "generated"
  folder.mkdir(parents=True, exist_ok=True)
  write_whole(folder / f"{given.split}.txt", text)
  print(text, end="")
  return 0


if __name__ == "__main__":
  sys.exit(main())
