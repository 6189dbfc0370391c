"""What is known of the texts that published encoders were pretrained on, by the encoder's name.

An encoder that has seen a benchmark's texts may rank them better for that reason alone, so tables of
results say it. Others are said to be unknown: a folder's name proves nothing about the weights in it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_BERT = "BookCorpus, English Wikipedia"
_ROBERTA = f"{_BERT}, CC-News, OpenWebText, Stories"
_NLI = "SNLI, MultiNLI"
# Of the training that made sentence encoders of nreimers/MiniLM-L6-H384-uncased and microsoft/mpnet-base.
_ALL = (
  "Reddit, S2ORC, WikiAnswers, PAQ, Stack Exchange, MS MARCO, GOOAQ, Yahoo Answers, Code Search, COCO, "
  f"SPECTER, SearchQA, ELI5, Flickr 30k, {_NLI}, Sentence Compression, WikiHow, Altlex, Quora, "
  "Simple Wikipedia, Natural Questions, SQuAD 2.0, TriviaQA"
)
_HUB, _ARXIV = "https://huggingface.co/", "https://arxiv.org/abs/"
_GLOVE = "https://nlp.stanford.edu/projects/glove/"
# Patterns of the last part of the name, in lower case: corpora, amount, source.
PRETRAINED = {
  r"(gt-)?all-minilm-l6-v2": (
    _ALL,
    "1,170,060,424 pairs",
    _HUB + "sentence-transformers/all-MiniLM-L6-v2",
  ),
  r"all-mpnet-base-v2": (
    _ALL,
    "1,170,060,424 pairs",
    _HUB + "sentence-transformers/all-mpnet-base-v2",
  ),
  r"bert-base-uncased": (_BERT, "", _HUB + "google-bert/bert-base-uncased"),
  r"bert-large-uncased": (_BERT, "", _HUB + "google-bert/bert-large-uncased"),
  r"roberta-base": (_ROBERTA, "160 GB of text", _HUB + "FacebookAI/roberta-base"),
  r"roberta-large": (_ROBERTA, "160 GB of text", _HUB + "FacebookAI/roberta-large"),
  r"xlnet-(base|large)-cased": (
    f"{_BERT}, Giga5, ClueWeb 2012-B, Common Crawl",
    "32.89 billion tokens",
    _ARXIV + "1906.08237, section 3.1",
  ),
  r"modernbert-(base|large)": (
    "web documents, code, scientific literature",
    "2 trillion tokens",
    _ARXIV + "2412.13663, section 2.2",
  ),
  r"deberta-v3-(base|large)": (_ROBERTA, "160 GB of text", _ARXIV + "2111.09543"),
  r"bert-base-nli-mean-tokens": (f"{_BERT}, {_NLI}", "", _ARXIV + "1908.10084, section 3.1"),
  r"elmo_2x4096_512_2048cnn_2xhighway.*": (
    "1 Billion Word Benchmark",
    "",
    _ARXIV + "1802.05365, section 3.4",
  ),
  r"glove\.6b\..*": ("Wikipedia 2014, Gigaword 5", "6 billion tokens", _GLOVE),
  r"glove\.840b\..*": ("Common Crawl", "840 billion tokens", _GLOVE),
  r"crawl-300d-2m\..*": (
    "Common Crawl",
    "600 billion tokens",
    "https://fasttext.cc/docs/en/english-vectors.html",
  ),
  r"infersent1\.pkl": (_NLI, "", "https://github.com/facebookresearch/InferSent"),
}
# Of each data set, the corpora that its own texts come from.
_WIKIPEDIA = (
  "English Wikipedia, Wikipedia 2014, Simple Wikipedia, PAQ, Natural Questions, SQuAD 2.0"
)
OWN_SOURCES = {
  **dict.fromkeys(("wikiqa", "asnq", "asnq_context"), _WIKIPEDIA),
  **dict.fromkeys(("squad", "squad_44", "squad_parts", "squad_as2", "squad_44_as2"), _WIKIPEDIA),
  "yahoocqa": "Yahoo Answers",
}


def known(name: str) -> tuple[str, str, str] | None:
  """Returns the corpora that the encoder of a name has seen, their amount ("" where it is not given) and the source.

  The name is a hub name, a folder, a file or `package:…`; None where it is not known.
  """
  package = name.startswith("package:")
  parts = [part for part in re.split(r"[/:]", name.removeprefix("package:").lower()) if part]
  last = ""
  if parts:
    last = parts[0].replace("_", "-") if package else parts[-1]
  for pattern, entry in PRETRAINED.items():
    if re.fullmatch(pattern, last):
      return entry
  return None


def statements(content: Mapping[str, Any]) -> list[str]:
  """Says what the encoder of a run has seen, by the content of its `results.json`: a line a file."""
  weights, data = content.get("weights") or {}, content.get("data", {}).get("name", "")
  lines = []
  for key in ("pretrained", "weights"):
    if weights.get(key):
      lines.append(_statement(weights[key], data))
  if lines and content.get("warm_start"):
    lines.append(
      f"warm start: one of the runs was trained on {content['warm_start']['data']} before"
    )
  return lines


def _statement(name: str, data: str) -> str:
  entry = known(name)
  if entry is None:
    return f"pretraining of {name}: unknown"
  corpora, amount, source = entry
  text = f"pretraining of {name}: {amount}{' from ' if amount else ''}{corpora} ({source})"
  sources = OWN_SOURCES.get(data, "").split(", ")
  shared = [corpus for corpus in corpora.split(", ") if corpus in sources]
  return f"{text}; texts of {data} come from {', '.join(shared)}, too" if shared else text


def under_table(runs: Iterable[Iterable[str]]) -> list[str]:
  """Returns the statements of several runs, each once, in order of first appearance."""
  return list(dict.fromkeys(line for lines in runs for line in lines))
