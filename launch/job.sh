#!/usr/bin/env bash
# On every host of a node: one run under the node's lock, its log kept beside its results.
#   bash launch/job.sh CONFIG DIR [OPTION...]
# Every minute the log goes to DIR/logs/HOST.txt, and a run whose sweep is cancelled (the object
# `cancelled` beside DIR) is told to end. The exit status is that of as2jax.main.
set -uo pipefail
trap '' HUP PIPE # the connection that started this may break; the run goes on
cd "$(dirname "${BASH_SOURCE[0]}")/.."
config=$1 folder=$2
shift 2
mkdir -p "$HOME/logs"
log=$HOME/logs/$(basename "$folder").log
exec 9>"$HOME/as2jax.lock"
flock 9

cancelled() { gcloud storage ls "$(dirname "$folder")/cancelled" >/dev/null 2>&1; }
if cancelled; then
  echo "the sweep is cancelled" && exit 1
fi
keep() { gcloud storage cp "$log" "$folder/logs/$(hostname).txt" --quiet >/dev/null 2>&1; }
AS2JAX_DATA=$HOME/data AS2JAX_CACHE=$HOME/cache .venv/bin/python -m as2jax.main \
  --config="$config" --workdir="$folder" "$@" >>"$log" 2>&1 &
run=$!
while sleep "${LOOK:-60}" && kill -0 $run 2>/dev/null; do # also where this script was killed
  keep
  if cancelled; then kill -TERM $run 2>/dev/null; fi
done 9>&- >/dev/null 2>&1 &
keeper=$!
wait $run
status=$?
kill $keeper 2>/dev/null
for _ in 1 2 3 4 5; do
  keep && break
  sleep "${LOOK:-5}"
done
[ $status = 0 ] || tail -n 5 "$log"
exit $status
