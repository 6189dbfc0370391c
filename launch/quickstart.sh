#!/usr/bin/env bash
# From a fresh clone to a trained ranker: needs Python 3.11 or later and a package index, no data.
#   bash launch/quickstart.sh
# Makes .venv, then trains ASBERT's triplet network from a small pretrained encoder on the embedded
# sample, beside the two baselines it must beat. Run again, it shows the same without work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
make_venv
install -r requirements.txt
install --no-deps "$ENCODER"

RUNS=runs/quickstart
run() {
  printf '\n$ python -m as2jax train %s\n' "$*"
  .venv/bin/python -m as2jax train "$@" >/dev/null ||
    die "the command above failed; if it speaks of another config, remove $RUNS to start anew"
}
run wikiqa_baseline:word_overlap,sample -o "$RUNS/word-overlap"
run wikiqa_baseline:mean,sample -o "$RUNS/untrained"
run wikiqa_triplet:sample,grouped -o "$RUNS/triplet"

printf '\n'
.venv/bin/python -m as2jax compare --metrics=map "$RUNS/word-overlap=shared words" \
  "$RUNS/untrained=untrained" "$RUNS/triplet=triplet"
.venv/bin/python -m as2jax report "$RUNS/word-overlap" "$RUNS/untrained" "$RUNS/triplet" \
  -o "$RUNS/report.html" --explain=0 > /dev/null
cat <<EOT

All three in one page: $RUNS/report.html
Next, with \`source .venv/bin/activate\`:
  python -m as2jax rank $RUNS/triplet FILE.csv    # your own: columns question and candidate
  python -m as2jax train wikiqa_triplet:minilm,grouped -o runs/wikiqa
  python -m as2jax --help
EOT
