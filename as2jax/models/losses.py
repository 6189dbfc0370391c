"""Pure losses: per-example values and weights; `step.py` alone sums and divides them.

A loss is called as `loss(output, batch, progress)` and returns named `Term`s. `progress` is
examples seen over the examples of an epoch (annealing).
"""

import dataclasses
import inspect
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import OneOf

if TYPE_CHECKING:  # a loss is imported beside a jax that has none of what inputs read with
  from as2jax.data.inputs.protocol import Input


class Term(NamedTuple):
  """Holds a weighted sum or mean of per-example values.
  `reduction` is `sum` or `mean` (Σ value·weight / Σ weight over shards, devices and accumulation).
  `scale` multiplies the term in the loss; 0 means that it is only logged.
  """

  values: Array
  weights: Array
  reduction: str = "mean"
  scale: float = 1.0


@dataclasses.dataclass(frozen=True)
class Loss:
  """Is the base class of losses.

  `inputs` are what it reads in training beside what its model reads, each `training_only`; with
  `reads_unlabelled` candidates without a label are examples, too; `whole_batch`: an example's value
  depends on the other shards of its step; `layouts` are those that it knows, ()
  for any; `outputs` what it reads of a system's outputs, by name.
  """

  layouts: ClassVar[tuple[str, ...]] = ()
  outputs: ClassVar[tuple[str, ...]] = ()
  inputs: ClassVar[tuple["Input", ...]] = ()
  whole_batch: ClassVar[bool] = False
  reads_unlabelled: ClassVar[bool] = False

  def __post_init__(self):
    self.check_fields(vars(self))

  @classmethod
  def check_fields(cls, values: Any) -> None:
    """Raise InputError for the first of a config's `loss` values that is out of range."""
    registry.check_ranges(cls, values, "loss")

  def __call__(self, output: Any, batch: Any, progress: Array) -> dict[str, Term]:
    raise TypeError(f"{type(self).__name__} defines no terms")

  def penalty(self, params: Any) -> dict[str, Array]:
    """Return scalars of the parameters, added to the loss once a step; none by default."""
    return {}


def check(loss: Loss, model: Any, config: Any) -> None:
  """Raise InputError where a loss cannot read a system's outputs; it names those it can."""
  absent, wrong = _absent(loss, type(model)), ""
  if loss.layouts and model.layout not in loss.layouts:
    wrong = f", whose examples have the layout {model.layout}"
  elif absent:
    wrong = f": it reads {', '.join(absent)}, which that system does not give"
  if wrong:
    raise InputError(
      f"loss.name = {config.loss.name!r} does not fit model.name = {config.model.name!r}{wrong}; take "
      f"another loss, or model.name = {' or '.join(_readable(loss) or ('of your own',))}"
    )


def _absent(loss: Loss, system: type) -> list[str]:
  """Return the outputs that a loss reads and a class of systems does not give."""
  output = inspect.signature(system.__call__).return_annotation
  if not dataclasses.is_dataclass(output):  # a system from elsewhere need not say
    return []
  given = {field.name for field in dataclasses.fields(output)}
  return [name for name in loss.outputs if name not in given]


def _readable(loss: Loss) -> list[str]:
  """Return the names of the package's systems whose examples and outputs a loss can read."""
  names = []
  for name, reference in registry.MODELS.items():
    system = registry.resolve(reference)
    fits = not loss.layouts or system.layout in loss.layouts
    if fits and system.has_parameters and not _absent(loss, system):
      names.append(name)
  return names


SELECTIONS = ("all", "hard", "semihard", "violating")


def triplet_classes(
  positive: Float[Array, "*n"], negative: Float[Array, "*n"], margin: float
) -> dict[str, Array]:
  """Return which triplets are easy, semi-hard and hard (ASBERT section 3.2), on squared distances.
  Easy has zero loss; a tie of the two distances is hard; every triplet is of exactly one class.
  """
  easy = positive - negative + margin <= 0
  hard = ~easy & (negative <= positive)
  return {"easy": easy, "hard": hard, "semihard": ~easy & ~hard}


@dataclasses.dataclass(frozen=True)
class TripletLoss(Loss):
  """Sums max(‖g(a)−g(p)‖² − ‖g(a)−g(n)‖² + m, 0) over the selected triplets (ASBERT eq. 1 ff.).
  `margin` is m; `selection` a mask on the loss: `all`, `hard`, `semihard` or `violating` (hard and
  semi-hard); `reduction` the paper's `sum`, or `mean`.
  """

  margin: float
  selection: Annotated[str, OneOf(SELECTIONS)]
  reduction: Annotated[str, OneOf(("sum", "mean"))]
  layouts: ClassVar[tuple[str, ...]] = ("triplets",)
  outputs: ClassVar[tuple[str, ...]] = ("squared_distances",)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    positive, negative = output.squared_distances[..., 0], output.squared_distances[..., 1]
    mask = batch.examples.mask
    classes = triplet_classes(positive, negative, self.margin)
    chosen = {"all": jnp.ones_like(mask, bool), "violating": ~classes["easy"], **classes}[
      self.selection
    ]
    values = jax.nn.relu(positive - negative + self.margin)
    weights = jax.lax.stop_gradient(mask * chosen)
    counts = {
      f"triplets_{name}": Term(member.astype(jnp.float32), mask, "sum", 0.0)
      for name, member in classes.items()
    }
    return {"triplet": Term(values, weights, self.reduction), **counts}


@dataclasses.dataclass(frozen=True)
class BinaryCrossEntropy(Loss):
  """Takes the mean cross entropy of judged pairs, from logits (ASBERT section 3.1)."""

  layouts: ClassVar[tuple[str, ...]] = ("pairs",)
  outputs: ClassVar[tuple[str, ...]] = ("logits",)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    labels = batch.examples.labels[..., 0]
    judged = batch.examples.mask * (labels >= 0)
    values = jax.nn.softplus(output.logits) - output.logits * labels
    return {"bce": Term(values, judged)}


@dataclasses.dataclass(frozen=True)
class SoftmaxCrossEntropy(Loss):
  """Takes the mean cross entropy of a two-way softmax over judged examples (CETE section 3.2)."""

  layouts: ClassVar[tuple[str, ...]] = ("single",)
  outputs: ClassVar[tuple[str, ...]] = ("logits",)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    labels = batch.examples.labels[..., 0]
    judged = batch.examples.mask * (labels >= 0)
    log_p = jax.nn.log_softmax(output.logits)
    values = -jnp.where(labels == 1, log_p[..., 1], log_p[..., 0])
    return {"cross_entropy": Term(values, judged)}


@dataclasses.dataclass(frozen=True)
class MeanSquaredError(Loss):
  """Takes the mean of (score − label)² over judged pairs; CETE's score is a cosine (section 4.3)."""

  layouts: ClassVar[tuple[str, ...]] = ("pairs", "single")
  outputs: ClassVar[tuple[str, ...]] = ("scores",)

  def __call__(self, output, batch, progress) -> dict[str, Term]:
    labels = batch.examples.labels[..., 0]
    judged = batch.examples.mask * (labels >= 0)
    return {"squared_error": Term(jnp.square(output.scores - labels), judged)}
