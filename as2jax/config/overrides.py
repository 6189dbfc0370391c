"""Configs by flat key: `optimizer.rate=1e-5` of a command line, {"optimizer.rate": 1e-5} in Python."""

import ast
import copy
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from as2jax.config import base
from as2jax.runtime.errors import InputError

# Keys that may change when a run is resumed, because they do not affect its results.
FREE_KEYS = (*base.MACHINE, "log.", "checkpoint.", "evaluation.splits")
# Keys that earlier versions had, with the value that changed nothing.
FORMER = {
  "optimizer.average": 0.0,
  "loss.free_bits": 0.0,
  "loss.kl_schedule": "linear",
  "loss.weighting": "none",
  "loss.symmetric": False,
  "loss.false_negative_margin": 1e9,
  "model.word_dropout": 0.0,
  "model.hidden_norm": False,
}
# Keys that earlier versions had not, with the value that is theirs.
LATER = {"model.head": "cls", "model.token_types": "own", "model.position": False}
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
  """Return a nested config as {dotted key: value}; tuples become lists, as JSON has them."""
  flat: dict[str, Any] = {}
  for key, value in dict(config).items():
    if hasattr(value, "items"):
      flat.update(flatten(value, f"{prefix}{key}."))
    else:
      flat[prefix + key] = list(value) if isinstance(value, tuple) else value
  return flat


def differences(old: dict, new: dict, free: Sequence[str] = FREE_KEYS) -> list[str]:
  """List the keys that differ between two flat configs, one line a key, without `free` keys."""
  lines = []
  for key in sorted(set(old) | set(new)):
    if any(key == f or (f.endswith(".") and key.startswith(f)) for f in free):
      continue
    absent = {**FORMER, **LATER}.get(key, "(absent)")
    a, b = old.get(key, absent), new.get(key, absent)
    if a != b:
      lines.append(f"  {key}: {a!r} there, {b!r} now")
  return lines


def apply(config: ConfigDict, values: Mapping[str, Any], option: str = "--set ") -> ConfigDict:
  """Return a locked copy of a config with other values by dotted key; references between keys stay.

  InputError: an unknown key, a section, a value of another type; `option` is named before the key.
  """
  config = copy.deepcopy(config).lock()
  for key, value in values.items():
    section, name = check_key(config, key, option)
    value = tuple(value) if isinstance(value, list) else value
    try:
      # A value that is unset has no type where the config comes from JSON.
      if section.get_type(name) is type(None):
        with section.ignore_type():
          section[name] = value
      else:
        section[name] = value
    except (TypeError, ValueError) as error:
      raise _wrong_type(section, key, f"{option}{key}={value!r}") from error
  return config


def parse(config: ConfigDict, items: Sequence[str], option: str = "--set ") -> dict[str, Any]:
  """Read KEY=VALUE texts as overrides of `config`, each value of its key's type.

  A tuple may be written as `(0, 1)` or as its items: `0,1`.

  InputError: see `apply`; or no KEY=VALUE.
  """
  values = {}
  for item in items:
    key, equals, text = item.partition("=")
    if not equals:
      raise InputError(f"{option}{item}: give KEY=VALUE")
    section, name = check_key(config, key, option)
    try:
      values[key] = _typed(text, section.get_type(name))
    except (ValueError, KeyError) as error:
      raise _wrong_type(section, key, option + item) from error
  return values


def check_key(config: ConfigDict, key: str, option: str = "--config.") -> tuple[ConfigDict, str]:
  """Return the section that holds a key (`optimizer.rate`), and the key's name in it.

  InputError: there is no such key, or it is a section.
  """
  names, section, here = key.split("."), config, config
  for depth, name in enumerate(names):
    known = sorted(here) if isinstance(here, ConfigDict) else []
    if name not in known:
      near = difflib.get_close_matches(name, known, 1)
      hint = f"did you mean {near[0]!r}?" if near else f"its keys are {', '.join(known) or 'none'}"
      place = ".".join(names[:depth]) or "the config"
      raise InputError(f"{option}{key}: {place} has no key {name!r}; {hint}")
    section, here = here, here[name]
  if isinstance(here, ConfigDict):
    raise InputError(f"{option}{key}: it is a section; set its keys: {', '.join(here)}")
  return section, names[-1]


def seeds_of(text: str) -> tuple[int, ...]:
  """Return the seeds that --seeds names: `3` is 0, 1, 2; `0,4` and `4,` are themselves."""
  try:
    numbers = [int(number) for number in text.split(",") if number.strip()]
  except ValueError:
    numbers = []
  different = len(set(numbers)) == len(numbers) and min(numbers, default=-1) >= 0
  if not different or ("," not in text and numbers[0] < 1):
    raise InputError(
      f"--seeds={text}: give their number (3 stands for 0, 1, 2), or different seeds, such as 0,4"
    )
  return tuple(numbers) if "," in text else tuple(range(numbers[0]))


def _wrong_type(section: ConfigDict, key: str, given: str) -> InputError:
  name = key.rpartition(".")[2]
  return InputError(
    f"{given}: {key} is of type {section.get_type(name).__name__}, now {section[name]!r}; give one "
    "value of that type (as2jax lab sweep --grid takes several)"
  )


def _typed(text: str, wanted: type) -> Any:
  """Read a text as a value of a type; ValueError or KeyError where it is none."""
  if wanted is bool:
    return BOOLEANS[text.lower()]
  if wanted in (int, float, str):
    return wanted(text)
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
    value = text
    if wanted is tuple:
      value = tuple(part for part in text.split(",") if part)  # bare words: dev,test
  if wanted is tuple and not isinstance(value, tuple):
    value = tuple(value) if isinstance(value, list) else (value,)
  return value
