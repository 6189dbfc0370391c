"""The contract of an encoder family, and the families by name.

A family is one object in one file: what a published config says, how tensors are called and turned,
which tokens stand around a text, the sizes of what is published, and the module. `register` makes it
known to every command; nothing else names it.
"""

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

# Where in a run's folder lies what it keeps of its encoder's: the tokeniser or vocabulary, the config.
ENCODER_FOLDER = "encoder"
# Fields of a module that change neither its parameters nor (but for rounding, dropout) its values.
EXECUTION = (
  "hidden_dropout attention_dropout attention dtype precision unroll remat parent name".split()
)


@dataclasses.dataclass(frozen=True)
class Source:
  """An encoder as a config names it.

  Attributes:
    params: its pretrained parameters by path, host arrays.
    max_length: the longest unit in tokens, None where nothing limits it.
    provenance: what results say of it.
    pooler: a pretrained layer on the unit's token {kernel, bias}, or None.
    open_vocabulary: makes a tokeniser of the words of some texts; None where the vocabulary is
      closed (all but ELMo).
    model_params, model_fields: what the encoder knows of the model over it.
    prompts: what a published model's folder puts before each question and each candidate.
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
  absent: str = ""

  def tokenizer_of(self, texts: Iterable[str]) -> Any:
    """Returns the tokeniser with which `texts` are read."""
    if self.open_vocabulary:
      return self.open_vocabulary(texts)
    return self.tokenizer

  @property
  def architecture(self) -> dict[str, str]:
    """Describe what the module computes: its class and its fields, less those of `EXECUTION`."""
    return {"class": type(self.module).__name__, **stated_fields(self.module, EXECUTION)}


def stated_fields(module: Any, left_out: Iterable[str]) -> dict[str, str]:
  """Returns the fields of a module as texts by their sorted names, but for those `left_out`."""
  names = sorted(field.name for field in dataclasses.fields(module) if field.name not in left_out)
  return {name: repr(getattr(module, name)) for name in names}


@dataclasses.dataclass(frozen=True)
class Request:
  """What an encoder is opened with beside its section of the config: see `open_encoder`."""

  texts: Callable[..., Iterable[str]]
  workdir: Any
  root: str


class Family:
  """An encoder family, which opens, describes and looks for the encoder of a config's section.

  Those of published transformers say what their folders hold (`Transformer`), and are opened alike.
  """

  name: str  # in `registry.ENCODERS`, `encoder.name` of a config
  of_words = False  # whether its tokens are words as they are

  def open(self, section: Mapping[str, Any], request: Request) -> Source:
    """Opens the encoder with its weights; InputError where something of it is missing or wrong."""
    raise InputError(
      f"the encoder {self.name} defines no `open`; write it in {type(self).__name__}"
    )

  def describe(self, section: Mapping[str, Any]) -> Source:
    """Builds the module alone, in its published sizes; reads no weights."""
    raise InputError(
      f"the encoder {self.name} defines no `describe`, which says its sizes; write it"
    )

  def check_there(self, section: Mapping[str, Any], root: str) -> None:
    """Raises InputError where the files that `section` names are not here; a family may have none."""

  def is_published(self, section: Mapping[str, Any], root: str) -> bool:
    """Tells whether the files that are here have the published sizes, of a family whose files say them."""
    return True


def build(section: Mapping[str, Any], left_out: Iterable[str], **sizes: Any) -> Any:
  """Builds the module that `section` names, whose own values go before the `sizes` of the weights.

  `left_out` are keys of the section that are no fields of the module.
  """
  own = {k: v for k, v in section.items() if k not in left_out and v is not None}
  sizes = {k: v for k, v in sizes.items() if k not in own}
  return registry.build(registry.ENCODERS, own, "encoder", **sizes)


_REQUIRED = object()


@dataclasses.dataclass(frozen=True)
class Key:
  """A key of a published config: the field that it sets ("": only checked), and the values read.

  A key without a `default` is required. A value is one of `words`, an integer from `least` to `largest`,
  or a number from 0 to `below`.
  """

  name: str
  field: str
  default: Any = _REQUIRED
  least: int = 1
  largest: int = 0
  below: float = 0.0
  words: tuple[str, ...] = ()

  def read(self, config: Mapping[str, Any]) -> Any:
    """Returns the value in `config`; ValueError for one of another type or out of range."""
    if self.name not in config:
      if self.default is _REQUIRED:
        raise ValueError(f"the key {self.name!r} is missing")
      return self.default
    value = config[self.name]
    if self.words:
      good, expected = value in self.words, ", ".join(self.words)
    elif self.largest:
      good = type(value) is int and self.least <= value <= self.largest
      expected = f"an integer from {self.least} to {self.largest:,}"
    else:
      good = type(value) in (int, float) and 0 <= value < self.below
      expected = f"a number from 0 to below {self.below:g}"
    if not good:
      raise ValueError(f"{self.name} is {value!r:.80}; expected {expected}")
    return value


def transposed(path: str, value: np.ndarray, heads: int = 1) -> np.ndarray:
  """Turns a tensor into the parameter at `path`, or back: a kernel is a transpose."""
  return value.T if path.endswith("/kernel") else value


@dataclasses.dataclass(frozen=True)
class Transformer(Family):
  """A family of published transformers.

  Attributes:
    name: Hugging Face's `model_type`, and `encoder.name` of a config.
    token: whose vector stands for a unit: `cls` (first) or `cls_last`.
    keys: of its config, with those of `hidden_size` and of `num_heads`, which share it.
    variants: keys of its config for what is not implemented: true ones are refused.
    padding: so many rows may not follow a table's last entry; most tables have a multiple of 8 to 128.
    names: parameter path -> tensor in transformers, `{}` the layer.
    classes: the stem of transformers' classes (`Bert`Model, `Bert`ForSequenceClassification).
    prefix: of the encoder's names in a file of a model with a head.
    ignored: names of what files hold beside the encoder.
    special: the tokeniser's special tokens by role, beside the classifier's and the separator.
    published: encoder's name -> its config, as far as the fields depend on it.
    pooler: parameter -> tensor of a pretrained layer on the unit's token; {} where there is none.
    head: of a sequence classifier, "pooler" and "head" -> the stem of their tensors; {} where its
      layers are others.
    first_stacked: number of the layer that is the first of a stack.
    ours, theirs: turn a tensor of one layer into a parameter, and back.
    rename: a tensor's stored name without its prefix -> its name in `names`.
    adapt: (config, fields) -> further fields; ValueError for what is not implemented.
    settings: encoder -> further keys of its config.
    is_of: whether an encoder of the class `module` is of this family.
    bare_head: whether its sequence classifier may lack the layer before its head.
    classifier_settings: (has that layer, rate of dropout) -> further keys of such a config.
    classifier: (config, width) -> pooling and [(layer, stem of its tensors)] of a sequence
      classifier; None for the layers of `head`.

  """

  name: str
  module: type
  token: str
  keys: tuple[Key, ...]
  names: Mapping[str, str]
  classes: str
  prefix: str
  ignored: re.Pattern
  special: Mapping[str, str]
  typed: bool
  published: Mapping[str, Mapping[str, Any]]
  aliases: tuple[str, ...] = ()
  variants: tuple[str, ...] = ()
  padding: int = 128
  pooler: Mapping[str, str] = dataclasses.field(default_factory=dict)
  head: Mapping[str, str] = dataclasses.field(default_factory=dict)
  first_stacked: int = 0
  ours: Callable[..., np.ndarray] = transposed
  theirs: Callable[..., np.ndarray] = transposed
  rename: Callable[[str], str] = str
  adapt: Callable[[Mapping[str, Any], dict[str, Any]], dict[str, Any]] | None = None
  settings: Callable[[Any], dict[str, Any]] = lambda encoder: {}
  is_of: Callable[[Any], bool] = lambda encoder: True
  bare_head: bool = False
  classifier_settings: Callable[[bool, float], dict[str, Any]] = lambda pooler, rate: {
    "classifier_dropout": rate
  }
  classifier: Callable[[Mapping[str, Any], int], Any] | None = None

  def fields(self, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the encoder's fields that a parsed config states; ValueError for what is not implemented."""
    fields = {key.field: key.read(config) for key in self.keys}
    fields.pop("", None)
    for key in self.variants:
      if config.get(key):
        raise ValueError(f"{key} is {config[key]!r:.80}; only false is implemented")
    if fields["hidden_size"] % fields["num_heads"]:
      width, heads = (key.name for key in self.keys if key.field in ("hidden_size", "num_heads"))
      raise ValueError(
        f"{width} {config[width]} is not a multiple of {heads} {config[heads]}, as the heads share it"
      )
    if self.adapt:
      fields |= self.adapt(config, fields)
    return fields

  def config(self, encoder: Any) -> dict[str, Any]:
    """Returns what `config.json` says of `encoder` (the inverse of `fields`)."""
    stated = {key.name: getattr(encoder, key.field) for key in self.keys if key.field}
    return {"model_type": self.name, **stated, **self.settings(encoder)}

  def stored_name(self, name: str) -> str:
    """Returns a tensor's name as it is in `names`: no prefix of a model with a head."""
    return self.rename(name.removeprefix(self.prefix))


_FAMILIES: dict[str, Family] = {}


def register(family: Family) -> Family:
  """Makes `family` known by its name, and by its aliases; returns it."""
  _FAMILIES[family.name] = family
  if isinstance(family, Transformer):
    _FAMILIES.update(dict.fromkeys(family.aliases, family))
    reference = f"{family.module.__module__}:{family.module.__qualname__}"
    registry.ENCODERS.setdefault(family.name, reference)
  return family


def find(name: str) -> Family | None:
  """Returns the family of that name, model type or alias; None where there is none."""
  if name not in _FAMILIES and name in registry.ENCODERS:
    importlib.import_module(registry.ENCODERS[name].partition(":")[0])
  if name not in _FAMILIES:  # an alias
    for reference in set(registry.ENCODERS.values()):
      importlib.import_module(reference.partition(":")[0])
  return _FAMILIES.get(name)


def transformers() -> dict[str, Transformer]:
  """Returns all families of published transformers by name."""
  find("")
  return {f.name: f for f in _FAMILIES.values() if isinstance(f, Transformer)}


def of(encoder: Any) -> Transformer:
  """Returns the family whose weights a module takes, or its base class; TypeError for none."""
  known = [family for family in _FAMILIES.values() if isinstance(family, Transformer)]
  for cls in type(encoder).__mro__:
    for family in known:
      if family.module is cls and family.is_of(encoder):
        return family
  raise TypeError(f"{type(encoder).__name__} is no transformer with published weights")
