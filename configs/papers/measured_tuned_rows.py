"""Our own tables of `tuned`: each of its changes taken back, judged on questions that are not test's."""

from collections.abc import Mapping

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

from .measured_cassie_rows import HELD, JOINT, ONE_EPOCH, PAIR, SEEDS

THIRD = {"data__holdout": 0.3, "evaluation__splits": ("heldout",)}

Changes = Mapping[str, tuple[str, dict]]  # system: (end of its name, what is taken back)


def _taken_back(
  name: str,
  column: Column,
  config: str,
  settings: dict,
  changes: Changes,
  base: str = "",
  first: tuple[Measured, ...] = (),
):
  """A table of `tuned`, which lies under `base`, and of it without each of its changes.

  The rows begin with the runs `first`.
  """
  base = base or f"tuned-{name}"
  of = {**settings, **SEEDS}
  rows = [Measured("`tuned`", base, Run.of(config, **of))]
  for system, (end, change) in changes.items():
    job = Run.of(config, **{**of, "evaluation__splits": (column.split,), **change})
    rows.append(Measured(system, f"tuned-{name}-{end}", job))
  return MeasuredTable(f"tuned-{name}", (column,), tuple(rows), base=base, first=first)


FIRST = Measured(
  "the first ranker",
  "tuned-cassie-joint-first",
  Run.of(
    "wikiqa_loct.py:minilm",
    **{**ONE_EPOCH, **PAIR, **THIRD, "evaluation__splits": ("train", "heldout", "dev")},
    seeds=(0,),
  ),
)
TUNED = (
  _taken_back(
    "cross-vaes",
    Column("dev MRR", (), "mrr", "gold", "dev"),
    "squad_cross_vae.py:squad_parts,minilm,small,mlp,tuned",
    {},
    {
      "matching by BCE": ("bce", {"loss__matching": "bce", "model__match_scale": 10.0}),
      "rate 1e-3": ("rate", {"optimizer__rate": 1e-3}),
      "reconstruction: the sum over words": ("sum", {"loss__reconstruction": "sum"}),
      "12 epochs": ("epochs", {"epochs": 12, "patience": 12}),
      "not in `tuned`: log σ² begins at −4": ("variance", {"model__log_variance_start": -4.0}),
      "not in `tuned`: a frozen word table": (
        "table",
        {"optimizer__lr_multipliers": (("^encoder/", 0.0),)},
      ),
      "not in `tuned`: α = .1, β = .001": ("weights", {"loss__alpha": 0.1, "loss__beta": 0.001}),
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
  _taken_back(
    "cassie-joint",
    HELD,
    "wikiqa_cassie.py:joint,tuned,minilm",
    {**THIRD, **JOINT, "data__ranking": f"runs/{FIRST.name}", "data__ranking_train": "shuffled"},
    {
      "marginals by frequency": ("frequency", {"model__marginals": "frequency"}),
      "the head reads h alone": ("h", {"model__head_reads": ("h",)}),
      "roles begin at random": ("roles", {"model__segments_start": "normal"}),
      "no self term in the graph": ("self", {"model__self_term": "none"}),
      "one rate for all": ("rate", {"optimizer__lr_multipliers": ()}),
      "candidates of training in their ranker's order": ("order", {"data__ranking_train": ""}),
    },
    first=(FIRST,),
  ),
)
