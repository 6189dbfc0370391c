"""A config as flat {dotted key: value}, and the differences between two configs."""

from collections.abc import Sequence
from typing import Any

# Keys that may change when a run is resumed, because they do not affect its results.
FREE_KEYS = (
  "mode",
  "predict.",
  "log.",
  "compilation_cache",
  "checkpoint.",
  "data.root",
  "data.cache",
  "data.download",
  "evaluation.splits",
  "evaluation.data",
)


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
  """A nested config as {dotted key: value}; tuples become lists, as JSON has them."""
  flat = {}
  for key, value in dict(config).items():
    if hasattr(value, "items"):
      flat.update(flatten(value, f"{prefix}{key}."))
    else:
      flat[prefix + key] = list(value) if isinstance(value, tuple) else value
  return flat


def differences(old: dict, new: dict, free: Sequence[str] = FREE_KEYS) -> list[str]:
  """Lists the keys that differ between two flat configs, `free` ones aside, one line per key."""
  lines = []
  for key in sorted(set(old) | set(new)):
    if any(key == f or (f.endswith(".") and key.startswith(f)) for f in free):
      continue
    a, b = old.get(key, "(absent)"), new.get(key, "(absent)")
    if a != b:
      lines.append(f"  {key}: {a!r} there, {b!r} now")
  return lines
