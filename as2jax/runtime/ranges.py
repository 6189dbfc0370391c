"""Ranges of the fields of models, encoders and losses, written beside the field.

  norm: Annotated[str, OneOf(("pre", "post"))]
  num_heads: Annotated[int, AtLeast(1)]

A field is a key of the config, so that its value is checked before anything is read
(`registry.check_ranges`), and again where the object is built.
"""

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Annotated, Any


@dataclasses.dataclass(frozen=True)
class OneOf:
  """One of some names."""

  names: Sequence[str]

  def problem(self, value: Any) -> str:
    """What to do about a value, "" where it is in range."""
    return "" if value in self.names else f"use one of {', '.join(self.names)}"


@dataclasses.dataclass(frozen=True)
class AtLeast:
  """A finite number, `least` or more."""

  least: float

  def problem(self, value: Any) -> str:
    """What to do about a value, "" where it is in range."""
    return "" if self.least <= value < math.inf else f"give {self.least} or more"


@dataclasses.dataclass(frozen=True)
class Above:
  """A finite number greater than `limit`."""

  limit: float

  def problem(self, value: Any) -> str:
    """What to do about a value, "" where it is in range."""
    return "" if self.limit < value < math.inf else f"give a number above {self.limit}"


@dataclasses.dataclass(frozen=True)
class Each:
  """One or more values, each within `bound`."""

  bound: OneOf | AtLeast

  def problem(self, value: Any) -> str:
    """What to do about the values, "" where all are in range."""
    if not value:
      return "give one value or more"
    return next((message for one in value if (message := self.bound.problem(one))), "")


@dataclasses.dataclass(frozen=True)
class Share:
  """A part of a whole that is not the whole: a rate of dropout, the decay of a running average."""

  def problem(self, value: Any) -> str:
    """What to do about a value, "" where it is in range."""
    return "" if 0 <= value < 1 else "give a number from 0 to below 1"


Rate = Annotated[float, Share()]
Precision = Annotated[Any, OneOf(("default", "high", "highest"))]  # of float32 matrix products
Dtype = Annotated[str, OneOf(("float32", "bfloat16"))]  # of a computation


def problem(field: dataclasses.Field, value: Any) -> str:
  """What is wrong with the value of a field, "" where it is in range or the field has none."""
  if value is None or typing.get_origin(field.type) is not Annotated:
    return ""
  for bound in field.type.__metadata__:
    if isinstance(bound, (OneOf, AtLeast, Above, Each, Share)) and (
      message := bound.problem(value)
    ):
      return message
  return ""
