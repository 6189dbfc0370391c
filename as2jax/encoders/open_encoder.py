"""From the config's section `encoder` to an encoder that is ready: module, weights, tokeniser."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from etils import epath

from as2jax.data.inputs import protocol as fitted
from as2jax.data.text.tokenizer import kept
from as2jax.encoders import cross_encoder_folder, hub, sentence_folder, transformer_folder, weights
from as2jax.encoders import family as families
from as2jax.encoders.family import ENCODER_FOLDER, Family, Request, Source, Transformer
from as2jax.encoders.sentence_folder import SentenceFolder
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_object, tuples, write_whole

# Of a run: what follows the transformer in a sentence-transformers folder.
SENTENCE = "sentence.json"
# By name: the transformer, the fields of `SentenceBert`, max_seq_length, as its folder lists them
# (https://huggingface.co/sentence-transformers/bert-base-nli-mean-tokens/tree/main).
SENTENCE_BERTS = {
  "sentence-transformers/bert-base-nli-mean-tokens": (
    "bert-base-uncased",
    {"pooling": ("mean",), "dense": (), "normalize": False},
    128,
  )
}


def open_encoder(
  section: Mapping[str, Any],
  *,
  texts: Callable[..., Iterable[str]],
  workdir: epath.PathLike,
  root: str,
  finished: bool = False,
) -> Source:
  """Opens the encoder that `section` (`name` and the fields of its class) describes.

  Args:
    texts: gives the texts whose words a new vocabulary is made of, of all splits or of those named.
    workdir: the run's folder, whose vocabulary is used unchanged; a new one is kept there. "" for none.
    root: the folder of the data, in which files of vectors are looked for, too.
    finished: whether the run has all parameters in its checkpoints: pretrained ones are not read.

  """
  name, pretrained = section["name"], section.get("pretrained")
  if family := own_family(name):
    return family.open(section, Request(texts, workdir, root))
  memory = workdir and epath.Path(workdir) / ENCODER_FOLDER
  folder, absent = _folder(pretrained, workdir, finished)
  if name in sentence_folder.PUBLISHED:
    published, name = _published(name, folder, memory, absent), "auto"
  else:
    published = SentenceFolder(sentence_folder.transformer(folder), {}, None, False, {})
  tokenizer = kept(memory, lambda: sentence_folder.load_tokenizer(published))
  folder = published.transformer
  kind, sizes = transformer_folder.read_family(folder)
  if ":" not in name and name not in ("auto", kind.name):
    raise InputError(
      f"encoder.name = {name!r}, but {pretrained} is of the family {kind.name!r}; set encoder.name "
      "to that or to 'auto'"
    )
  source = _source(section, kind, sizes, published.fields, published.max_length)
  params, pooler = {}, None
  if not absent:
    if memory and not (memory / hub.CONFIG).exists():
      write_whole(memory / hub.CONFIG, (folder / hub.CONFIG).read_text())
    transformer_folder.check_vocabulary(tokenizer, folder)
    params = weights.flat(transformer_folder.load_params(folder, source.module))
    pooler = transformer_folder.load_pooler(folder, kind)
  return dataclasses.replace(
    source,
    params=params,
    tokenizer=tokenizer,
    pooler=pooler,
    model_params=published.params,
    prompts=published.prompts,
    absent=absent,
  )


def require(
  section: Mapping[str, Any], workdir: epath.PathLike, root: str, *, finished: bool
) -> None:
  """Raise InputError where the files of an encoder are not here; nothing of them is read."""
  family = own_family(section["name"])
  if family is None:
    _folder(section.get("pretrained"), workdir, finished)
  elif not (epath.Path(workdir) / ENCODER_FOLDER).exists():
    family.check_there(section, root)


def describe(section: Mapping[str, Any]) -> Source:
  """Builds the encoder that `section` describes, without parameters and without a tokeniser.

  InputError where only its files tell its sizes, and they are not here.
  """
  name, spec = section["name"], section.get("pretrained")
  if family := own_family(name):
    return family.describe(section)
  known, fields, longest = transformer_folder.published(spec), {}, None
  if name == "sentence_bert" and spec in SENTENCE_BERTS:
    transformer, fields, longest = SENTENCE_BERTS[spec]
    known = transformer_folder.published(transformer)
  elif known and name == "reranker":  # an encoder known by its name gets its family's classifier
    fields = cross_encoder_folder.plain(known[0], known[1]["hidden_size"])
  elif name in sentence_folder.PUBLISHED:
    found = _read_published(name, hub.resolve(spec))
    known = transformer_folder.read_family(found.transformer)
    fields, longest = found.fields, found.max_length
  if not known:
    known = transformer_folder.read_family(sentence_folder.transformer(hub.resolve(spec)))
  return _source(section, *known, fields, longest)


def _source(
  section: Mapping[str, Any],
  kind: Transformer,
  sizes: Mapping[str, Any],
  fields: Mapping[str, Any],
  longest: int | None,
) -> Source:
  """Builds the encoder of a family alone; `longest` is a limit beside that of its positions."""
  name = section["name"] if ":" in section["name"] else kind.name
  module = families.build({**section, "name": name}, ("pretrained",), **sizes)
  limits = [length for length in (longest, module.max_length) if length is not None]
  return Source(
    module=module,
    params={},
    tokenizer=None,
    max_length=min(limits, default=None),
    provenance={"pretrained": section["pretrained"], "family": kind.name},
    model_fields=fields or {"token": kind.token},
  )


def own_family(name: str) -> Family | None:
  """Returns the family of an encoder that is no published transformer; None for those."""
  if ":" in name or name in ("auto", *sentence_folder.PUBLISHED):
    return None
  family = families.find(name)
  return None if isinstance(family, Transformer) else family


def forget(workdir: epath.PathLike) -> None:
  """Removes what a run that never began has left to remember."""
  (epath.Path(workdir) / ENCODER_FOLDER).rmtree(missing_ok=True)
  fitted.forget(workdir)


def _folder(pretrained: str, workdir: epath.PathLike, finished: bool) -> tuple[epath.Path, str]:
  """Returns the encoder's folder and "", or what a finished run keeps of it and why that is taken."""
  memory = epath.Path(workdir) / ENCODER_FOLDER
  over = workdir and (epath.Path(workdir) / "results.json").exists()
  remembers = (finished or over) and (memory / hub.CONFIG).exists()
  if finished and remembers:
    return memory, f"encoder {pretrained!r} was not read"
  try:
    return hub.resolve(pretrained), ""
  except InputError as error:
    if remembers:
      return memory, str(error)
    raise


def _published(name: str, folder: epath.Path, memory: Any, absent: str) -> SentenceFolder:
  """Reads a published model's folder, or what a run keeps of it; the run keeps it once.

  InputError where the folder says something else than when the run began.
  """
  if absent:
    then = read_object(folder / SENTENCE, "export or copy the run again")
    then["fields"] = tuples(then["fields"])
    return SentenceFolder(folder, params={}, **then | {"prompts": tuple(then["prompts"])})
  published = _read_published(name, folder)
  kept_keys = ("fields", "max_length", "lower_case", "prompts")
  now = json.dumps({key: getattr(published, key) for key in kept_keys})
  if memory and not (memory / SENTENCE).exists():
    write_whole(memory / SENTENCE, now + "\n")
  elif memory:
    advice = "put the folder back as it was, or train again in another folder"
    then = read_object(memory / SENTENCE, advice)
    for key, value in json.loads(now).items():
      if then.get(key, value) != value:
        raise InputError(
          f"{folder} is not what the run in {memory.parent} began with: {key} was {then[key]!r} "
          f"then, is {value!r} now; {advice}"
        )
  return published


def _read_published(name: str, folder: epath.Path) -> SentenceFolder:
  """Reads the published bi-encoder or cross-encoder in a folder."""
  if name != "reranker":
    return sentence_folder.read(folder)
  published = cross_encoder_folder.read(folder)
  if published is None:
    raise InputError(
      f"{folder} is no cross-encoder: its config names no sequence classifier, and no module of it "
      "gives scores; set encoder.name to sentence_bert for a bi-encoder, or to auto for an encoder"
    )
  return published
