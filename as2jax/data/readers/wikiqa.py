"""WikiQA (Yang et al. 2015), and the embedded sample in its form."""

import functools

from as2jax.data.source import Counts, Spec
from as2jax.data.user_files import WIKIQA_COLUMNS, read_published

read_wikiqa = functools.partial(read_published, columns=WIKIQA_COLUMNS)

WIKIQA = Spec(
  name="wikiqa",
  reader=read_wikiqa,
  version="1.0.0",
  files={split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("wikiqa", "", "WikiQACorpus", "wikiqa/WikiQACorpus"),
  clean="answerable",
  official="both",  # what its filtered reference files hold
  published={
    "train": {
      "all": Counts(2118, 20360, 1040),
      "answerable": Counts(873, 8672),
      "both": Counts(857, 8651),
    },
    "dev": {
      "all": Counts(296, 2733, 140),
      "answerable": Counts(126, 1130),
      "both": Counts(122, 1126),
    },
    "test": {
      "all": Counts(633, 6165, 293),
      "answerable": Counts(243, 2351),
      "both": Counts(237, 2341),
    },
  },
  url=(
    "https://download.microsoft.com/download/E/5/F/E5FCFCEE-7005-4814-853D-DAA7C66507E0/"
    "WikiQACorpus.zip"
  ),
  sha256={
    "WikiQA-train.tsv": "295757943bc4df27f09763fc73b9f63063b13a577718b17805cbc9bb436f9dbe",
    "WikiQA-dev.tsv": "023c530e742caca2a760d48bd249e13259248c11f3b880a4c1842aa259a30a54",
    "WikiQA-test.tsv": "3c3b66966cb183b71abf19510bc2302295c68dd7a25284ec9cf8b63d5b6929e3",
  },
  licence="Microsoft Research Data License Agreement, for research (in the public archive)",
  citation="Yang, Yih and Meek: WikiQA: A Challenge Dataset for Open-Domain Question Answering "
  "(EMNLP 2015)",
)

SAMPLE = Spec(
  name="sample",
  reader=read_wikiqa,
  version="1.0.0",
  files={split: (f"sample-{split}.tsv",) for split in ("train", "dev", "test")},
  folders=("data/readers/sample",),
  clean="answerable",
  published={},
  embedded=True,
  licence="Apache-2.0 (the licence of as2jax)",
  citation="written by this project",
)

SPECS = (WIKIQA, SAMPLE)
