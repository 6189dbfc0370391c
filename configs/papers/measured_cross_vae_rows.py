"""Our rows of Cross-VAEs, Dual-VAEs and Dual-GRUs on a pool of SQuAD's sentences."""

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import SEEDS

SYSTEMS = (
  ("Dual-GRUs", "dual-gru", "dual_gru"),
  ("Dual-VAEs", "dual-vae", "dual_vae"),
  ("Cross-VAEs", "cross-vae", "cross_vae"),
)
APART = {"model__answer_start": "apart", "model__match_on": "sample"}
SIZES = {"": "small,mlp,tuned", "the paper's sizes": "mlp,tuned", "`wide`": "small,mlp,tuned,wide"}
FOLDERS = {"": "tuned", "the paper's sizes": "paper-size", "`wide`": "wide"}


def _of_size(size: str) -> list[Measured]:
  """The three systems with `tuned`, after the first of them before training."""
  name = ", ".join(filter(None, ("`tuned`", size)))
  run = lambda words, **settings: Run.of(
    f"squad_{words}.py:squad_parts,minilm,{SIZES[size]}", **settings, **SEEDS
  )
  untrained = Measured(
    f"Cross-VAEs, {name}, before training",
    f"squad-cross-vae-{FOLDERS[size]}-untrained",
    run("cross_vae", epochs=0),
  )
  trained = [
    Measured(f"{system}, {name}", f"squad-{folder}-{FOLDERS[size]}", run(words))
    for system, folder, words in SYSTEMS
  ]
  return [untrained, *trained]


CROSS_VAES = MeasuredTable(
  "cross-vaes",
  (
    Column("dev MRR", (), "mrr", "gold", "dev"),
    Column("MRR", (), "mrr", "gold"),
    Column("R@1", (), "r@1", "gold"),
    Column("R@5", (), "r@5", "gold"),
    Column("SSE, relative", (), "sse_relative", "gold"),
  ),
  (
    *(
      Measured(
        f"{system}, old recipe",
        f"squad-{name}",
        Run.of(f"squad_{words}.py:squad_parts,minilm,small,mlp", **APART, **SEEDS),
      )
      for system, name, words in SYSTEMS
    ),
    *_of_size(""),
    *_of_size("the paper's sizes"),
    *(
      Measured(
        f"{system}, `tuned`, the paper's sizes, reconstruction as the sum over words",
        f"squad-{name}-paper-size-sum",
        Run.of(
          f"squad_{words}.py:squad_parts,minilm,mlp,tuned", **SEEDS, loss__reconstruction="sum"
        ),
      )
      for system, name, words in SYSTEMS[1:]
    ),
    *_of_size("`wide`"),
    Measured(
      "mean of their word table, untrained",
      "squad-parts-word-table",
      Run.of("squad_baseline.py:word_table,minilm,squad_parts"),
    ),
    Measured(
      "MiniLM, mean-pooled, untrained, cosine",
      "squad-parts-mean",
      Run.of("squad_baseline.py:mean,minilm,squad_parts"),
    ),
    Measured("BM25", "squad-parts-bm25", Run.of("squad_baseline.py:bm25,squad_parts")),
  ),
  base="squad-parts-bm25",
  main=1,
)
