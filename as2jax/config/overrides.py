"""Overrides of a config by flat keys: {"optimizer.rate": 1e-5}, or KEY=VALUE from a command line."""

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from as2jax.config import flags
from as2jax.runtime.errors import InputError

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")
NO_LITERAL = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)  # of `literal_eval`


def apply(config: ConfigDict, values: Mapping[str, Any], option: str = "--set") -> ConfigDict:
  """A locked copy of a config with other values, its references kept: the loss's epochs follow the run's.

  Args:
    values: by dotted key.
    option: how they were given, for messages.

  Raises:
    InputError: an unknown key (names the nearest), a section, a value of another type.

  """
  config = copy.deepcopy(config).lock()
  for key, value in values.items():
    section, name = _place(config, key, option)
    value = tuple(value) if isinstance(value, list) else value
    try:
      # A value that is unset has no type where the config comes from JSON.
      if section.get_type(name) is type(None):
        with section.ignore_type():
          section[name] = value
      else:
        section[name] = value
    except (TypeError, ValueError) as error:
      wanted = section.get_type(name).__name__
      raise InputError(
        f"{option} {key}={value!r}: {key} is of type {wanted}, now {section[name]!r}; give one value "
        "of that type"
      ) from error
  return config


def parse(config: ConfigDict, items: Sequence[str], option: str = "--set") -> dict[str, Any]:
  """KEY=VALUE texts as overrides of `config`, each value of its key's type.

  A tuple may be written as one: `(0, 1)`, or as its items: `0,1`.

  Raises:
    InputError: see `apply`; or no KEY=VALUE.

  """
  values = {}
  for item in items:
    key, equals, text = item.partition("=")
    if not equals:
      raise InputError(f"{option} {item}: give KEY=VALUE")
    section, name = _place(config, key, option)
    wanted = section.get_type(name)
    try:
      values[key] = _typed(text, wanted)
    except ValueError as error:
      several = wanted is not str and "," in text
      raise InputError(
        f"{option} {item}: {key} is of type {wanted.__name__}, now {section[name]!r}; "
        + (
          f"give one value (a grid of several is `as2jax lab sweep --grid {item}`)"
          if several
          else "give a value of that type"
        )
      ) from error
  return values


def _place(config: ConfigDict, key: str, option: str) -> tuple[ConfigDict, str]:
  """The section that holds a key, and its name there."""
  flags.check_key(config, key, f"{option} ")
  *sections, name = key.split(".")
  for section in sections:
    config = config[section]
  if isinstance(config[name], ConfigDict):
    raise InputError(f"{option} {key}: it is a section; set its keys: {', '.join(config[name])}")
  return config, name


def _typed(text: str, wanted: type) -> Any:
  """A text as a value of a type; ValueError where it is none."""
  if wanted is bool:
    if text.lower() in TRUE + FALSE:
      return text.lower() in TRUE
    raise ValueError(text)
  if wanted is tuple:
    return _items(text)
  if wanted in (int, float, str):
    return wanted(text)
  try:
    return ast.literal_eval(text)
  except NO_LITERAL:
    return text


def _items(text: str) -> tuple:
  try:
    value = ast.literal_eval(text)
  except NO_LITERAL:
    value = tuple(part for part in text.split(",") if part)  # bare words: dev,test
  return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def seeds_of(text: str) -> tuple[int, ...]:
  """The seeds that --seeds names: `3` stands for 0, 1, 2; `0,4` and `4,` for themselves.

  Raises:
    InputError: anything else.

  """
  try:
    numbers = [int(number) for number in text.split(",") if number.strip()]
  except ValueError:
    numbers = []
  if not numbers or ("," not in text and numbers[0] < 1):
    raise InputError(
      f"--seeds={text}: give their number (3 stands for 0, 1, 2), or the seeds, such as 0,4"
    )
  return tuple(numbers) if "," in text else tuple(range(numbers[0]))
