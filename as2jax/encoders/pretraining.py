"""What is known of the texts that published encoders were pretrained on, by the encoder's name.

An encoder that has seen a benchmark's texts may rank them better than others for that reason alone,
so every table of results says what its encoders have seen. An encoder that is not in `PRETRAINED`
is said to be unknown: a folder's name proves nothing about the weights in it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Pretraining(NamedTuple):
  """What an encoder was trained on.

  Attributes:
    corpora: as the source names them.
    amount: of all of them together, "" where the source does not give it.
    source: the address that says so.

  """

  corpora: tuple[str, ...]
  amount: str
  source: str


WIKIPEDIA = "English Wikipedia"
_BERT = ("BookCorpus", WIKIPEDIA)
_ROBERTA = (*_BERT, "CC-News", "OpenWebText", "Stories")
_XLNET = (*_BERT, "Giga5", "ClueWeb 2012-B", "Common Crawl")
_NLI = ("SNLI", "MultiNLI")
# Of the training that made a sentence encoder of nreimers/MiniLM-L6-H384-uncased.
_ALL = (
  "Reddit",
  "S2ORC",
  "WikiAnswers",
  "PAQ",
  "Stack Exchange",
  "MS MARCO",
  "GOOAQ",
  "Yahoo Answers",
  "Code Search",
  "COCO",
  "SPECTER",
  "SearchQA",
  "ELI5",
  "Flickr 30k",
  *_NLI,
  "Sentence Compression",
  "WikiHow",
  "Altlex",
  "Quora",
  "Simple Wikipedia",
  "Natural Questions",
  "SQuAD 2.0",
  "TriviaQA",
)
_ALL_AMOUNT = "1,170,060,424 pairs"


def _card(name: str) -> str:
  return f"https://huggingface.co/{name}"


_GLOVE = "https://nlp.stanford.edu/projects/glove/"
_SENTENCES = "sentence-transformers/"
# Patterns of the last part of the name, in lower case; the first that fits counts.
PRETRAINED = {
  r"(gt-)?all-minilm-l6-v2": Pretraining(_ALL, _ALL_AMOUNT, _card(_SENTENCES + "all-MiniLM-L6-v2")),
  r"bert-base-uncased": Pretraining(_BERT, "", _card("google-bert/bert-base-uncased")),
  r"bert-large-uncased": Pretraining(_BERT, "", _card("google-bert/bert-large-uncased")),
  r"roberta-base": Pretraining(_ROBERTA, "160 GB of text", _card("FacebookAI/roberta-base")),
  r"roberta-large": Pretraining(_ROBERTA, "160 GB of text", _card("FacebookAI/roberta-large")),
  r"xlnet-(base|large)-cased": Pretraining(
    _XLNET, "32.89 billion tokens", "https://arxiv.org/abs/1906.08237, section 3.1"
  ),
  r"modernbert-(base|large)": Pretraining(
    ("web documents", "code", "scientific literature"),
    "2 trillion tokens",
    "https://arxiv.org/abs/2412.13663, section 2.2",
  ),
  r"bert-base-nli-mean-tokens": Pretraining(
    (*_BERT, *_NLI), "", "https://arxiv.org/abs/1908.10084, section 3.1"
  ),
  r"elmo_2x4096_512_2048cnn_2xhighway.*": Pretraining(
    ("1 Billion Word Benchmark",), "", "https://arxiv.org/abs/1802.05365, section 3.4"
  ),
  r"glove\.6b\..*": Pretraining(("Wikipedia 2014", "Gigaword 5"), "6 billion tokens", _GLOVE),
  r"glove\.840b\..*": Pretraining(("Common Crawl",), "840 billion tokens", _GLOVE),
  r"crawl-300d-2m\..*": Pretraining(
    ("Common Crawl",), "600 billion tokens", "https://fasttext.cc/docs/en/english-vectors.html"
  ),
  r"infersent1\.pkl": Pretraining(_NLI, "", "https://github.com/facebookresearch/InferSent"),
}
# Of each data set, the corpora that its own texts come from.
_OF_WIKIPEDIA = (
  WIKIPEDIA,
  "Wikipedia 2014",
  "Simple Wikipedia",
  "PAQ",
  "Natural Questions",
  "SQuAD 2.0",
)
OWN_SOURCES = {
  **dict.fromkeys(("wikiqa", "asnq", "asnq_context"), _OF_WIKIPEDIA),
  **dict.fromkeys(("squad", "squad_44", "squad_parts", "squad_as2", "squad_44_as2"), _OF_WIKIPEDIA),
  "yahoocqa": ("Yahoo Answers",),
}


def known(name: str) -> Pretraining | None:
  """What the encoder of that name (a hub name, folder, file or `package:…`) has seen, if known."""
  package = name.startswith("package:")
  parts = [part for part in re.split(r"[/:]", name.removeprefix("package:").lower()) if part]
  last = (parts[0].replace("_", "-") if package else parts[-1]) if parts else ""
  return next((entry for key, entry in PRETRAINED.items() if re.fullmatch(key, last)), None)


def statements(content: Mapping[str, Any]) -> list[str]:
  """What the encoder of a run has seen, a line a file of weights; nothing for rankers of words.

  Args:
    content: of the run's `results.json`.

  """
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
  amount = f"{entry.amount} from " if entry.amount else ""
  text = f"pretraining of {name}: {amount}{', '.join(entry.corpora)} ({entry.source})"
  shared = [corpus for corpus in entry.corpora if corpus in OWN_SOURCES.get(data, ())]
  return f"{text}; texts of {data} come from {', '.join(shared)}, too" if shared else text


def under_table(runs: Iterable[Iterable[str]]) -> list[str]:
  """The statements of several runs, each once, in order of first appearance."""
  return list(dict.fromkeys(line for lines in runs for line in lines))
