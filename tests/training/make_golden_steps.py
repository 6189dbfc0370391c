"""Records the losses, gradients and parameters of PyTorch's training steps (tests/torch_steps.py).

python tests/training/make_golden_steps.py [CASE …]     (all of tests/tiny_steps.py by default)

To be run again where a tiny config, the embedded sample or a tokeniser changes on purpose.
"""

import os
import pathlib
import sys
import tempfile

import numpy as np

TESTS = pathlib.Path(__file__).resolve().parent.parent


def main() -> None:
  """Writes tests/training/golden/step_CASE.npz."""
  sys.path[:0] = [str(TESTS.parent), str(TESTS)]
  import tiny_steps
  import torch_steps

  tiny_steps.golden("").parent.mkdir(exist_ok=True)
  for name in sys.argv[1:] or (*tiny_steps.TINY, *tiny_steps.MINILM):
    case = tiny_steps.case(name)
    actual = torch_steps.reference(case)
    kept = tiny_steps.recording(case, actual, tiny_steps.choose(case, actual))
    np.savez_compressed(tiny_steps.golden(name), **kept)
    print(name, tiny_steps.golden(name).stat().st_size, "bytes")


if __name__ == "__main__":
  with tempfile.TemporaryDirectory() as cache:
    os.environ["AS2JAX_CACHE"] = cache
    main()
