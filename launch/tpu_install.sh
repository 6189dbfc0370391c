#!/usr/bin/env bash
# On a TPU VM, in the repository's root: Python 3.11, the packages of requirements.txt, jax for TPU.
# Run again it installs only what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. launch/environment.sh

if ! command -v python3.11 >/dev/null && ! command -v python3.12 >/dev/null; then
  # The first boot of an image runs an upgrade of its own, which holds apt for a while.
  sudo apt-get -o DPkg::Lock::Timeout=600 -qq update
  sudo apt-get -o DPkg::Lock::Timeout=600 -qq install -y python3.11 python3.11-venv
fi
make_venv
install requirements.txt
jax=$(sed -n 's/^jax==\([0-9.]*\).*/\1/p' requirements.txt)
# gcsfs opens gs:// folders: workdirs, the compilation cache.
.venv/bin/python -m pip install -qq --disable-pip-version-check "jax[tpu]==$jax" gcsfs
install_alone "$ENCODER"
