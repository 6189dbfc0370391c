"""Converts the vocabulary files of a pretrained encoder to a `tokenizers.Tokenizer`.

`tokenizer.json` is read by `tokenizers` alone. What `tokenizer_config.json` beside it states of case,
accents, Chinese characters, prefix space and token types counts, as in the classes of `transformers`.
Older files are converted by `transformers`, which is imported only then (it takes seconds). What its
version 5.23 does not do, and is done here:

- `vocab.txt` without `tokenizer_config.json`: a vocabulary with upper-case letters is taken as cased.
- A special token that the vocabulary lacks would be appended with a new id, which no row of the
  embedding table belongs to. It is refused, or left out where the encoder does not need it.
- `spiece.model`: the converter makes the user-defined pieces ("-", ".", "(" …) split the text, and
  `XLNetTokenizer` keeps the scores of pieces such as "1990,": 783 of 2,000 sentences of WikiQA differ
  from sentencepiece. Here the unigram model has these pieces: no sentence differs.
"""

import json
import pathlib
import re
import tempfile
import types
from typing import Any

from etils import epath

from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object, refuse_others

FILES = "tokenizer.json, vocab.txt, vocab.json and merges.txt, spiece.model, or spm.model"
_NAMES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "spm.model")
_SETTINGS = "tokenizer_config.json"
_BESIDE = (_SETTINGS, "special_tokens_map.json", "added_tokens.json")
# (part of `tokenizer.json`, its type) -> key of `tokenizer_config.json` -> the key that it sets there.
_STATED = {
  ("normalizer", "BertNormalizer"): {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
  },
  ("pre_tokenizer", "ByteLevel"): {"add_prefix_space": "add_prefix_space"},
  ("post_processor", "RobertaProcessing"): {"add_prefix_space": "add_prefix_space"},
}
# Classes of transformers that take `tokenizer.json` as it is.
_GENERAL = ("PreTrainedTokenizerFast", "TokenizersBackend")


def file_of(folder: epath.Path) -> str:
  """Return the name of the file in `folder` that says which id an entry has, "" without one.
  Raises InputError for one that is no file but a directory, a pipe or a device.
  """
  for name in (*_NAMES, "merges.txt", *_BESIDE):
    refuse_others(folder / name)
  for name in _NAMES:
    if (folder / name).exists() and (name != "vocab.json" or (folder / "merges.txt").exists()):
      return name
  return ""


def load_backend(folder: epath.Path) -> Any:
  """Build the `tokenizers.Tokenizer` of the files in `folder`; InputError where none can be read."""
  from tokenizers import Tokenizer

  file = file_of(folder)
  if not file:
    raise InputError(f"{folder}: no tokeniser here; put {FILES} into it")
  try:
    settings = {}
    if (folder / _SETTINGS).exists():
      settings = read_object(folder / _SETTINGS, "get the file again")
    text, side = "", settings.get("truncation_side")
    if file == "tokenizer.json":
      text = (folder / file).read_text(encoding="utf-8")
      backend = Tokenizer.from_str(text)
      side = side or (backend.truncation or {}).get("direction")
    if side not in (None, "", "right"):
      raise InputError(
        f"{folder}: truncation_side is {side!r}, but long texts are cut at their end here; set it to "
        f"'right' in {_SETTINGS} to accept that"
      )
    if text:
      return _as_stated(backend, text, settings)
    with tempfile.TemporaryDirectory() as copy:  # transformers reads local files alone
      for name in (file, "merges.txt", *_BESIDE):
        if (folder / name).exists():
          pathlib.Path(copy, name).write_bytes((folder / name).read_bytes())
      convert = {"vocab.txt": _wordpiece, "vocab.json": _byte_pairs, "spiece.model": _unigram}
      convert["spm.model"] = _deberta
      backend = convert[file](pathlib.Path(copy), settings, folder)
    return _as_stated(backend, backend.to_str(), settings)
  except InputError:
    raise
  except Exception as error:  # the libraries raise errors of many kinds on what they cannot parse
    name = "vocab.json and merges.txt" if file == "vocab.json" else file
    raise InputError(
      f"{folder}: {name} is not a tokeniser ({error}); get the file again"
    ) from error


def ends_as_declared(folder: epath.Path, backend: Any, largest: int) -> bool:
  """Tell whether the file states the id `largest` (DeBERTa's [MASK]), and added tokens have their ids.

  Where the largest id is one that it states, no entry at the end is lost. `backend` is what
  `load_backend` made.
  """
  if file_of(folder) != "tokenizer.json":
    return file_of(folder) == "spm.model" and backend.token_to_id("[MASK]") == largest
  added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
  right = all(backend.token_to_id(token["content"]) == token["id"] for token in added)
  return right and largest in (token["id"] for token in added)


def _as_stated(backend: Any, text: str, settings: dict[str, Any]) -> Any:
  """Return the tokeniser serialised in `text`, with what `settings` state."""
  content = json.loads(text)
  names = settings.get("model_input_names", ["token_type_ids"])
  changed = "token_type_ids" not in names and _without_types(content.get("post_processor") or {})
  if settings.get("tokenizer_class") not in _GENERAL:
    for (part, kind), keys in _STATED.items():
      rule = content.get(part) or {}
      for key, theirs in keys.items():
        if rule.get("type") == kind and key in settings and settings[key] != rule.get(theirs):
          rule[theirs], changed = settings[key], True
  return type(backend).from_str(json.dumps(content)) if changed else backend


def _without_types(rule: dict[str, Any]) -> bool:
  """Give all tokens of a template the type 0, as a model has it that is given no types."""
  changed = False
  for piece in (*rule.get("single", ()), *rule.get("pair", ())):
    for token in piece.values():
      changed = changed or token["type_id"] != 0
      token["type_id"] = 0
  for inner in rule.get("processors", ()):
    changed = _without_types(inner) or changed
  return changed


def _require(vocab: dict[str, int], tokens: list[str], where: epath.Path) -> None:
  if missing := set(tokens) - set(vocab):
    raise InputError(
      f"{where}: the vocabulary of {len(vocab)} entries lacks {', '.join(sorted(missing))}; is it whole, "
      "and that of this kind of encoder?"
    )


def _special(
  settings: dict[str, Any], defaults: dict[str, str], vocab: dict[str, int], where: epath.Path
) -> dict[str, Any]:
  """Return the special tokens by transformers' names; InputError for one that a pair needs.
  One that the vocabulary lacks is None: transformers would give it a new id.
  """
  tokens = {}
  for name, default in defaults.items():
    token = settings.get(f"{name}_token") or default
    tokens[f"{name}_token"] = token["content"] if isinstance(token, dict) else token
  _require(vocab, [tokens[f"{name}_token"] for name in ("unk", "cls", "sep")], where)
  return {name: token if token in vocab else None for name, token in tokens.items()}


def _wordpiece(copy: pathlib.Path, settings: dict[str, Any], folder: epath.Path) -> Any:
  """Convert BERT's; without a setting, cased if and only if the vocabulary has upper-case letters."""
  from transformers import BertTokenizer

  lines = (copy / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
  vocab = {line.rstrip("\r"): i for i, line in enumerate(lines)}
  defaults = {name: f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
  named = _special(settings, defaults, vocab, folder / "vocab.txt")
  cased = re.search("[A-Z]", " ".join(token for token in vocab if not token.startswith("[")))
  case = settings.get("do_lower_case", not cased)
  bert = BertTokenizer.from_pretrained(copy, vocab=vocab, do_lower_case=case, **named)
  return bert.backend_tokenizer


def _byte_pairs(copy: pathlib.Path, settings: dict[str, Any], folder: epath.Path) -> Any:
  """Convert RoBERTa's byte-level pairs."""
  from transformers import AddedToken, RobertaTokenizer

  vocab = json.loads((copy / "vocab.json").read_text(encoding="utf-8"))
  defaults = {"bos": "<s>", "eos": "</s>", "cls": "<s>", "sep": "</s>"}
  defaults |= {"unk": "<unk>", "pad": "<pad>", "mask": "<mask>"}
  named = _special(settings, defaults, vocab, folder / "vocab.json")
  if named["mask_token"]:  # as the published tokenizer.json has it: the space before it is its own
    mask = AddedToken(named["mask_token"], lstrip=True, normalized=False, special=True)
    named["mask_token"] = mask
  return RobertaTokenizer.from_pretrained(copy, **named).backend_tokenizer


def _unigram(copy: pathlib.Path, settings: dict[str, Any], folder: epath.Path) -> Any:
  """Convert XLNet's unigram model; pieces that end in a digit and a comma become improbable."""
  from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
  from transformers.convert_slow_tokenizer import XLNetConverter

  original = types.SimpleNamespace(
    vocab_file=str(copy / "spiece.model"),
    keep_accents=settings.get("keep_accents", False),
    do_lower_case=settings.get("do_lower_case", False),
  )
  converter = XLNetConverter(original)
  pieces = converter.vocab(converter.proto)
  vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
  original.convert_tokens_to_ids = vocab.get
  if not pieces:
    raise ValueError("it holds no pieces")
  _require(vocab, ["<unk>", "<cls>", "<sep>"], folder / "spiece.model")
  tokenizer = Tokenizer(models.Unigram(pieces, unk_id=vocab["<unk>"], byte_fallback=False))
  tokenizer.normalizer = converter.normalizer(converter.proto)
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
  )
  tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
  tokenizer.post_processor = converter.post_processor()
  for token in ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<eop>", "<eod>", "<mask>"):
    if token in vocab:
      added = AddedToken(token, lstrip=token == "<mask>", normalized=False, special=True)
      tokenizer.add_special_tokens([added])
  return tokenizer


def _deberta(copy: pathlib.Path, settings: dict[str, Any], folder: epath.Path) -> Any:
  """Convert DeBERTa's unigram model, behind whose pieces comes [MASK]."""
  from tokenizers import AddedToken
  from transformers.convert_slow_tokenizer import DebertaV2Converter

  stated = {key: settings.get(key, False) for key in ("do_lower_case", "split_by_punct")}
  original = types.SimpleNamespace(vocab_file=str(copy / "spm.model"), **stated)
  converter = DebertaV2Converter(original)
  vocab = {piece.piece: i for i, piece in enumerate(converter.proto.pieces)}
  original.convert_tokens_to_ids = vocab.get
  _require(vocab, ["[UNK]", "[CLS]", "[SEP]"], folder / "spm.model")
  tokenizer = converter.converted()
  for token in ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"):
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
  return tokenizer
