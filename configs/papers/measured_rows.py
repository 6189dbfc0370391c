"""Our own tables: rows, the runs behind them, and what the old wheel gave.

`as2jax lab measured` makes the READMEs' tables from these and from
`results/`, where each run that was collected lies under its row's name.
"""

from as2jax.experiments.papers.measured import Measured, MeasuredTable, Summary
from as2jax.experiments.papers.rows import Column, Run

SEEDS = {"seeds": (0, 1, 2)}
MEAN = "MiniLM, mean-pooled, untrained, cosine"
TEST = tuple(Column(heading, (), metric) for heading, metric in (("MAP", "map"), ("MRR", "mrr")))
P1 = Column("P@1", (), "p@1")


def _run(config, **settings):
  """A job; keys have two underscores for a dot."""
  return Run(f"configs/{config}", {key.replace("__", "."): v for key, v in settings.items()})


def _trained(config, **settings):
  return _run(config, **settings, **SEEDS)


WIKIQA = MeasuredTable(
  "wikiqa",
  (Column("dev MAP", (), "map", split="dev"), *TEST, P1),
  (
    Measured(
      "word overlap",
      "wikiqa-word-overlap",
      _run("wikiqa_baseline.py:word_overlap"),
      (".611", ".617 ± .041", ".624", ".460"),
    ),
    Measured(
      "IDF overlap",
      "wikiqa-idf-overlap",
      _run("wikiqa_baseline.py:idf_overlap"),
      (".617", ".618 ± .043", ".624", ".453"),
    ),
    Measured(
      "BM25",
      "wikiqa-bm25",
      _run("wikiqa_baseline.py:bm25"),
      (".570", ".601 ± .045", ".610", ".439"),
    ),
    Measured(
      MEAN,
      "wikiqa-mean",
      _run("wikiqa_baseline.py:mean,minilm"),
      (".697", ".722 ± .041", ".736", ".593"),
    ),
    Measured(
      "triplet, paper's batches, 1 epoch",
      "wikiqa-triplet",
      _trained("wikiqa_triplet.py:minilm", epochs=1),
      (".795", ".837 ± .034", ".849", ".753"),
    ),
    Measured(
      "triplet, grouped, 3 epochs",
      "wikiqa-triplet-grouped",
      _trained("wikiqa_triplet.py:grouped,minilm", epochs=3),
      (".804", ".860 ± .033", ".873", ".794"),
    ),
    Measured(
      "cross-encoder, 1 epoch, answerable questions",
      "wikiqa-crossencoder",
      _trained(
        "wikiqa_crossencoder.py:minilm", epochs=1, data__train_filter="answerable", data__rules=()
      ),
      (".754", ".698 ± .043", ".712", ".572"),
    ),
    Measured(
      "*ASBERT's paper, Triplet-BERT (BERT-base)*", before=("*.830*", "*.795*", "*.804*", "")
    ),
  ),
  base="wikiqa-mean",
  main=1,
)
TRECQA = MeasuredTable(
  "trecqa",
  (*TEST, P1),
  (
    Measured(
      "BM25", "trecqa-bm25", _run("trecqa_baseline.py:bm25"), (".694 ± .068", ".786", ".662")
    ),
    Measured(
      MEAN, "trecqa-mean", _run("trecqa_baseline.py:mean,minilm"), (".761 ± .060", ".834", ".706")
    ),
    Measured(
      "triplet, grouped, 1 epoch",
      "trecqa-triplet",
      _trained("trecqa_triplet.py:minilm,grouped", epochs=1),
      (".841 ± .046", ".917", ".838"),
    ),
    Measured(
      "cross-encoder, 3 epochs",
      "trecqa-crossencoder",
      _trained("trecqa_crossencoder.py:minilm", data__name="trecqa"),
      (".776 ± .057", ".852", ".735"),
    ),
  ),
  base="trecqa-mean",
)
DEVEL = {"data__name": "semeval2015_devel"}
SEMEVAL = MeasuredTable(
  "semeval2015",
  (*TEST, P1),
  (
    Measured(
      "BM25",
      "semeval-bm25",
      _run("semeval_baseline.py:bm25", **DEVEL),
      (".786 ± .028", ".811", ".678"),
    ),
    Measured(
      MEAN,
      "semeval-mean",
      _run("semeval_baseline.py:mean,minilm", **DEVEL),
      (".827 ± .025", ".871", ".773"),
    ),
    Measured(
      "triplet, grouped, 1 epoch",
      "semeval-triplet",
      _trained("semeval_triplet.py:minilm,grouped", **DEVEL, epochs=1),
      (".837 ± .025", ".882", ".794"),
    ),
    Measured(
      "cross-encoder, 3 epochs",
      "semeval-crossencoder",
      _trained("semeval_crossencoder.py:minilm", **DEVEL),
      (".886 ± .023", ".914", ".853"),
    ),
  ),
  base="semeval-mean",
)


def _cete(data, encoder, mean):
  return MeasuredTable(
    f"cete-{data}",
    TEST[:1],
    (
      Measured(
        "the mean of the vectors",
        f"{data}-cete-mean",
        _run(f"{data}_cete.py:minilm,no_encoder", **SEEDS),
        (mean,),
      ),
      Measured("CETE's encoder", f"{data}-cete", _trained(f"{data}_cete.py:minilm"), (encoder,)),
    ),
    base=f"{data}-cete-mean",
  )


BOTH = tuple(
  Column(heading, (), metric, split="dev+test")
  for heading, metric in (("P@1", "p@1"), ("MAP", "map"), ("MRR", "mrr"))
)
HELD = Column("held out MAP", (), "map", split="heldout")
ONE_EPOCH = {"data__train_filter": "answerable", "epochs": 1, "optimizer__rate": 5e-5}
PAIR = {"model__template": "pair", "model__segments": "none"}
HELD_OUT = {"data__holdout": 0.1, "evaluation__splits": ("heldout", "dev+test")}
TRANSFER = Measured(
  "first stage",
  "squad-transfer",
  _trained(
    "asnq_tanda.py:minilm",
    data__name="asnq_files",
    data__train="train.tsv",
    data__dev="dev-172.tsv",
    data__train_fraction=0.1,
    epochs=1,
  ),
)
FROM = {"warm_start__run": "runs/squad-transfer"}  # each seed begins with its own first stage
CASSIE = MeasuredTable(
  "cassie",
  (HELD, *BOTH),
  (
    Measured(
      "plain cross-encoder",
      "cassie-plain",
      _run("wikiqa_loct.py:minilm", **ONE_EPOCH, **PAIR, **SEEDS),
      (".620 (.022)", ".602 (.007)", ".714 (.008)", ".727 (.009)"),
    ),
    Measured(
      "LOCT",
      "cassie-loct",
      _trained("wikiqa_loct.py:minilm", **ONE_EPOCH),
      (".596 (.006)", ".583 (.010)", ".692 (.014)", ".705 (.012)"),
    ),
    Measured(
      "CASSIE",
      "cassie",
      _trained("wikiqa_cassie.py:minilm", **ONE_EPOCH),
      (".584 (.007)", ".564 (.019)", ".678 (.013)", ".689 (.013)"),
    ),
    Measured(
      "plain, transferred from SQuAD",
      "cassie-plain-transferred",
      _trained("wikiqa_loct.py:minilm", **ONE_EPOCH, **PAIR, **FROM, warm_start__scope="all"),
      (".671 (.006)", ".638 (.010)", ".754 (.004)", ".768 (.005)"),
    ),
    Measured(
      "CASSIE, transferred from SQuAD",
      "cassie-transferred",
      _trained("wikiqa_cassie.py:minilm", **ONE_EPOCH, **FROM, warm_start__scope="encoder"),
      (".633", ".610", ".731", ".742"),
    ),
    Measured(
      "BM25",
      "cassie-bm25",
      _run("wikiqa_baseline.py:bm25", **HELD_OUT),
      ("", ".412", ".588", ".595"),
    ),
    Measured(
      "IDF overlap",
      "cassie-idf-overlap",
      _run("wikiqa_baseline.py:idf_overlap", **HELD_OUT),
      ("", ".452", ".618", ".623"),
    ),
    Measured("*plain, paper (RoBERTa-base)*", before=("", "*.632*", "*.750*", "")),
    Measured("*LOCT, paper*", before=("", "*.681*", "*.790*", "")),
    Measured("*CASSIE, paper*", before=("", "*.742*", "*.833*", "")),
    Measured("*plain, transferred from ASNQ, paper*", before=("", "*.787*", "*.867*", "")),
    Measured("*CASSIE, transferred from ASNQ, paper*", before=("", "*.838*", "*.893*", "")),
  ),
  base="cassie-plain",
  main=2,
  first=(TRANSFER,),
)
THIRD = {**ONE_EPOCH, "data__train_fraction": 0.33, **SEEDS}
PARTS = {  # system: (name, change, P@1, MAP) with seed 0
  "all parts": ("all", {}, ".504", ".644"),
  "no transport: the mean of all words": (
    "no-transport",
    {"model__alignment": "mean"},
    ".510",
    ".651",
  ),
  "no graph": ("no-graph", {"model__graph_layers": 0}, ".501", ".636"),
  "no mutual information": ("no-mi", {"loss__gamma": 0.0}, ".493", ".641"),
  "uniform marginals": ("uniform", {"model__marginals": "uniform"}, ".510", ".652"),
  "stop words aligned, too": (
    "stop-words",
    {"model__stop_words": False, "model__question_words": 32, "model__sentence_words": 128},
    ".488",
    ".635",
  ),
  "no embeddings of roles": ("no-roles", {"model__segments": "none"}, ".301", ".498"),
  "no context": ("no-context", {"model__template": "pair"}, ".431", ".590"),
}
CASSIE_PARTS = MeasuredTable(
  "cassie-parts",
  BOTH[:2],
  tuple(
    Measured(
      system,
      f"cassie-parts-{name}",
      _run("wikiqa_cassie.py:minilm", **{**THIRD, **change}),
      tuple(figures),
    )
    for system, (name, change, *figures) in PARTS.items()
  ),
  base="cassie-parts-all",
  main=1,
)
FIRST = Measured(
  "plain cross-encoder, the first ranker",
  "cassie-joint-first",
  _run(
    "wikiqa_loct.py:minilm",
    **ONE_EPOCH,
    **PAIR,
    seeds=(0,),
    evaluation__splits=("train", "heldout", "dev", "test", "dev+test"),
  ),
  (".604", ".720"),
)
JOINT = {**ONE_EPOCH, "epochs": 3, "data__ranking": "runs/cassie-joint-first", "seeds": (0,)}
CASSIE_JOINT = MeasuredTable(
  "cassie-joint",
  BOTH[:2],
  (
    FIRST,
    Measured(
      "with the two graph convolutions that the paper prints",
      "cassie-joint",
      _run("wikiqa_cassie.py:joint,minilm", **JOINT),
      (".282", ".517"),
    ),
    Measured(
      "without (`model.graph_layers=0`)",
      "cassie-joint-no-graph",
      _run("wikiqa_cassie.py:joint,minilm", **JOINT, model__graph_layers=0),
      (".602", ".716"),
    ),
  ),
  base="cassie-joint-first",
  main=1,
)
M2SNET = MeasuredTable(
  "m2snet",
  (Column("dev MAP", (), "map", split="dev"), *TEST),
  (
    *(
      Measured(
        f"`{name}`",
        f"m2snet-{name}",
        _trained(
          f"trecqa_m2snet.py:{name}", encoder__vectors="trec50.txt", data__train_fraction=0.1
        ),
        tuple(figures),
      )
      for name, *figures in (
        ("euc", ".701 (.005)", ".604 (.017)", ".712 (.037)"),
        ("cos", ".644 (.007)", ".593 (.028)", ".696 (.010)"),
        ("shallow", ".626 (.002)", ".569 (.018)", ".662 (.020)"),
        ("2", ".631 (.024)", ".573 (.020)", ".665 (.043)"),
        ("4", ".623 (.017)", ".602 (.017)", ".695 (.020)"),
      )
    ),
    *(
      Measured(
        system,
        f"trecqa-all-{name}",
        _run(f"trecqa_baseline.py:{words}", data__name="trecqa_all"),
        tuple(figures),
      )
      for system, name, words, *figures in (
        ("word overlap", "word-overlap", "word_overlap", "", ".642", ".719"),
        ("IDF overlap", "idf-overlap", "idf_overlap", "", ".705", ".796"),
        ("BM25", "bm25", "bm25", "", ".694", ".786"),
      )
    ),
    *(
      Measured(f"*`{name}`, paper (all of TRAIN-ALL, GloVe)*", before=("", f"*{a}*", f"*{b}*"))
      for name, a, b in (
        ("euc", ".727", ".822"),
        ("cos", ".741", ".832"),
        ("shallow", ".748", ".838"),
        ("2", ".770", ".864"),
        ("4", ".779", ".849"),
      )
    ),
  ),
  base="trecqa-all-idf-overlap",
  main=1,
)
GOLD = tuple(Column(m.upper(), (), m, "gold") for m in ("mrr", "r@1", "r@5"))
SQUAD = MeasuredTable(
  "squad",
  GOLD,
  (
    Measured(
      "BM25", "squad-bm25", _run("squad_baseline.py:bm25,squad_44"), (".688", ".610", ".783")
    ),
    Measured(
      "MiniLM, mean of its vectors",
      "squad-mean",
      _run("squad_baseline.py:mean,minilm,squad_44"),
      (".676", ".577", ".797"),
    ),
  ),
  base="squad-bm25",
)
CROSS_VAES = MeasuredTable(
  "cross-vaes",
  (
    Column("dev MRR", (), "mrr", "gold", "dev"),
    *GOLD,
    Column("SSE, relative", (), "sse_relative", "gold"),
  ),
  (
    *(
      Measured(
        system,
        f"squad-{name}",
        _trained(f"squad_{words}.py:squad_parts,minilm,small,mlp"),
        tuple(figures),
      )
      for system, name, words, *figures in (
        (
          "Dual-GRUs",
          "dual-gru",
          "dual_gru",
          ".376",
          ".250 (.009)",
          ".161 (.011)",
          ".337 (.007)",
          ".447 (.005)",
        ),
        (
          "Dual-VAEs",
          "dual-vae",
          "dual_vae",
          ".320",
          ".202 (.005)",
          ".124 (.005)",
          ".276 (.009)",
          ".417 (.006)",
        ),
        (
          "Cross-VAEs",
          "cross-vae",
          "cross_vae",
          ".272",
          ".168 (.004)",
          ".096 (.004)",
          ".232 (.004)",
          ".364 (.005)",
        ),
      )
    ),
    Measured(
      MEAN,
      "squad-parts-mean",
      _run("squad_baseline.py:mean,minilm,squad_parts"),
      (".741", ".674", ".577", ".789", ".443"),
    ),
    Measured(
      "BM25",
      "squad-parts-bm25",
      _run("squad_baseline.py:bm25,squad_parts"),
      (".788", ".697", ".619", ".793", ""),
    ),
  ),
  base="squad-parts-bm25",
  main=1,
)
TABLES = (
  WIKIQA,
  TRECQA,
  SEMEVAL,
  _cete("wikiqa", ".685", ".714"),
  _cete("trecqa", ".764", ".780"),
  CASSIE,
  CASSIE_PARTS,
  CASSIE_JOINT,
  M2SNET,
  SQUAD,
  CROSS_VAES,
)
SUMMARY = (
  Summary("WikiQA clean test, MAP", "wikiqa", 1, "wikiqa-bm25"),
  Summary("", "wikiqa", 1, "wikiqa-mean"),
  Summary("", "wikiqa", 1, "wikiqa-triplet-grouped", ".795 (ASBERT, BERT-base)"),
  Summary("", "wikiqa", 1, "wikiqa-crossencoder"),
  Summary("WikiQA clean dev + test, MAP", "cassie", 2, "cassie", ".833 (RoBERTa-base)"),
  Summary("", "cassie", 2, "cassie-loct", ".790 (RoBERTa-base)"),
  Summary("", "cassie", 2, "cassie-plain", ".750 (RoBERTa-base)"),
  Summary("TrecQA clean test, MAP", "trecqa", 0, "trecqa-triplet"),
  Summary("", "m2snet", 1, "m2snet-4", ".779 (GloVe, all data)", "M²S-Net `4`"),
  Summary("", "m2snet", 1, "trecqa-all-idf-overlap"),
  Summary("SQuAD sentence retrieval, MRR", "cross-vaes", 1, "squad-cross-vae"),
  Summary("", "cross-vaes", 1, "squad-parts-bm25"),
)
