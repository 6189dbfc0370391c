#!/usr/bin/env bash
# Installs what as2jax needs into .venv, on a TPU VM, a machine with NVIDIA GPUs or a plain one:
#   bash launch/install.sh [tpu|cuda12|cuda13|cpu]     (without a word: what this machine has)
# uv makes .venv with a released Python 3.11 (PYTHON=/path takes that one); all versions are those of
# requirements.txt. Run again it installs only what is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
. launch/environment.sh

accelerator() {
  if compgen -G '/dev/accel*' >/dev/null || compgen -G '/dev/vfio/[0-9]*' >/dev/null; then
    echo tpu
  elif command -v nvidia-smi >/dev/null; then
    local driver
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | cut -d. -f1 | sort -n |
      head -n 1)
    case "$driver" in
      '' | *[!0-9]*) # no driver, or no GPU that it knows
        echo "nvidia-smi names no driver: for the CPU (or give cuda12 or cuda13)" >&2
        echo cpu
        ;;
      *) [ "$driver" -ge 580 ] && echo cuda13 || echo cuda12 ;; # what CUDA 13 wants
    esac
  else
    echo cpu
  fi
}

pinned() { sed -n "s/.*\b\($1==[0-9.]*\).*/\1/p" requirements.txt | head -n 1; }

find_uv() { # prints where it is, after fetching it where it is not
  command -v uv && return
  if [ ! -x .uv/bin/uv ]; then
    python3 -m pip install -qq --disable-pip-version-check --target .uv "$(pinned uv)" >&2 ||
      { curl -LsSf "https://astral.sh/uv/$(pinned uv | sed 's/.*==//')/install.sh" |
        env UV_INSTALL_DIR="$PWD/.uv/bin" UV_NO_MODIFY_PATH=1 sh >&2; }
  fi
  [ -x .uv/bin/uv ] || return 1
  echo "$PWD/.uv/bin/uv"
}

kind=${1:-$(accelerator)}
case "$kind" in
  cpu) more=() ;;
  tpu | cuda12 | cuda13) more=("jax[$kind]") ;; # of the version in requirements.txt
  *) die "$kind: give tpu, cuda12, cuda13 or cpu" ;;
esac
uv=$(find_uv) || die "uv cannot be fetched: check the network, then run this again"
if [ ! -x .venv/bin/python ]; then
  # The system of a TPU VM has a release candidate of 3.11, so a Python of uv's own is taken.
  python=(--managed-python --python 3.11)
  [ -z "${PYTHON:-}" ] || python=(--python "$PYTHON")
  "$uv" venv --quiet --seed "${python[@]}" .venv
fi
"$uv" pip install --quiet --python .venv/bin/python -r requirements.txt \
  ${more[@]+"${more[@]}"} "$(pinned gcsfs)" || no_packages
"$uv" pip install --quiet --python .venv/bin/python --no-deps "$ENCODER" || no_packages
