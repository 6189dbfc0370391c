"""Jobs: the config files by name (`wikiqa_triplet` is `configs/wikiqa_triplet.py`), and runs' configs.

A repository has the files in `configs`; an installed package has a copy of them, `as2jax/jobs`, which
is made when the wheel is built (`as2jax.config.build_wheel`).
"""

import difflib
import importlib
import importlib.util
import json
import os
import pathlib
import sys
import traceback
from types import ModuleType
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from as2jax.config import base
from as2jax.config.overrides import FORMER, apply, flatten
from as2jax.runtime import bound, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json, tuples

PACKAGE = "as2jax.jobs"
FOLDERS = ("jobs", "../configs")  # beside the package's folders: installed, or in a repository
RERUN = (
  "rerun",
  "configs/rerun.py",
)  # in place of a job: the config of a run, rerun:runs/x/config.json
EXAMPLE = "wikiqa_triplet:sample (which needs no data and no network)"

_folders: dict[str, dict[str, Any]] = {}  # of a run's config: values of `base.FOLDERS`


def folder() -> pathlib.Path:
  """Return the folder of the config files; FileNotFoundError where the package has none."""
  root = pathlib.Path(__file__).resolve().parent.parent
  for name in FOLDERS:
    if (root / name / "__init__.py").is_file():
      return (root / name).resolve()
  raise FileNotFoundError(f"{root} has no folder of jobs: install the package again")


def names() -> list[str]:
  """List the jobs' names, sorted."""
  return sorted(path.stem for path in folder().glob("[!_]*.py"))


def path(job: str) -> str:
  """Return the file of a job given as a file, by name, or as `configs/NAME.py` from anywhere."""
  if not os.path.isfile(job):
    name = job.removeprefix("configs/").removesuffix(".py")
    known = folder() / f"{name}.py"
    if (job == name or job.startswith("configs/")) and known.is_file():
      return str(known)
  return job


def module(name: str) -> ModuleType:
  """Import a job or a table by its dotted name below `configs` (`papers.cete_table3`)."""
  if PACKAGE not in sys.modules:
    place = folder()
    spec = importlib.util.spec_from_file_location(
      PACKAGE, place / "__init__.py", submodule_search_locations=[str(place)]
    )
    assert spec is not None and spec.loader is not None, f"{place} is no package"
    sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[PACKAGE])
  return importlib.import_module(f"{PACKAGE}.{name}")


def load(job: str, allow_code: bool = False) -> ConfigDict:
  """Resolve `NAME`, `NAME:WORDS`, `FILE.py`, `FILE.py:WORDS` or `rerun:FILE.json` to a locked config.

  A job may run the code that it names; a run's config may with `allow_code`.

  InputError: the file is absent, refuses its words, or fails.
  """
  name, *words = job.split(":", 1)
  if name in RERUN:
    return of_run(words[0] if words else None, allow_code)
  file = path(name)
  if not os.path.isfile(file):
    close = difflib.get_close_matches(pathlib.Path(name).stem, names(), 1)
    hint = f"did you mean {close[0]}?" if close else f"the jobs are {', '.join(names())}"
    raise InputError(f"{job}: there is no file {file}, and no job has this name; {hint}")
  spec = importlib.util.spec_from_file_location("config_file", file)
  if spec is None or spec.loader is None:
    raise InputError(f"{job}: {file} is no Python file; give such as {EXAMPLE}")
  try:
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    config = loaded.get_config(*words)
  except InputError as error:
    raise InputError(f"{job}: {error}") from error
  except Exception as error:  # a config file may raise anything
    place = f"{file}:{error.lineno}" if isinstance(error, SyntaxError) else file
    for frame in traceback.extract_tb(error.__traceback__):
      if os.path.realpath(frame.filename) == os.path.realpath(file):
        place = f"{file}:{frame.lineno}"
    raise InputError(f"{job}: {place}: {type(error).__name__}: {error}") from error
  if not isinstance(config, ConfigDict):
    raise InputError(f"{job}: get_config() gives a {type(config).__name__}, no ConfigDict")
  registry.allow_code(config)
  return config.lock()


def keep_folders(workdir: str | os.PathLike, config: ConfigDict) -> None:
  """Keep the folders of this machine that a caller gave for a run, until this process ends."""
  flat = flatten(json.loads(config.to_json()))
  _folders[str(epath.Path(workdir) / "config.json")] = {key: flat[key] for key in base.FOLDERS}


def of_run(file: str | None, allow_code: bool = False) -> ConfigDict:
  """Read the config of a run from its `config.json`, but what it says of the machine.

  Machine keys (`base.MACHINE`) have their defaults, or what `keep_folders` was given here.

  InputError: the file holds none; a key or a value that this version does not have; a class of one's
  own, without `allow_code`.
  """
  if not file:
    raise InputError("name the run's config: --config=rerun:runs/x/config.json")
  if not epath.Path(file).is_file():
    raise InputError(f"there is no file {file}; a run writes its config.json into its folder")
  path = epath.Path(file)
  stored = read_json(bound.file(path.parent, path.name))
  for key in ("model", "loss"):
    if not isinstance(stored, dict) or not isinstance(stored.get(key), dict):
      raise InputError(f"{file} is no config of a run: it has no section {key}")
  config = base.get_config()
  whole = ["model", "loss"]
  encoder = stored.get("encoder", {})
  if isinstance(encoder, dict) and set(encoder) - set(config.encoder):
    whole.append("encoder")  # word vectors and others have keys of their own
  for key in [*whole, *(key for key in stored if key not in whole)]:
    value = stored[key]
    if key in base.MACHINE:
      continue
    if isinstance(value, dict):
      left_out = (*FORMER, *base.MACHINE)
      value = {name: v for name, v in value.items() if f"{key}.{name}" not in left_out}
    try:
      if key in whole:
        config[key] = ConfigDict(tuples(value))
      else:
        config.lock()
        config.update({key: tuples(value)})
    except (KeyError, AttributeError, TypeError, ValueError) as error:
      text = " ".join(str(error).replace("\\n", " ").split())
      raise InputError(
        f"{file}: {key} = {json.dumps(value)} does not fit the keys of this "
        f"version (as2jax/config/base.py): {text}"
      ) from error
  if config.loss.get("epochs") == config.epochs:  # as in the job that was run: they change together
    config.loss.epochs = config.get_oneway_ref("epochs")
  registry.allow_code(config, file, said=allow_code)
  if folders := _folders.get(os.path.abspath(file)):
    return apply(config, folders)
  return config.lock()
