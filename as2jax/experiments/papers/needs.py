"""What a config needs that is not here: its data, its weights. Nothing large is downloaded."""

import functools
from typing import Any

from as2jax.data import load
from as2jax.data.dataset import SPECS
from as2jax.data.source import lacking as lacking_files
from as2jax.encoders import hub, open_encoder, static, transformer_folder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import cache_folder, data_folder


def lacking(config: Any) -> str:
  """Why the job that `config` describes cannot run here, "" where it can."""
  return "; ".join(filter(None, (_data(config.data), _encoder(config))))


def other(wanted: Any, config: Any) -> str:
  """What `config` reads in place of the weights and the data that a row wants; "" where these.

  Weights are told apart by their name, and by their width where the published one is known.
  """
  differences = []
  if config.data.name != wanted.data.name or config.data.name == "sample":
    differences.append(f"data {config.data.name}")
  if registry.has_parameters(config.model.name):
    for key in ("pretrained", "vectors", "weights"):
      mine, its = (str(c.encoder.get(key) or "") for c in (config, wanted))
      if mine.rpartition("/")[2] != its.rpartition("/")[2]:
        differences.append(f"{mine or 'none'} in place of {its}")
      elif its:
        differences += [f"{mine} of another shape ({one})" for one in _unlike(config, key, its)]
  return "; ".join(differences)


def _unlike(config: Any, key: str, name: str) -> list[str]:
  """Sizes of the weights that are here which are not those of the published ones, as `size=value`."""
  try:
    if key == "vectors":
      with hub.found_file(name, config.data.root).open("rb") as file:
        first = file.readline().split()
        row = file.readline().split() if len(first) == 2 else first
      here, published = {"width": len(row) - 1}, {"width": static.vector_width(name)}
    elif transformer_folder.is_published(name):
      here = transformer_folder.read_family(hub.resolve(name))[1]
      published = transformer_folder.published(name)[1]
    else:
      return []
  except (InputError, OSError):
    return []  # they are not here, or their name does not tell
  return [
    f"{size}={here.get(size)}" for size, value in published.items() if here.get(size) != value
  ]


def _data(section: Any) -> str:
  if section.name in (load.FILES, load.ASNQ_FILES):
    return ""  # by path, which the run checks first
  if section.name not in SPECS:
    return f"there is no data set {section.name}"
  downloads = cache_folder(section.cache) / "downloads" / section.name
  missing = lacking_files(SPECS[section.name], data_folder(section.root), downloads)
  return f"data {section.name}: no {', '.join(missing)}" if missing else ""


def _encoder(config: Any) -> str:
  section = config.encoder
  if not registry.has_parameters(config.model.name):
    return ""
  try:
    if own := open_encoder.own_family(section.name):
      own.check_there(section, config.data.root)
    elif section.get("pretrained"):
      return _transformer(section.pretrained)
  except InputError as error:
    return f"weights: {str(error).partition(':')[0].partition(';')[0]}"
  return ""


@functools.cache
def _transformer(spec: str) -> str:
  """A folder, a package, or a hub name that is cached or that the hub would give."""
  reason = hub.absent(spec)
  return f"weights {spec}: {reason}" if reason else ""
