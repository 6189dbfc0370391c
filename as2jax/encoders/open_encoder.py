"""From the config's section `encoder` to an encoder that is ready: module, weights, tokeniser."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from etils import epath

from as2jax.data.inputs import protocol as fitted
from as2jax.data.text.tokenizer import kept, load_tokenizer
from as2jax.encoders import cross_encoder_folder, hub, sentence_folder, transformer_folder, weights
from as2jax.encoders import family as families
from as2jax.encoders.family import ENCODER_FOLDER, Family, Request, Source, Transformer
from as2jax.encoders.sentence_folder import SentenceFolder
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, read_object, write_whole

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
  if section["name"] in sentence_folder.PUBLISHED:
    return _open_published(section, workdir, finished)
  if family := own_family(section["name"]):
    return family.open(section, Request(texts, workdir, root))
  found, absent = _folder(section, workdir, finished)
  tokenizer = kept(_encoder_folder(workdir), lambda: load_tokenizer(found))
  return _open_transformer(section, found, tokenizer, workdir, absent)


def describe(section: Mapping[str, Any]) -> Source:
  """Builds the encoder that `section` describes, without parameters and without a tokeniser.

  InputError where only its files tell its sizes, and they are not here.
  """
  name, spec = section["name"], section.get("pretrained")
  if family := own_family(name):
    return family.describe(section)
  longest = None
  if name == "sentence_bert" and spec in SENTENCE_BERTS:
    transformer, fields, longest = SENTENCE_BERTS[spec]
    kind, sizes = transformer_folder.published(transformer)
  elif name == "sentence_bert" or name == "reranker" and not transformer_folder.is_published(spec):
    found = _read_published(name, hub.resolve(spec))
    kind, sizes = transformer_folder.read_family(found.transformer)
    fields, longest = found.fields, found.max_length
  else:
    kind, sizes = transformer_folder.published(spec)
    fields = {"token": kind.token}
    if name == "reranker":  # an encoder known by its name gets its family's classifier
      fields = cross_encoder_folder.plain(kind, sizes["hidden_size"])
  module = _module(section, kind, sizes)
  return Source(module, {}, None, longest, {"family": kind.name}, model_fields=fields)


def _module(section: Mapping[str, Any], family: Transformer, sizes: Mapping[str, Any]) -> Any:
  """Builds the encoder of a family, or the user's own subclass of it that the section names."""
  if ":" not in section["name"]:
    section = {**section, "name": family.name}
  return families.build(section, ("pretrained",), **sizes)


def own_family(name: str) -> Family | None:
  """Returns the family of an encoder that is no published transformer; None for those."""
  if ":" in name or name == "auto":
    return None
  family = families.find(name)
  if isinstance(family, Transformer):
    return None
  return family


def forget(workdir: epath.PathLike) -> None:
  """Removes what a run that never began has left to remember."""
  (epath.Path(workdir) / ENCODER_FOLDER).rmtree(missing_ok=True)
  fitted.forget(workdir)


def _folder(
  section: Mapping[str, Any], workdir: epath.PathLike, finished: bool
) -> tuple[epath.Path, str]:
  """Returns the encoder's folder and "", or what a finished run keeps of it and why that is taken."""
  kept_folder = epath.Path(workdir) / ENCODER_FOLDER
  over = workdir and (epath.Path(workdir) / "results.json").exists()
  remembers = (finished or over) and hub.config_file(kept_folder)
  if finished and remembers:
    return kept_folder, f"encoder {section['pretrained']!r} was not read"
  try:
    return hub.resolve(section["pretrained"]), ""
  except InputError as error:
    if remembers:
      return kept_folder, str(error)
    raise


def _encoder_folder(workdir: epath.PathLike) -> epath.PathLike:
  """Returns the folder in which a run keeps its tokeniser; "" for no run."""
  return workdir and epath.Path(workdir) / ENCODER_FOLDER


def _keep(encoder_folder: epath.PathLike, name: str, text: str) -> None:
  """Writes what a finished run needs of its encoder's folder into the run's, once."""
  if encoder_folder and not (epath.Path(encoder_folder) / name).exists():
    write_whole(epath.Path(encoder_folder) / name, text)


def _open_transformer(
  section: Mapping[str, Any],
  found: epath.Path,
  tokenizer: Any,
  workdir: epath.PathLike,
  absent: str,
) -> Source:
  """Opens the transformer in a folder, without its parameters where that is `absent`."""
  family, sizes = transformer_folder.read_family(found)
  if ":" not in section["name"] and section["name"] not in ("auto", family.name):
    raise InputError(
      f"encoder.name = {section['name']!r}, but {section['pretrained']} is of the family "
      f"{family.name!r}; set encoder.name to that or to 'auto'"
    )
  module = _module(section, family, sizes)
  params, pooler = {}, None
  if not absent:
    _keep(_encoder_folder(workdir), hub.CONFIG, (found / hub.CONFIG).read_text())
    transformer_folder.check_vocabulary(tokenizer, found)
    params = weights.flat(transformer_folder.load_params(found, module))
    pooler = transformer_folder.load_pooler(found, family)
  return Source(
    module=module,
    params=params,
    tokenizer=tokenizer,
    max_length=module.max_length,
    provenance={"pretrained": section["pretrained"], "family": family.name},
    pooler=pooler,
    model_fields={"token": family.token},
    absent=absent,
  )


def _open_published(section: Mapping[str, Any], workdir: epath.PathLike, finished: bool) -> Source:
  """Opens a bi-encoder or cross-encoder whose folder says the fields and parameters of the model."""
  found, absent = _folder(section, workdir, finished)
  encoder_folder = _encoder_folder(workdir)
  if absent:
    content = read_json(found / SENTENCE)
    published = SentenceFolder(found, **{**content, "params": {}})
  else:
    published = _read_published(section["name"], found)
  tokenizer = kept(encoder_folder, lambda: sentence_folder.load_tokenizer(published))
  content = dataclasses.asdict(published)
  own = {key: content[key] for key in ("fields", "max_length", "lower_case", "prompts")}
  _check_same(encoder_folder, own, found)
  _keep(encoder_folder, SENTENCE, json.dumps(own) + "\n")
  source = _open_transformer(
    {**section, "name": "auto"}, published.transformer, tokenizer, workdir, absent
  )
  limits = [n for n in (published.max_length, source.max_length) if n is not None]
  return dataclasses.replace(
    source,
    max_length=min(limits, default=None),
    model_fields={name: as_tuple(value) for name, value in published.fields.items()},
    model_params=published.params,
    prompts=(published.prompts[0], published.prompts[1]),
  )


def _check_same(encoder_folder: epath.PathLike, now: dict[str, Any], found: epath.Path) -> None:
  """Raises InputError where a published model's folder says something else than when a run began."""
  if not encoder_folder or not (epath.Path(encoder_folder) / SENTENCE).exists():
    return
  advice = "put the folder back as it was, or train again in another --workdir"
  then = read_object(epath.Path(encoder_folder) / SENTENCE, advice)
  for key, value in json.loads(json.dumps(now)).items():
    if then.get(key, value) != value:
      raise InputError(
        f"{found} is not what the run in {epath.Path(encoder_folder).parent} began with: {key} was "
        f"{then[key]!r} then, is {value!r} now; {advice}"
      )


def _read_published(name: str, found: epath.Path) -> SentenceFolder:
  """Reads the published bi-encoder or cross-encoder in a folder."""
  if name != "reranker":
    return sentence_folder.read(found)
  published = cross_encoder_folder.read(found)
  if published is None:
    raise InputError(
      f"{found} is no cross-encoder: its config names no sequence classifier, and no module of it "
      "gives scores; set encoder.name to sentence_bert for a bi-encoder, or to auto for an encoder"
    )
  return published


def as_tuple(value: Any) -> Any:
  """Returns lists as the tuples that fields of modules are."""
  return tuple(map(as_tuple, value)) if isinstance(value, (list, tuple)) else value
