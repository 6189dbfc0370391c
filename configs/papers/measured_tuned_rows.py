"""Our own tables of `tuned`: each of its changes taken back, judged on questions that are not test's."""

from collections.abc import Mapping

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import HELD, ONE_EPOCH, SEEDS

THIRD = {"data__holdout": 0.3, "evaluation__splits": ("heldout",)}

Changes = Mapping[str, tuple[str, dict]]  # system: (end of its name, what is taken back)


def _taken_back(
  name: str, column: Column, config: str, settings: dict, changes: Changes, base: str = ""
):
  """A table of `tuned`, which lies under `base`, and of it without each of its changes."""
  base = base or f"tuned-{name}"
  of = {**settings, **SEEDS}
  rows = [Measured("`tuned`", base, Run.of(config, **of))]
  for system, (end, change) in changes.items():
    job = Run.of(config, **{**of, "evaluation__splits": (column.split,), **change})
    rows.append(Measured(system, f"tuned-{name}-{end}", job))
  return MeasuredTable(f"tuned-{name}", (column,), tuple(rows), base=base)


TUNED = (
  _taken_back(
    "m2snet",
    HELD,
    "trecqa_m2snet.py:4,tuned",
    {
      "data__holdout": 0.2,
      "evaluation__splits": ("heldout",),
      "encoder__vectors": "trec50.txt",
      "data__train_fraction": 0.1,
    },
    {
      "overlap as counts": ("counts", {"model__overlap": "counts"}),
      "overlap by length": ("by-length", {"model__overlap": "by_length"}),
      "overlap not standardised": ("plain", {"model__standardise_overlap": False}),
    },
  ),
  _taken_back(
    "cross-vaes",
    Column("dev MRR", (), "mrr", "gold", "dev"),
    "squad_cross_vae.py:squad_parts,minilm,small,mlp,tuned",
    {},
    {
      "matching by BCE": ("bce", {"loss__matching": "bce", "model__match_scale": 10.0}),
      "log σ² begins at 0": ("variance", {"model__log_variance_start": 0.0}),
      "rate 1e-3": ("rate", {"optimizer__rate": 1e-3}),
      "word table at the rate of all": ("table", {"optimizer__lr_multipliers": ()}),
      "reconstruction: the sum over words": ("sum", {"loss__reconstruction": "sum"}),
      "α = β = .01": ("weights", {"loss__alpha": 0.01, "loss__beta": 0.01}),
      "the start of log σ², the table's rate and the weights": (
        "three",
        {
          "model__log_variance_start": 0.0,
          "optimizer__lr_multipliers": (),
          "loss__alpha": 0.01,
          "loss__beta": 0.01,
        },
      ),
      "12 epochs": ("epochs", {"epochs": 12, "patience": 12}),
    },
    base="squad-cross-vae-tuned",
  ),
  _taken_back(
    "cassie",
    HELD,
    "wikiqa_cassie.py:tuned,minilm",
    {**THIRD, **ONE_EPOCH},
    {
      "marginals by frequency": ("frequency", {"model__marginals": "frequency"}),
      "the head reads h alone": ("h", {"model__head_reads": ("h",)}),
      "roles begin at random": ("roles", {"model__segments_start": "normal"}),
      "one rate for all": ("rate", {"optimizer__lr_multipliers": ()}),
    },
  ),
)
