"""From the config's section `encoder` to an encoder that is ready: module, weights, tokeniser."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from etils import epath
from flax import traverse_util

from as2jax.data.inputs import protocol as fitted
from as2jax.data.text.tokenizer import kept, load_tokenizer
from as2jax.encoders.checkpoints import folders, pretrained, published_head, sentence_folder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, read_object, write_whole

# Where in a run's folder lies what it keeps of its encoder's: the tokeniser or vocabulary, the config,
# and of a sentence-transformers folder (`SENTENCE`) what follows the transformer.
ENCODER_FOLDER = "encoder"
SENTENCE = "sentence.json"
# Fields of a module that change neither its parameters nor (but for rounding, dropout) its values.
EXECUTION = (
  "hidden_dropout",
  "attention_dropout",
  "attention",
  "dtype",
  "precision",
  "unroll",
  "remat",
  "parent",
  "name",
)
PROGRESS = 5.0  # seconds between two lines while a file of vectors is read
VOCABULARIES = ("data", "train")  # of `words`: whether other splits' words are read


@dataclasses.dataclass(frozen=True)
class Source:
  """An encoder as a config names it.

  Attributes:
    module: behind the encoder contract.
    params: its pretrained parameters by path, host arrays.
    tokenizer: text to its ids.
    pooler: a pretrained layer on the unit's token {kernel, bias}, or None.
    max_length: the longest unit in tokens, None where nothing limits it.
    provenance: what results say of it.
    open_vocabulary: makes a tokeniser of the words of some texts; None where the vocabulary is
      closed (all but ELMo).
    model_fields: what the encoder knows of the model over it (`token`: whose vector classifies).
    prompts: what a published model's folder puts before each question and each candidate; those of
      a folder that is opened as an encoder alone are not read.
    stated: what a sentence-transformers folder says of its texts, which `sentence_folder.say_unread`
      logs where a run does otherwise: `max_seq_length`, and of an encoder alone `do_lower_case` and `prompts`.
    absent: why the pretrained parameters could not be read, "" where they were: a finished run opens
      without them, by what it keeps of its encoder's folder.

  """

  module: Any
  params: Mapping[str, np.ndarray]
  tokenizer: Any
  max_length: int | None
  provenance: Mapping[str, Any]
  pooler: Mapping[str, np.ndarray] | None = None
  open_vocabulary: Callable[[Iterable[str]], Any] | None = None
  model_params: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  model_fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  prompts: tuple[str, str] = ("", "")
  stated: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  absent: str = ""

  def tokenizer_of(self, texts: Iterable[str]) -> Any:
    """The tokeniser with which `texts` are read."""
    return self.open_vocabulary(texts) if self.open_vocabulary else self.tokenizer

  @property
  def architecture(self) -> dict[str, str]:
    """What the module computes: its class and its fields, less those that only say how."""
    fields = (f.name for f in dataclasses.fields(self.module) if f.name not in EXECUTION)
    return {
      "class": type(self.module).__name__,
      **{name: repr(getattr(self.module, name)) for name in sorted(fields)},
    }


def open_source(
  section: Mapping[str, Any],
  *,
  texts: Callable[..., Iterable[str]],
  workdir: epath.PathLike,
  root: str,
  finished: bool = False,
) -> Source:
  """The encoder that `section` (`name` and the fields of its class) describes.

  Args:
    texts: gives the texts whose words a new vocabulary is made of, of all splits or of those named;
      called only where one is.
    workdir: the run's folder: a vocabulary that is there is used unchanged, a new one is kept
      there. "" for none.
    root: the folder of the data, in which files of vectors are looked for, too.
    finished: whether the run has all parameters in its checkpoints: pretrained ones are not read.

  Raises:
    InputError: no such encoder, folder or file, weights that do not fit, or a wrong field.

  """
  kind = section["name"]
  if kind == "elmo":
    return _elmo(section, root)
  if kind in ("static", "recurrent"):
    return _words(section, texts, workdir, root)
  if kind == "words":
    return _bert_words(section, texts, workdir)
  if kind in sentence_folder.PUBLISHED:
    return _published_model(section, workdir, finished)
  return _transformer(section, workdir, finished)


def forget(workdir: epath.PathLike) -> None:
  """Removes what a run that never began has left to remember."""
  (epath.Path(workdir) / ENCODER_FOLDER).rmtree(missing_ok=True)
  fitted.forget(workdir)


def _folder(
  section: Mapping[str, Any], workdir: epath.PathLike, finished: bool
) -> tuple[epath.Path, str]:
  """The encoder's folder, or of a finished run what it keeps of it; why the folder is not here, or "".

  Raises:
    InputError: no such folder, and the run is not finished or keeps nothing.

  """
  encoder_folder = epath.Path(workdir) / ENCODER_FOLDER
  if finished and folders.config_file(encoder_folder):
    return encoder_folder, f"encoder {section['pretrained']!r} was not read"
  try:
    return pretrained.resolve(section["pretrained"]), ""
  except InputError as error:
    if (
      workdir
      and (encoder_folder.parent / "results.json").exists()
      and folders.config_file(encoder_folder)
    ):
      return encoder_folder, str(error)
    raise


def _keep(encoder_folder: epath.PathLike, name: str, text: str) -> None:
  """Writes what a finished run needs of its encoder's folder into the run's, once."""
  if encoder_folder and not (epath.Path(encoder_folder) / name).exists():
    write_whole(epath.Path(encoder_folder) / name, text)


def _transformer(section: Mapping[str, Any], workdir: epath.PathLike, finished: bool) -> Source:
  """A published transformer; its tokeniser is the run's, else the folder's."""
  folder, absent = _folder(section, workdir, finished)
  tokenizer = kept(_encoder_folder(workdir), lambda: load_tokenizer(folder))
  source = _in_folder(section, folder, tokenizer, workdir, absent)
  return source if absent else dataclasses.replace(source, stated=sentence_folder.stated(folder))


def _in_folder(
  section: Mapping[str, Any],
  folder: epath.Path,
  tokenizer: Any,
  workdir: epath.PathLike,
  absent: str,
) -> Source:
  """The transformer in a folder, or without its parameters where that is `absent`."""
  family, sizes = pretrained.read_family(folder)
  own = ":" in section["name"]  # a subclass of the family's encoder, with its fields and weights
  if not own and section["name"] not in ("auto", family.name):
    raise InputError(
      f"encoder.name = {section['name']!r}, but {section['pretrained']} is of the family "
      f"{family.name!r}; set encoder.name to that or to 'auto'"
    )
  config = folders.config_file(folder)
  _keep(_encoder_folder(workdir), config.name, config.read_text())
  if not absent:
    pretrained.check_vocabulary(tokenizer, folder)
  settings = {k: v for k, v in section.items() if k not in ("name", "pretrained") and v is not None}
  sizes = {k: v for k, v in {"precision": None, **sizes}.items() if k not in settings}
  name = section["name"] if own else family.name
  module = registry.build(registry.ENCODERS, {**settings, "name": name}, "encoder", **sizes)
  return Source(
    module=module,
    params={} if absent else flat(pretrained.load_params(folder, module)),
    tokenizer=tokenizer,
    max_length=module.max_length,
    provenance={"pretrained": section["pretrained"], "family": family.name},
    pooler=None if absent else pretrained.load_pooler(folder, family),
    model_fields={"token": family.tokens},
    absent=absent,
  )


def _encoder_folder(workdir: epath.PathLike) -> epath.PathLike:
  """The folder in which a run keeps its tokeniser; "" for no run."""
  return epath.Path(workdir) / ENCODER_FOLDER if workdir else ""


def _published_model(section: Mapping[str, Any], workdir: epath.PathLike, finished: bool) -> Source:
  """A published bi-encoder or cross-encoder: its folder says the fields and parameters of the model.

  Raises:
    InputError: the folder holds no such model, or it cannot be read.

  """
  folder, absent = _folder(section, workdir, finished)
  encoder_folder = _encoder_folder(workdir)
  if absent:
    content = read_json(folder / SENTENCE)
    published = sentence_folder.SentenceFolder(folder, **{**content, "params": {}})
  elif section["name"] == "reranker":
    published = _reranker(folder)
  else:
    published = sentence_folder.read(folder)
  tokenizer = kept(encoder_folder, lambda: sentence_folder.load_tokenizer(published))
  content = dataclasses.asdict(published)
  own = {key: content[key] for key in ("fields", "max_length", "lower_case", "prompts")}
  _check_same(encoder_folder, own, folder)
  _keep(encoder_folder, SENTENCE, json.dumps(own) + "\n")
  source = _in_folder(
    {**section, "name": "auto"}, published.transformer, tokenizer, workdir, absent
  )
  limits = [n for n in (published.max_length, source.max_length) if n is not None]
  return dataclasses.replace(
    source,
    max_length=min(limits, default=None),
    model_fields={name: as_tuple(value) for name, value in published.fields.items()},
    model_params=published.params,
    prompts=(published.prompts[0], published.prompts[1]),
    stated={} if published.max_length is None else {"max_seq_length": published.max_length},
  )


def _check_same(encoder_folder: epath.PathLike, now: dict[str, Any], folder: epath.Path) -> None:
  """Raises InputError where a published model's folder says something else than when a run began."""
  if not encoder_folder or not (epath.Path(encoder_folder) / SENTENCE).exists():
    return
  advice = "put the folder back as it was, or train again in another --workdir"
  then = read_object(epath.Path(encoder_folder) / SENTENCE, advice)
  now = json.loads(json.dumps(now))
  changed = [
    f"  {key}: {then[key]!r} then, {now[key]!r} now"
    for key in now
    if key in then and then[key] != now[key]
  ]
  if changed:
    raise InputError(
      f"{folder} is not what the run in {epath.Path(encoder_folder).parent} began with:\n"
      + "\n".join(changed)
      + f"\nP{advice[1:]}"
    )


def _reranker(folder: epath.Path) -> sentence_folder.SentenceFolder:
  """The published cross-encoder in a folder.

  Raises:
    InputError: there is none.

  """
  published = published_head.read(folder)
  if published is None:
    raise InputError(
      f"{folder} is no cross-encoder: its config names no sequence classifier, and no module of it "
      "gives scores; set encoder.name to sentence_bert for a bi-encoder, or to auto for an encoder"
    )
  return published


def as_tuple(value: Any) -> Any:
  """Lists as the tuples that fields of modules are."""
  return tuple(map(as_tuple, value)) if isinstance(value, (list, tuple)) else value


def _elmo(section: Mapping[str, Any], root: str) -> Source:
  """ELMo reads any word by its characters: each table of texts has a vocabulary of its own."""
  from as2jax.data.text import word_tokenizer
  from as2jax.encoders.checkpoints import elmo_weights

  folder = folders.given_folder(section["pretrained"], root, "options.json and *.hdf5")
  fields, params = elmo_weights.load(folder)
  module = registry.build(
    registry.ENCODERS,
    _without(section, "pretrained", "treebank"),
    "encoder",
    **{"precision": section.get("precision")} if section.get("precision") is None else {},
    **fields,
  )

  def open_vocabulary(texts: Iterable[str]) -> Any:
    counts = word_tokenizer.count(texts, lower=False, treebank=section["treebank"])
    return word_tokenizer.build(
      sorted(counts), lower=False, treebank=section["treebank"], skip_unknown=False, markers=()
    )

  return Source(
    module=module,
    params=flat(params),
    tokenizer=None,
    max_length=None,
    provenance={"pretrained": section["pretrained"], "family": "elmo"},
    open_vocabulary=open_vocabulary,
  )


def _words(
  section: Mapping[str, Any], texts: Callable[[], Iterable[str]], workdir: epath.PathLike, root: str
) -> Source:
  """Word vectors, and a recurrent layer over them: the vocabulary is the run's for ever."""
  from as2jax.encoders import infersent, static

  def prepare() -> static.WordEncoding:
    settings = {
      key: section[key] for key in ("vocabulary", "lower", "treebank", "unknown_words", "markers")
    }
    path = found_file(section["vectors"], root)
    return static.prepare(texts(), path, **settings, progress=PROGRESS)

  encoding = _stored_encoding(workdir, prepare)
  own = _without(
    section, "vectors", "weights", "vocabulary", "lower", "treebank", "unknown_words", "markers"
  )
  rows, width = encoding.table.shape
  params = {"embeddings/word": encoding.table}
  provenance = {
    "pretrained": section["vectors"],
    "family": section["name"],
    "words": encoding.statistics,
  }
  sizes = {"vocab_size": rows}
  if section["name"] == "static":
    sizes["hidden_size"] = width
  else:
    sizes |= {"word_size": width, "precision": None}
    if section["weights"]:
      params |= flat({"recurrent": infersent.load(found_file(section["weights"], root))})
      provenance["weights"] = section["weights"]
  module = registry.build(
    registry.ENCODERS, own, "encoder", **{k: v for k, v in sizes.items() if own.get(k) is None}
  )
  return Source(
    module=module,
    params=params,
    tokenizer=encoding.tokenizer,
    max_length=None,
    provenance=provenance,
  )


def _bert_words(
  section: Mapping[str, Any], texts: Callable[..., Iterable[str]], workdir: epath.PathLike
) -> Source:
  """Whole words with vectors from a BERT's input table (Cross-VAEs)."""
  from as2jax.encoders import piece_vectors, static

  def prepare() -> static.WordEncoding:
    if section["vocabulary"] not in VOCABULARIES:
      raise InputError(
        f"encoder.vocabulary = {section['vocabulary']!r}: use one of {', '.join(VOCABULARIES)}"
      )
    others = texts() if section["vocabulary"] == "data" else ()
    return piece_vectors.prepare(
      texts("train"),
      pretrained.resolve(section["pretrained"]),
      size=section["size"],
      marks=section["marks"],
      scale=section["scale"],
      others=others,
    )

  encoding = _stored_encoding(workdir, prepare)
  rows, width = encoding.table.shape
  own = _without(section, "pretrained", "vocabulary", "size", "scale", "marks")
  module = registry.build(registry.ENCODERS, own, "encoder", vocab_size=rows, hidden_size=width)
  ids = tuple(encoding.tokenizer.backend.token_to_id(mark) for mark in encoding.statistics["marks"])
  return Source(
    module=module,
    params={"embeddings/word": encoding.table},
    tokenizer=encoding.tokenizer,
    max_length=None,
    model_fields={"marks": ids, "output_size": encoding.statistics["output_size"]},
    provenance={
      "pretrained": section["pretrained"],
      "family": "words",
      "words": encoding.statistics,
    },
  )


def _stored_encoding(workdir: epath.PathLike, prepare: Callable[[], Any]) -> Any:
  """The vocabulary with its vectors that the run in `workdir` has, or a new one, kept there."""
  from as2jax.encoders import static

  if not workdir:
    return prepare()
  encoder_folder = epath.Path(workdir) / ENCODER_FOLDER
  if (encoder_folder / "vectors.json").exists():
    return static.load(encoder_folder)
  encoding = prepare()
  encoder_folder.rmtree(missing_ok=True)  # a part that a killed process left
  static.save(encoding, encoder_folder)
  return encoding


def found_file(name: str, root: str) -> epath.Path:
  """A file as it is named, or under the folder of the data ($AS2JAX_DATA).

  A member of an archive is named behind a colon: `glove.6B.zip:glove.6B.300d.txt`.

  Raises:
    InputError: it is in neither place.

  """
  from as2jax.runtime.files import data_folder

  archive, colon, member = str(name).partition(".zip:")
  stem = archive + ".zip" if colon else str(name)
  places = [epath.Path(stem).expanduser(), data_folder(root) / stem]
  for place in places:
    if name and place.exists():
      return epath.Path(f"{place}:{member}") if colon else place
  raise InputError(
    f"{name!r} is neither {places[0]} nor {places[1]}: name the file in the config (such as "
    "--config.encoder.vectors=/data/glove.6B.300d.txt), or have vectors trained on the text at "
    "hand: as2jax lab vectors"
  )


def _without(section: Mapping[str, Any], *keys: str) -> dict[str, Any]:
  return {k: v for k, v in section.items() if k not in keys and v is not None}


def flat(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
  """A parameter tree by path."""
  return traverse_util.flatten_dict(params, sep="/")
