"""The contract of a system: what it declares of itself, and what it computes.

A system is a model that ranks candidates. Everything that the data path, the training loop, the
evaluation and the export ask of it is declared here, once, with its default
(`as2jax/models/README.md`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float

from as2jax.data.batches.batch import Batch
from as2jax.data.record import Question
from as2jax.encoders import family as families
from as2jax.layers.vectors import cosine
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

if TYPE_CHECKING:  # a system is imported beside a jax that has none of what inputs read with
  from as2jax.data.inputs.protocol import Input

Template = Literal["single", "pair", "context", "local_context", "joint"]
Layout = Literal["pairs", "triplets", "single", "joint"]


@struct.dataclass
class Embeddings:
  """One vector a unit, zero for unused slots."""

  units: Float[Array, "s u d"]


@struct.dataclass
class Judged:
  """Logits of examples (two-way of cross-encoders), and scores, which rank by them without saturating."""

  scores: Float[Array, "s e"]
  logits: Float[Array, "s e ..."]


@dataclasses.dataclass(frozen=True)
class PublishedForm:
  """Names the architecture of sentence-transformers or transformers that gives a system's scores.
  `kind`: a `sentence_transformer` has `pooling`, `dense`, `normalize` as `SentenceBert`; a
  `sequence_classifier` reads `token` (or another head of `CrossEncoder`) through `pooler` and
  `dropout`; a `reranker` has `pooling`, `layers`, `label` as `Reranker`. `typed`: whether the second
  text of a pair has a token type of its own. `score` ranks; `from_sentence_folder`: whether
  `encoder.pretrained` names a sentence-transformers folder.
  """

  kind: Literal["sentence_transformer", "sequence_classifier", "reranker"]
  score: str
  pooling: tuple[str, ...] = ()
  dense: tuple[tuple[int, str, bool], ...] = ()
  normalize: bool = False
  token: str = ""
  pooler: bool = False
  dropout: float = 0.0
  layers: tuple[tuple, ...] = ()
  label: int = 0
  typed: bool = True
  from_sentence_folder: bool = False


class System(nn.Module):
  """Ranks candidates; every system derives from this class.

  A subclass has the fields that its config section `model` sets, usually without defaults; the
  field `encoder`, where there is one, is filled with the encoder of the config. Where a field has
  the name of a declaration (`template`, `score`, `pooler`), write it as `template: str =
  dataclasses.field()`: the declaration's default is no default of the field.

  In training, `__call__(batch, train=True)` gives what the loss reads: a `flax.struct.dataclass` of
  named outputs, of examples `[s, e, …]`. In evaluation, a system that `encodes` is asked for
  `encode` (every distinct text once) and `compare`; any other for `__call__`, whose output has
  `scores` `[s, e]` (layout `joint`: `[s, e, k]`), higher is better.

  Attributes:
    template: the texts of one unit, in order (`as2jax.data.text.input_templates`).
    layout: how units form examples (`as2jax.data.batches.examples`): with template `single` (each
      text a unit) `pairs` or `triplets`; with another `single` (one unit a candidate) or `joint`
      (one unit a question).
    encodes: whether evaluation encodes texts and compares their vectors.
    score_names, score: names of the scores that evaluation reports, one for a system that does not
      encode; which of them ranks, "" the first.
    pooler: whether the system has a dense layer `pooler`, which begins with the pretrained one.
    inputs: what the system reads beside token ids (`as2jax.data.inputs.protocol`); a property where
      it depends on fields.
    has_parameters: whether there is anything to train; False for `ParameterFreeSystem` alone.
    warm_start_paths: of another system's parameters, the beginning of a path -> that of the path
      here which takes them with `warm_start.scope` = `matching`; equal paths need no entry.
    diagnostics: `module:attribute` of the `as2jax.evaluation.diagnostics.Diagnostics` that every
      evaluation computes beside the metrics, "" for none.

  """

  # Without annotations, so that a subclass can make a field of them, in its own order of fields.
  template = "single"
  score = ""
  pooler = False
  layout: ClassVar[Layout] = "pairs"
  encodes: ClassVar[bool] = False
  score_names: ClassVar[tuple[str, ...]] = ("score",)
  inputs: ClassVar[tuple["Input", ...]] = ()
  has_parameters: ClassVar[bool] = True
  warm_start_paths: ClassVar[Mapping[str, str]] = MappingProxyType({})
  diagnostics: ClassVar[str] = ""

  def __post_init__(self):
    self.check_fields(vars(self))
    super().__post_init__()

  @classmethod
  def check_fields(cls, values: Any) -> None:
    """Raise InputError for the first of a config's `model` values that is out of range."""
    registry.check_ranges(cls, values, "model")
    score = values.get("score")
    if score and score not in cls.score_names:
      raise InputError(f"model.score = {score!r}: use one of {', '.join(cls.score_names)}")

  @property
  def ranking_score(self) -> str:
    """Return the name of the score that ranks."""
    return self.score or self.score_names[0]

  def __call__(self, batch: Batch, *, train: bool) -> Any:
    """Return named outputs for the loss, and `scores` where the system does not encode."""
    raise NotImplementedError(f"{type(self).__name__} defines no __call__(batch, *, train)")

  def encode(self, batch: Batch, *, train: bool) -> Embeddings:
    """Return the vector of each unit, float32, zero for unused slots."""
    raise NotImplementedError(f"{type(self).__name__} defines no encode(batch, *, train)")

  def compare(self, pair: tuple[Array, Array], *, train: bool) -> dict[str, Array]:
    """Return scores (higher is better) of questions `[p, d]` with candidates, by name: their cosine."""
    return {self.ranking_score: cosine(*pair)}

  def token_vectors(self, batch: Batch, *, train: bool = False) -> Float[Array, "s r l d"]:
    """Return the vector of each token, of which `as2jax.inference.explain` takes cosines."""
    return self.encoder(batch.tokens, train=train)

  @nn.nowrap
  def initial_params(self, params: dict[str, Array]) -> dict[str, Array]:
    """Return the random parameters by path that training starts from, before pretrained ones."""
    return params

  @nn.nowrap
  def published_form(self) -> PublishedForm | None:
    """Return what `as2jax.inference.export` writes; None where no published architecture scores so."""
    return None


def exported_form(model: System) -> PublishedForm:
  """Return the published form of a model; InputError where no original architecture has its scores."""
  form = model.published_form()
  if form is None:
    raise InputError(
      f"{type(model).__name__} has no counterpart in sentence-transformers; exported are "
      "bi-encoders (biencoder, triplet, siamese, sentence_bert) and cross-encoders of a pair without model.position"
    )
  try:
    family = families.of(model.encoder)
  except TypeError as error:
    known = ", ".join(families.transformers())
    raise InputError(f"the encoder {error}: exported are models over {known}") from None
  if registry.find(registry.ENCODERS, family.name, "encoder.name") is not type(model.encoder):
    raise InputError(
      f"the encoder {type(model.encoder).__name__} is a class of your own, which the original "
      "libraries do not have"
    )
  if "attention" in form.pooling:
    raise InputError(
      "model.pooling = 'attention': sentence-transformers has no pooling with a learned query; "
      "train with model.pooling = 'mean', 'max' or 'cls'"
    )
  if form.token.startswith("cosine"):
    raise InputError(
      f"model.head = {form.token!r}: sentence-transformers has no layer that compares the two texts of a "
      "pair; use the run as it is (as2jax rank, as2jax serve), or train with model.head = 'mean'"
    )
  if not form.typed and family.token == "cls_last":
    raise InputError(
      f"model.token_types = 'zero': {family.classes} without token types is another model; train with "
      "model.token_types = 'own'"
    )
  if form.kind != "sequence_classifier":
    return form
  # A list of modules has any layers; a family's classifier its own, and reads one token.
  if not family.head or form.token == "mean":
    layers = (("dense", 1, "identity", True),)
    if form.pooler:
      layers = (("dense", model.encoder.hidden_size, "tanh", True), *layers)
    return dataclasses.replace(form, kind="reranker", pooling=(form.token,), layers=layers)
  if form.token != family.token:
    raise InputError(
      f"model.token = {form.token!r}: {family.classes}ForSequenceClassification reads "
      f"{family.token!r} alone"
    )
  if not form.pooler and not family.bare_head:
    raise InputError(
      f"model.pooler = False: {family.classes}ForSequenceClassification always has a tanh layer "
      "before its head; set model.pooler to True in training"
    )
  return form


def exportable(model: System) -> bool:
  """Return whether an original architecture has the scores of a model."""
  try:
    exported_form(model)
  except InputError:
    return False
  return True


class Scorer(Protocol):
  """A fitted ranker without parameters. Scores are float32, higher is better."""

  def score(self, questions: Sequence[Question]) -> list[np.ndarray]:
    """Return the scores `[candidates]` of each question's own candidates."""

  def over_pool(self, texts: Sequence[str]) -> Callable[[str], np.ndarray]:
    """Return the function from a question to the scores `[n]` of `texts`."""


class ParameterFreeSystem(System):
  """Ranks without parameters: it is fitted on the training questions and scores texts.
  `reads_training` says whether `fit` reads the questions; where not, a run ranks without its data.
  """

  has_parameters: ClassVar[bool] = False
  reads_training: ClassVar[bool] = True

  @nn.nowrap
  def fit(self, questions: Sequence[Question]) -> Scorer:
    """Return the scorer, with what it counts in the training questions."""
    raise NotImplementedError(f"{type(self).__name__} defines no fit(questions)")
