#!/usr/bin/env bash
# From a fresh clone to a trained ranker: needs Python 3.11 or 3.12 and a package index, no data.
#   bash launch/quickstart.sh
# Makes .venv, then trains ASBERT's triplet network from a small pretrained encoder on the embedded
# sample, beside the two baselines it must beat. Run again, it shows the same without work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/environment.sh
source launch/environment.sh
make_venv
install requirements.txt
install_alone "$ENCODER"

RUNS=runs/quickstart
run() {
  printf '\n$ python -m as2jax.main %s\n' "$*"
  .venv/bin/python -m as2jax.main "$@" >/dev/null ||
    die "the command above failed; if it speaks of another config, remove $RUNS to start anew"
}
run --config=configs/wikiqa_baseline.py:word_overlap,sample --workdir="$RUNS/word-overlap"
run --config=configs/wikiqa_baseline.py:mean,sample --workdir="$RUNS/untrained"
run --config=configs/wikiqa_triplet.py:sample,grouped --workdir="$RUNS/triplet"

printf '\n'
.venv/bin/python -m as2jax.experiments.compare_runs "$RUNS/word-overlap" "$RUNS/untrained" "$RUNS/triplet"
cat <<EOT

Written to $RUNS/triplet: results.json, metrics.jsonl, tensorboard/, eval/test/run.trec.
Next, with \`source .venv/bin/activate\`:
  rank your own candidates (TSV, columns question and candidate):
    python -m as2jax.main --config=configs/rerun.py:$RUNS/triplet/config.json \\
      --workdir=$RUNS/triplet --config.mode=predict --config.predict.input=FILE.tsv
  train on WikiQA (fetched, or from the folder in AS2JAX_DATA):
    python -m as2jax.main --config=configs/wikiqa_triplet.py:minilm,grouped --workdir=runs/wikiqa
  run the tests:
    bash launch/test.sh
EOT
