#!/usr/bin/env bash
# One run on this host: bash launch/job.sh CONFIG DIR [OPTION...]
# Waits for another run of this host to end, writes a log of its own, and survives the connection that
# started it. On a slice, start it on every host. SIGTERM saves and ends the run with status 75; the
# same command goes on. Data come from AS2JAX_DATA, or ~/data; caches go to AS2JAX_CACHE, or ~/cache.
set -uo pipefail
trap '' HUP PIPE
cd "$(dirname "${BASH_SOURCE[0]}")/.."
config=$1 folder=$2
shift 2
mkdir -p "$HOME/logs"
exec > >(exec tee -a "$HOME/logs/$(basename "$folder").log") 2>&1
exec 9>"$HOME/as2jax.lock"
flock 9
export AS2JAX_DATA=${AS2JAX_DATA:-$HOME/data} AS2JAX_CACHE=${AS2JAX_CACHE:-$HOME/cache}
exec .venv/bin/python -m as2jax.main --config="$config" --workdir="$folder" "$@"
