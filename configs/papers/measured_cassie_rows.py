"""Our own tables of CASSIE: against LOCT and a plain cross-encoder, without its parts, and joint."""

from as2jax.experiments.papers.measured import Measured, MeasuredTable
from as2jax.experiments.papers.rows import Column, Run

SEEDS = {"seeds": (0, 1, 2)}
BOTH = tuple(
  Column(heading, (), metric, split="dev+test")
  for heading, metric in (("P@1", "p@1"), ("MAP", "map"), ("MRR", "mrr"))
)
HELD = Column("held out MAP", (), "map", split="heldout")
FASTER = (("^(?!encoder/)", 10.0),)
ONE_EPOCH = {"data__train_filter": "answerable", "epochs": 1, "optimizer__rate": 5e-5}
PAIR = {"model__template": "pair", "model__segments": "none"}
HELD_OUT = {"data__holdout": 0.1, "evaluation__splits": ("heldout", "dev+test")}
SQUAD_FILES = {"data__name": "asnq_files", "data__train": "train.tsv", "data__dev": "dev-172.tsv"}
TRANSFER = Measured(
  "first stage",
  "squad-transfer-one",
  Run.of("asnq_tanda.py:minilm", **SQUAD_FILES, data__train_fraction=0.1, epochs=1),
)
IN_CONTEXT = Measured(
  "first stage in context",
  "squad-transfer-context-fast",
  Run.of("asnq_tanda.py:context,minilm", **SQUAD_FILES, data__train_fraction=0.1, epochs=1),
)
# All seeds begin with the one first stage.
FROM = {"warm_start__run": "runs/squad-transfer-one", "warm_start__seed": 0}
CASSIE = MeasuredTable(
  "cassie",
  (HELD, *BOTH),
  (
    Measured(
      "plain cross-encoder",
      "cassie-plain",
      Run.of("wikiqa_loct.py:minilm", **ONE_EPOCH, **PAIR, **SEEDS),
    ),
    Measured("LOCT", "cassie-loct", Run.of("wikiqa_loct.py:minilm", **ONE_EPOCH, **SEEDS)),
    Measured("CASSIE", "cassie", Run.of("wikiqa_cassie.py:minilm", **ONE_EPOCH, **SEEDS)),
    Measured(
      "plain, transferred from SQuAD",
      "cassie-plain-transferred",
      Run.of(
        "wikiqa_loct.py:minilm", **ONE_EPOCH, **PAIR, **FROM, warm_start__scope="all", **SEEDS
      ),
    ),
    Measured(
      "plain cross-encoder, head × 10",
      "cassie-plain-tuned",
      Run.of(
        "wikiqa_loct.py:minilm", **ONE_EPOCH, **PAIR, optimizer__lr_multipliers=FASTER, **SEEDS
      ),
    ),
    Measured(
      "LOCT, head and roles × 10",
      "cassie-loct-tuned",
      Run.of("wikiqa_loct.py:minilm", **ONE_EPOCH, optimizer__lr_multipliers=FASTER, **SEEDS),
    ),
    Measured(
      "CASSIE, printed, new layers × 10",
      "cassie-faster",
      Run.of("wikiqa_cassie.py:minilm", **ONE_EPOCH, optimizer__lr_multipliers=FASTER, **SEEDS),
    ),
    Measured(
      "CASSIE, `tuned`",
      "cassie-tuned",
      Run.of("wikiqa_cassie.py:tuned,minilm", data__train_filter="answerable", epochs=1, **SEEDS),
    ),
    Measured(
      "CASSIE, `tuned`, begun as the transferred ranker",
      "cassie-tuned-transferred",
      Run.of(
        "wikiqa_cassie.py:tuned,minilm",
        data__train_filter="answerable",
        epochs=1,
        model__ranker_head="pooled",
        optimizer__lr_multipliers=(("^(?!encoder/|ranker/)", 10.0),),
        **FROM,
        warm_start__scope="matching",
        **SEEDS,
      ),
    ),
    Measured(
      "CASSIE, `tuned`, begun as a ranker that read context",
      "cassie-tuned-in-context-fast",
      Run.of(
        "wikiqa_cassie.py:tuned,minilm",
        data__train_filter="answerable",
        epochs=1,
        model__ranker_head="pooled",
        optimizer__lr_multipliers=(("^(?!encoder/|ranker/|segment_embeddings/)", 10.0),),
        warm_start__run="runs/squad-transfer-context-fast",
        warm_start__seed=0,
        warm_start__scope="matching",
        **SEEDS,
      ),
    ),
    Measured(
      "CASSIE, transferred from SQuAD",
      "cassie-transferred",
      Run.of("wikiqa_cassie.py:minilm", **ONE_EPOCH, **FROM, warm_start__scope="encoder", **SEEDS),
    ),
    Measured(
      "MiniLM, mean-pooled, untrained, cosine",
      "cassie-mean",
      Run.of("wikiqa_baseline.py:mean,minilm", **HELD_OUT),
    ),
    Measured("BM25", "cassie-bm25", Run.of("wikiqa_baseline.py:bm25", **HELD_OUT)),
    Measured(
      "IDF overlap", "cassie-idf-overlap", Run.of("wikiqa_baseline.py:idf_overlap", **HELD_OUT)
    ),
    Measured("*plain, paper (RoBERTa-base)*", published=("", "*.632*", "*.750*", "")),
    Measured("*LOCT, paper*", published=("", "*.681*", "*.790*", "")),
    Measured("*CASSIE, paper*", published=("", "*.742*", "*.833*", "")),
    Measured("*plain, transferred from ASNQ, paper*", published=("", "*.787*", "*.867*", "")),
    Measured("*CASSIE, transferred from ASNQ, paper*", published=("", "*.838*", "*.893*", "")),
  ),
  base="cassie-plain",
  main=2,
  first=(TRANSFER, IN_CONTEXT),
)


def _longer(name: str, epochs: int) -> MeasuredTable:
  """The same comparison with more epochs, and with new layers × 10 where not said otherwise."""
  of = {**ONE_EPOCH, "epochs": epochs, **SEEDS}
  faster = {"optimizer__lr_multipliers": FASTER}
  plain = Run.of("wikiqa_loct.py:minilm", **of, **PAIR, **faster)
  loct = Run.of("wikiqa_loct.py:minilm", **of, **faster)
  printed = Run.of("wikiqa_cassie.py:minilm", **of)
  tuned = Run.of("wikiqa_cassie.py:tuned,minilm", **of)
  rows = (
    Measured("plain cross-encoder, head × 10", f"cassie-plain-{epochs}", plain),
    Measured("LOCT, head and roles × 10", f"cassie-loct-{epochs}", loct),
    Measured("CASSIE, printed, one rate", f"cassie-printed-{epochs}", printed),
    Measured("CASSIE, `tuned`", f"cassie-tuned-{epochs}", tuned),
  )
  return MeasuredTable(name, (HELD, *BOTH), rows, base=f"cassie-plain-{epochs}", main=2)


CASSIE_LONGER = (_longer("cassie-three-epochs", 3), _longer("cassie-ten-epochs", 10))
THIRD = {**ONE_EPOCH, "data__train_fraction": 0.33, **SEEDS}
PARTS = {  # system: (name, change)
  "all parts": ("all", {}),
  "no transport: the mean of all words": ("no-transport", {"model__alignment": "mean"}),
  "no graph": ("no-graph", {"model__graph_layers": 0}),
  "no mutual information": ("no-mi", {"loss__gamma": 0.0}),
  "uniform marginals": ("uniform", {"model__marginals": "uniform"}),
  "stop words aligned, too": (
    "stop-words",
    {"model__stop_words": False, "model__question_words": 32, "model__sentence_words": 128},
  ),
  "no embeddings of roles": ("no-roles", {"model__segments": "none"}),
  "no context": ("no-context", {"model__template": "pair"}),
}
CASSIE_PARTS = MeasuredTable(
  "cassie-parts",
  BOTH[:2],
  tuple(
    Measured(
      system, f"cassie-parts-{name}", Run.of("wikiqa_cassie.py:minilm", **{**THIRD, **change})
    )
    for system, (name, change) in PARTS.items()
  ),
  base="cassie-parts-all",
  main=1,
)
FIRST = Measured(
  "plain cross-encoder, the first ranker",
  "cassie-joint-first",
  Run.of(
    "wikiqa_loct.py:minilm",
    **ONE_EPOCH,
    **PAIR,
    seeds=(0,),
    evaluation__splits=("train", "heldout", "dev", "test", "dev+test"),
  ),
)
JOINT = {**ONE_EPOCH, "epochs": 3, "data__ranking": "runs/cassie-joint-first", "seeds": (0,)}
CASSIE_JOINT = MeasuredTable(
  "cassie-joint",
  BOTH[:2],
  (
    FIRST,
    Measured(
      "old recipe: with the two graph convolutions that the paper prints",
      "cassie-joint",
      Run.of("wikiqa_cassie.py:joint,minilm", **JOINT),
    ),
    Measured(
      "old recipe: without (`model.graph_layers=0`)",
      "cassie-joint-no-graph",
      Run.of("wikiqa_cassie.py:joint,minilm", **JOINT, model__graph_layers=0),
    ),
    Measured(
      "`tuned`",
      "cassie-joint-tuned",
      Run.of(
        "wikiqa_cassie.py:joint,tuned,minilm",
        data__train_filter="answerable",
        epochs=3,
        data__ranking="runs/cassie-joint-first",
        data__ranking_train="shuffled",
        **SEEDS,
      ),
    ),
  ),
  base="cassie-joint-first",
  main=1,
)
