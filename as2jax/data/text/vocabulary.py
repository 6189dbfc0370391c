"""From the vocabulary files of a pretrained encoder to a tokeniser of the `tokenizers` library.

BERT's `vocab.txt`, RoBERTa's `vocab.json` with `merges.txt`, and XLNet's `spiece.model` (read
without the sentencepiece library) become what transformers would make of them.
"""

import json
import struct
from collections.abc import Iterator
from typing import Any

from etils import epath

from as2jax.runtime.errors import InputError

FILES = "tokenizer.json, vocab.txt, vocab.json and merges.txt, or spiece.model"
_XLNET_SPECIALS = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<eop>", "<eod>")


def file_of(folder: epath.Path) -> str:
  """The name of the file in `folder` that says which id an entry has.

  Raises:
    InputError: none of `FILES` is there.

  """
  for name in ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model"):
    if (folder / name).exists() and (name != "vocab.json" or (folder / "merges.txt").exists()):
      return name
  raise InputError(f"{folder}: no tokeniser here; put {FILES} into it")


def load_backend(folder: epath.Path) -> Any:
  """Builds the `tokenizers.Tokenizer` of the files in `folder`.

  Raises:
    InputError: none of `FILES` is there, or one of them cannot be read.

  """
  build = {
    "tokenizer.json": _serialised,
    "vocab.txt": _wordpiece,
    "vocab.json": _byte_pairs,
    "spiece.model": _unigram,
  }
  file = file_of(folder)
  try:
    return build[file](folder)
  except InputError:
    raise
  except Exception as error:  # the library raises plain `Exception` on what it cannot parse
    name = "vocab.json and merges.txt" if file == "vocab.json" else file
    raise InputError(
      f"{folder}: {name} is not a tokeniser ({error}); get the file again"
    ) from error


def ends_as_declared(folder: epath.Path, backend: Any, largest: int) -> bool:
  """Whether `tokenizer.json` itself states the id `largest`, and all added tokens have their ids.

  It states the ids of its added tokens, whatever stands before them: where the largest id is such
  a one, no entry at the end is lost.

  Args:
    backend: what `load_backend` made of the folder; largest: the largest id in it.

  """
  if file_of(folder) != "tokenizer.json":
    return False
  added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
  right = all(backend.token_to_id(token["content"]) == token["id"] for token in added)
  return right and largest in (token["id"] for token in added)


def _serialised(folder: epath.Path) -> Any:
  from tokenizers import Tokenizer

  return Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))


def _settings(folder: epath.Path) -> dict[str, Any]:
  """What `tokenizer_config.json` says, {} where there is none."""
  path = folder / "tokenizer_config.json"
  if not path.exists():
    return {}
  try:
    settings = json.loads(path.read_text(encoding="utf-8"))
  except ValueError as error:
    raise InputError(f"{path}: not JSON ({error}); get the file again") from error
  if not isinstance(settings, dict):
    raise InputError(f"{path}: not a JSON object; get the file again")
  return settings


def _special(settings: dict[str, Any], name: str, default: str) -> str:
  value = settings.get(f"{name}_token") or default
  return value["content"] if isinstance(value, dict) else value


def _require(vocab: dict[str, int], tokens: list[str], where: str) -> None:
  missing = [token for token in tokens if token not in vocab]
  if missing:
    raise InputError(
      f"{where}: the vocabulary of {len(vocab)} entries lacks {', '.join(missing)}; "
      "is it whole, and that of this kind of encoder?"
    )


def _wordpiece(folder: epath.Path) -> Any:
  """BERT's; without a setting, cased if and only if the vocabulary has upper-case letters."""
  from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

  lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
  if lines and not lines[-1]:
    lines.pop()
  vocab = {line.rstrip("\r"): i for i, line in enumerate(lines)}
  settings = _settings(folder)
  names = ("pad", "unk", "cls", "sep", "mask")
  special = {name: _special(settings, name, f"[{name.upper()}]") for name in names}
  _require(vocab, [special[name] for name in ("unk", "cls", "sep")], str(folder / "vocab.txt"))
  cased = any("A" <= char <= "Z" for token in vocab if not token.startswith("[") for char in token)

  tokenizer = Tokenizer(models.WordPiece(vocab, unk_token=special["unk"]))
  tokenizer.normalizer = normalizers.BertNormalizer(
    clean_text=True,
    handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    strip_accents=settings.get("strip_accents"),
    lowercase=settings.get("do_lower_case", not cased),
  )
  tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  tokenizer.decoder = decoders.WordPiece(prefix="##")
  tokenizer.add_special_tokens([token for token in special.values() if token in vocab])
  cls, sep = special["cls"], special["sep"]
  tokenizer.post_processor = processors.TemplateProcessing(
    single=f"{cls}:0 $A:0 {sep}:0",
    pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
    special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
  )
  return tokenizer


def _byte_pairs(folder: epath.Path) -> Any:
  """RoBERTa's byte-level pairs."""
  from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

  vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
  lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
  merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
  settings = _settings(folder)
  defaults = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
  special = {name: _special(settings, name, token) for name, token in defaults.items()}
  _require(vocab, [special["bos"], special["eos"]], str(folder / "vocab.json"))
  prefix_space = settings.get("add_prefix_space", False)

  tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, fuse_unk=False))
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.add_special_tokens(
    [
      AddedToken(token, lstrip=name == "mask", normalized=False, special=True)
      for name, token in special.items()
      if token in vocab
    ]
  )
  tokenizer.post_processor = processors.RobertaProcessing(
    (special["eos"], vocab[special["eos"]]),
    (special["bos"], vocab[special["bos"]]),
    add_prefix_space=prefix_space,
    trim_offsets=True,
  )
  return tokenizer


def _unigram(folder: epath.Path) -> Any:
  """XLNet's unigram model; pieces that end in a digit and a comma are made improbable."""
  from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
  )

  pieces, characters = _read_sentencepiece((folder / "spiece.model").read_bytes())
  vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
  _require(vocab, ["<unk>", "<cls>", "<sep>"], str(folder / "spiece.model"))
  settings = _settings(folder)
  steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
  if not settings.get("keep_accents", False):
    steps += [normalizers.NFKD(), normalizers.StripAccents()]
  if settings.get("do_lower_case", False):
    steps.append(normalizers.Lowercase())
  if characters:
    steps.append(normalizers.Precompiled(characters))
  steps.append(normalizers.Replace(Regex(" {2,}"), " "))

  tokenizer = Tokenizer(
    models.Unigram(
      [(piece, score - 100 * _ends_in_number_comma(piece)) for piece, score in pieces],
      unk_id=vocab["<unk>"],
      byte_fallback=False,
    )
  )
  tokenizer.normalizer = normalizers.Sequence(steps)
  tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
  )
  tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
  tokenizer.add_special_tokens(
    [
      AddedToken(token, normalized=False, special=True)
      for token in _XLNET_SPECIALS
      if token in vocab
    ]
  )
  if "<mask>" in vocab:
    mask = AddedToken("<mask>", lstrip=True, normalized=False, special=True)
    tokenizer.add_special_tokens([mask])
  tokenizer.post_processor = processors.TemplateProcessing(
    single="$A:0 <sep>:0 <cls>:2",
    pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
    special_tokens=[("<sep>", vocab["<sep>"]), ("<cls>", vocab["<cls>"])],
  )
  return tokenizer


def _ends_in_number_comma(piece: str) -> bool:
  # XLNet's own code cuts such a piece in two ("1990," is "1990" and ","); so does a low score.
  return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _read_sentencepiece(data: bytes) -> tuple[list[tuple[str, float]], bytes]:
  """The pieces with their scores, and the character map, of a serialised `ModelProto`."""
  pieces, characters = [], b""
  for number, value in _fields(data):
    if number == 1:  # a piece: 1 text, 2 score
      piece = dict(_fields(value))
      pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, b"\0" * 4))[0]))
    elif number == 3:  # the normaliser: 2 its compiled character map
      characters = dict(_fields(value)).get(2, b"")
  if not pieces:
    raise ValueError("it holds no pieces")
  return pieces, characters


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
  """The (number, value) fields of a protocol buffer message, in order."""
  at = 0

  def varint() -> int:
    nonlocal at
    value = shift = 0
    while True:
      byte = data[at]
      at += 1
      value |= (byte & 0x7F) << shift
      shift += 7
      if byte < 0x80:
        return value

  while at < len(data):
    number, wire = divmod(varint(), 8)
    if wire == 0:
      yield number, varint()
      continue
    if wire not in (1, 2, 5):
      raise ValueError(f"not a protocol buffer: wire type {wire} at byte {at}")
    size = varint() if wire == 2 else {1: 8, 5: 4}[wire]
    if at + size > len(data):
      raise ValueError(f"cut off at byte {len(data)}")
    yield number, data[at : at + size]
    at += size
