"""The command-line flags of `main`; every mistake in them becomes one `InputError`."""

import difflib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from as2jax.config import jobs
from as2jax.runtime.errors import InputError

EXAMPLE = "--config=wikiqa_triplet:sample (which needs no data and no network)"


def define(
  help_text: str, flag_values: flags.FlagValues = flags.FLAGS, argv: list[str] | None = None
) -> None:
  """Defines --config, --workdir and the multi-process flags; `argv` is what will be parsed."""
  config_flags.DEFINE_config_file("config", None, help_text, flag_values, sys_argv=argv)
  flags.DEFINE_string("workdir", "", "folder of the run: checkpoints, logs, results", flag_values)
  flags.DEFINE_string(
    "coordinator",
    "",
    "several processes: HOST:PORT of process 0; `auto`: as "
    "Slurm, Open MPI or Kubernetes say; TPU VMs need nothing",
    flag_values,
  )
  flags.DEFINE_integer(
    "processes", 0, "several processes: how many; 1: this host alone", flag_values=flag_values
  )
  flags.DEFINE_integer(
    "process_id", -1, "several processes: which one this is, from 0", flag_values=flag_values
  )


def parse(argv: Sequence[str], flag_values: flags.FlagValues = flags.FLAGS) -> list[str]:
  """Parses the command line; returns the arguments that are no flags.

  Raises:
    InputError: a missing file, an unknown key, a value of the wrong type.

  """
  if {"--help", "-help", "--helpshort", "--helpfull"} & set(argv):
    _parse(argv, flag_values)
  # Loaded before absl does so, because absl wraps errors of a config file into tracebacks.
  named = _config_path(argv)
  config = load(named)
  file, *argument = named.split(":", 1)
  resolved = ":".join([jobs.path(file), *argument])  # absl reads files only
  argv = [a.removesuffix(named) + resolved if _names(a, named) else a for a in argv]
  for argument in argv[1:]:
    if override := re.match(r"--?(?:no)?config\.([^=]+)", argument):
      check_key(config, override[1])
  return _parse(argv, flag_values, config)


def load(path: str) -> ConfigDict:
  """Resolves `FILE.py` or `FILE.py:ARGUMENT`, or a job by its name, to a locked config.

  Raises:
    InputError: the file is absent, refuses its argument, or fails.

  """
  file, *argument = path.split(":", 1)
  file = jobs.path(file)
  if not os.path.isfile(file):
    raise InputError(f"--config={path}: there is no file {file}{_near(file)}")
  spec = importlib.util.spec_from_file_location("config_file", file)
  if spec is None or spec.loader is None:
    raise InputError(
      f"--config={path}: {file} is no Python file; name one of configs/, as {EXAMPLE}"
    )
  try:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "get_config"):
      raise InputError("it defines no get_config()")
    config = module.get_config(*argument)
  except InputError as error:
    raise InputError(f"--config={path}: {error}") from error
  except Exception as error:  # a config file may raise anything
    raise InputError(
      f"--config={path}: {_line(error, file)}: {type(error).__name__}: {error}"
    ) from error
  if not isinstance(config, ConfigDict):
    raise InputError(
      f"--config={path}: get_config() gives a {type(config).__name__}, not a ConfigDict"
    )
  return config.lock()


def _parse(
  argv: Sequence[str], flag_values: flags.FlagValues, config: ConfigDict | None = None
) -> list[str]:
  try:
    return flag_values(argv)
  except (flags.Error, TypeError, ValueError) as error:
    raise InputError(_advice(" ".join(str(error).split()), config)) from error
  except SystemExit:  # after --help, which absl ends with status 1
    sys.exit(0)


def _advice(text: str, config: ConfigDict | None) -> str:
  """An error message of absl, extended by what to do."""
  override = re.match(r"flag --config\.([^=]+)=(.*?): ", text)
  if override and config is not None:
    key, value = override.groups()
    here = config
    for name in key.split("."):
      here = here[name]
    if isinstance(here, ConfigDict):
      return f"--config.{key}={value}: {key} is a section; set its keys: {', '.join(sorted(here))}"
    return (
      f"--config.{key}={value}: {key} is of type {type(here).__name__}, now {here!r}; give "
      "a value of that type"
    )
  if "before a value" in text:
    return f"{text}; put --config first"
  if text.startswith("Unknown command line flag"):
    return (
      f"{text}; there are --config, --workdir, --config.KEY=VALUE and, for several "
      "processes, --coordinator, --processes, --process_id"
    )
  return text


def _names(argument: str, config: str) -> bool:
  """Whether an argument is `config`, or --config=`config`."""
  return argument in (config, f"--config={config}", f"-config={config}")


def _config_path(argv: Sequence[str]) -> str:
  for i, argument in enumerate(argv):
    name, _, value = argument.partition("=")
    if name in ("--config", "-config"):
      path = value or " ".join(argv[i + 1 : i + 2])
      if path and not path.startswith("-"):
        return path
  raise InputError(f"--config is missing: name a config, as {EXAMPLE}")


def check_key(config: ConfigDict, path: str, prefix: str = "--config.") -> None:
  """Raises InputError where `path` (`optimizer.rate`) leads to no key of the config.

  Args:
    prefix: what stood before the key on the command line.

  """
  here: Any = config
  for depth, name in enumerate(names := path.split(".")):
    if not isinstance(here, ConfigDict) or name not in here:
      section = ".".join(names[:depth])
      keys = sorted(here) if isinstance(here, ConfigDict) else []
      close = difflib.get_close_matches(name, keys, 1)
      hint = (
        f"did you mean {close[0]!r}?"
        if close
        else f"its keys are {', '.join(keys)}"
        if keys
        else f"{section} is a value, no section"
      )
      raise InputError(
        f"{prefix}{path}: the config{' section ' * bool(section)}{section} has no "
        f"key {name!r}; {hint}"
      )
    here = here[name]


def _near(file: str) -> str:
  if os.sep not in file and not file.endswith(".py"):
    close = difflib.get_close_matches(file, jobs.names(), 1, 0.6)
    hint = f"did you mean {close[0]}?" if close else f"the jobs are {', '.join(jobs.names())}"
    return f", and no job has this name; {hint}"
  folder = os.path.dirname(file) or "."
  if not os.path.isdir(folder):
    return f", not even the folder {folder} (here is {os.getcwd()}); an example is {EXAMPLE}"
  there = [
    name for name in sorted(os.listdir(folder)) if name.endswith(".py") and not name.startswith("_")
  ]
  close = difflib.get_close_matches(os.path.basename(file), there, 1, 0.8)
  if close:
    return f"; did you mean {os.path.join(folder, close[0])}?"
  return f"; {folder} holds {', '.join(there)}" if there else f"; an example is {EXAMPLE}"


def _line(error: BaseException, file: str) -> str:
  """`FILE:LINE` of the config file's last frame in the error's traceback."""
  if isinstance(error, SyntaxError):
    return f"{error.filename}:{error.lineno}"
  lines = [
    frame.lineno
    for frame in traceback.extract_tb(error.__traceback__)
    if os.path.realpath(frame.filename) == os.path.realpath(file)
  ]
  return f"{file}:{lines[-1]}" if lines else file
