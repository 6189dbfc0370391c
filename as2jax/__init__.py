"""as2jax: answer sentence selection in JAX and Flax.

import as2jax

ranker = as2jax.load("runs/x")  # or a published sentence-transformers folder or hub name
for hit in ranker.rank("how are glacier caves formed", candidates):
  print(hit.score, hit.text)
"""

import os
from typing import TYPE_CHECKING

from as2jax.runtime import cpu_compiler, registry
from as2jax.runtime.version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers and editors: the names below, without their imports
  from as2jax.data.dataset import dataset as dataset
  from as2jax.data.record import Candidate as Candidate
  from as2jax.data.record import Question as Question
  from as2jax.inference.evaluate import Comparison as Comparison
  from as2jax.inference.evaluate import Evaluation as Evaluation
  from as2jax.inference.evaluate import compare as compare
  from as2jax.inference.evaluate import evaluate as evaluate
  from as2jax.inference.evaluate import pairwise as pairwise
  from as2jax.inference.index import Hit as Hit
  from as2jax.inference.index import Index as Index
  from as2jax.inference.open import load as load
  from as2jax.inference.open import open_run as open_run
  from as2jax.inference.open import train as train
  from as2jax.inference.ranker import Ranker as Ranker
  from as2jax.inference.run import Run as Run
  from as2jax.inference.selection import Selection as Selection
  from as2jax.runtime.errors import InputError as InputError

cpu_compiler.leave_out_wrong_fusions()
# Else XLA writes, for each program from the compilation cache, four kilobytes of its own preferences
# as features that the CPU lacks.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# The public names, imported when they are first asked for: `import as2jax` stays light.
_PUBLIC = {
  "Candidate": "as2jax.data.record:Candidate",
  "Comparison": "as2jax.inference.evaluate:Comparison",
  "Evaluation": "as2jax.inference.evaluate:Evaluation",
  "Hit": "as2jax.inference.index:Hit",
  "Index": "as2jax.inference.index:Index",
  "InputError": "as2jax.runtime.errors:InputError",
  "Question": "as2jax.data.record:Question",
  "Ranker": "as2jax.inference.ranker:Ranker",
  "Run": "as2jax.inference.run:Run",
  "Selection": "as2jax.inference.selection:Selection",
  "compare": "as2jax.inference.evaluate:compare",
  "dataset": "as2jax.data.dataset:dataset",
  "evaluate": "as2jax.inference.evaluate:evaluate",
  "load": "as2jax.inference.open:load",
  "open_run": "as2jax.inference.open:open_run",
  "pairwise": "as2jax.inference.evaluate:pairwise",
  "train": "as2jax.inference.open:train",
}


def __getattr__(name: str):
  if name not in _PUBLIC:
    raise AttributeError(f"module 'as2jax' has no attribute {name!r}")
  return registry.resolve(_PUBLIC[name])


def __dir__() -> list[str]:
  return sorted(["__version__", *_PUBLIC])
