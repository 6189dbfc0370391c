"""Orbax checkpoints of the latest states and of the best parameters, each written atomically.

Each has a manifest with the checksum of every file, verified before anything is read. It is written last,
when the step is whole on disk; that of a latest state holds the position of the loop, too.
"""

import concurrent.futures
import contextlib
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import traverse_util
from orbax.checkpoint.checkpoint_managers import preservation_policy

from as2jax.encoders.weights import check_finite
from as2jax.runtime import files, processes
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"  # in the folder of a step
AGAIN = (
  ". Run the training command again (in a finished run's folder, delete results.json first): it goes "
  "on from the newest whole checkpoint, to the bit. Where none is left, repeat the run in another "
  "--workdir with --config=rerun:FOLDER/config.json; then evaluate again there"
)


def group_folder(workdir: epath.PathLike, seeds: Sequence[int], group: Sequence[int]) -> epath.Path:
  """Returns the folder of the checkpoints of `group`, the seeds of a run that train together."""
  name = "" if len(seeds) == 1 else "seed-" + "-".join(map(str, group))
  return epath.Path(workdir) / "checkpoints" / name


def best_step(folder: epath.PathLike) -> int:
  """Returns the step of the best parameters that were saved in `folder`."""
  steps = _steps(epath.Path(folder) / "best")
  if not steps:
    raise InputError(f"{folder}/best has no checkpoint: was it deleted?{AGAIN[1:]}")
  return steps[-1]


def read_best(folder: epath.PathLike, step: int) -> dict[str, Any]:
  """Reads, as host arrays, what `Checkpoints.save_best` saved in `folder` at `step`."""
  path = _absolute(folder) / "best" / str(step)
  _verify(path, AGAIN)
  variables = read_tree(path / "variables")
  check_finite(traverse_util.flatten_dict(variables, sep="/"), path)
  return variables


def read_tree(path: epath.PathLike) -> dict[str, Any]:
  """Reads one item of a checkpoint (`state`, `variables`) as host arrays, unchecked."""
  path = epath.Path(path)
  handler = ocp.PyTreeCheckpointHandler()
  try:
    leaves, structure = jax.tree.flatten(handler.metadata(path).tree)
    host = structure.unflatten([ocp.RestoreArgs(restore_type=np.ndarray)] * len(leaves))
    return handler.restore(path, args=ocp.args.PyTreeRestore(restore_args=host))
  finally:
    handler.close()


def digest_of_best(folder: epath.PathLike, step: int) -> str:
  """Returns the SHA-256 of a best checkpoint's manifest, "" where there is none."""
  manifest = epath.Path(folder) / "best" / str(step) / MANIFEST
  return hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.exists() else ""


def _write_manifest(step: epath.Path, fields: dict[str, Any]) -> None:
  """Writes the manifest of a step that is whole on disk, or new `fields` (JSON data) into it."""
  if not processes.first():
    return
  if (step / MANIFEST).exists():
    files.write_whole(step / MANIFEST, files.seal({**_read_manifest(step), **fields}))
    return
  paths = sorted(_files(step))
  with concurrent.futures.ThreadPoolExecutor(files.THREADS) as pool:
    sums = list(pool.map(files.compute_checksum, paths))
  names = [str(path.relative_to(step)) for path in paths]
  sizes = [path.stat().length for path in paths]
  content = {"bytes": dict(zip(names, sizes)), "checksums": dict(zip(names, sums)), **fields}
  files.write_whole(step / MANIFEST, files.seal(content))


def _read_manifest(step: epath.Path) -> dict[str, Any]:
  path = step / MANIFEST
  files.refuse_others(path)
  try:
    return files.unseal(path.read_bytes().decode("ascii"))
  except FileNotFoundError:
    raise InputError(f"{step} was deleted, or its save was cut off: no {MANIFEST}") from None
  except (OSError, ValueError) as error:
    raise InputError(f"{path} was damaged: {error}") from None


def _verify(step: epath.PathLike, advice: str = "") -> dict[str, Any]:
  """Compares the files of a step with its manifest; returns that. Errors end in `advice`."""
  step = epath.Path(step)
  try:
    fields = _read_manifest(step)
    names = sorted(fields["checksums"])
    for name in names:
      size, wanted = (step / name).stat().length, fields["bytes"][name]
      if size != wanted:
        raise InputError(f"{step / name} was damaged: it has {size} bytes, {wanted} were saved")
    with concurrent.futures.ThreadPoolExecutor(files.THREADS) as pool:
      sums = list(pool.map(files.checksum_of, [step / name for name in names]))
    for name, found in zip(names, sums):
      if found != fields["checksums"][name]:
        raise InputError(f"{step / name} was damaged: its content is not what was saved")
    return fields
  except (OSError, InputError) as error:
    raise InputError(f"{error}{advice}") from None


def _files(folder: epath.Path) -> list[epath.Path]:
  found = []
  for entry in folder.iterdir():
    found += _files(entry) if entry.is_dir() else [entry]
  return found


def _absolute(folder: epath.PathLike) -> epath.Path:
  """Returns the absolute path, which Orbax needs; those of object stores are absolute."""
  folder = epath.Path(folder)
  return folder if "://" in str(folder) else epath.Path(folder.absolute())


def _steps(folder: epath.Path) -> list[int]:
  """Lists the steps that have a folder in `latest/` or `best/`, ascending."""
  return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def _recover(folder: epath.Path) -> None:
  """Deletes what is newer than the newest whole state and the best that it needs."""
  latest, best = folder / "latest", folder / "best"
  steps, damage = _steps(latest), []
  for step in reversed(steps):
    try:
      needed = _verify(latest / str(step))["progress"].get("best", -1)
      if needed >= 0:
        _verify(best / str(needed))
      break
    except InputError as error:
      damage.append(str(error))
  else:
    step = needed = -1
    # A first save that was cut off has lost nothing.
    if len(steps) > 1 or any((latest / str(number) / MANIFEST).exists() for number in steps):
      raise InputError(
        "\n".join(damage) + f"\n{folder} has no whole checkpoint left to go on from. Put the files "
        "back from a copy, or repeat the run in another --workdir with "
        "--config=rerun:FOLDER/config.json"
      )
  if damage:
    back = f"the checkpoint of step {step}" if step >= 0 else "the start"
    log.warning("%s\ngoing back to %s", "\n".join(damage), back)
  for kept, newest in ((latest, step), (best, needed)):
    for number in _steps(kept):
      if number > newest:
        (kept / str(number)).rmtree()


class _Manager(ocp.CheckpointManager):
  """Orbax's manager without its own handling of preemption, which `preemption` does.

  Orbax asks jax at every save whether the processes have agreed to end at this *step*, which jax takes for
  the point that the process has reached. `preemption.due` counts points differently.
  """

  def reached_preemption(self, step: int) -> bool:
    """Always False: `preemption` decides when the run ends."""
    return False


class Checkpoints:
  """The checkpoints of one group of seeds, below `folder`.

  `latest/` holds the last two states with the position of the loop, for resuming; `best/` holds the
  parameters and running statistics of the last three best evaluations, for ranking: a run that is killed
  goes on from an older state, whose best may be another one.
  """

  def __init__(self, folder: epath.PathLike):
    self.folder = _absolute(folder)
    processes.by_first(lambda: _recover(self.folder))
    self._latest = self._manager("latest", keep=2)
    self._best = self._manager("best", keep=3)
    # One thread, in order: a state's manifest is written after that of the best that it names.
    self._sealer = concurrent.futures.ThreadPoolExecutor(1, "manifests")
    self._sealed: dict[ocp.CheckpointManager, concurrent.futures.Future] = {}

  def _manager(self, name: str, keep: int) -> ocp.CheckpointManager:
    options = ocp.CheckpointManagerOptions(
      preservation_policy=preservation_policy.LatestN(keep),
      create=True,
      enable_async_checkpointing=True,
      cleanup_tmp_directories=True,
      # Both managers save at the same time; a prefix of its own keeps their barriers apart.
      multiprocessing_options=ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=name),
    )
    return _Manager(self.folder / name, options=options)

  @property
  def latest_step(self) -> int | None:
    """The step of the latest checkpoint, None where there is none."""
    return self._latest.latest_step()

  def save(self, step: int, state: Any, progress: dict) -> None:
    """Begins to save the state and the loop's position.

    A step that is saved already keeps its state, which is the same, and gets the new position.

    Args:
      progress: JSON data; `best` in it is the step of the best checkpoint that it needs.

    """
    self._put(self._latest, step, {"progress": progress}, state=ocp.args.StandardSave(state))

  def save_best(self, step: int, variables: Any) -> None:
    """Begins to save the parameters and running statistics of the best evaluation so far."""
    self._put(self._best, step, {}, variables=ocp.args.StandardSave(variables))

  def _put(self, manager: ocp.CheckpointManager, step: int, fields: dict, **item) -> None:
    self._finish(manager)
    if step not in manager.all_steps():
      try:
        manager.save(step, args=ocp.args.Composite(**item), force=True)
      except (OSError, ValueError) as error:
        raise self._failure(step, error) from error
    elif not fields:
      return
    before = self._sealed.get(self._best)
    self._sealed[manager] = self._sealer.submit(self._seal, manager, step, fields, before)

  def _seal(
    self,
    manager: ocp.CheckpointManager,
    step: int,
    fields: dict,
    before: concurrent.futures.Future | None,
  ) -> None:
    """Waits until a step is whole on disk, and those saved `before`; then writes its manifest."""
    manager.wait_until_finished()
    if before is not None:
      before.result()
    _write_manifest(epath.Path(manager.directory) / str(step), fields)

  def _finish(self, manager: ocp.CheckpointManager) -> None:
    try:
      if manager in self._sealed:
        self._sealed[manager].result()
      manager.wait_until_finished()
    except (OSError, ValueError, RuntimeError) as error:
      raise self._failure(manager.latest_step() or 0, error) from error

  def _failure(self, step: int, error: Exception) -> InputError:
    return InputError(
      f"{self.folder}: the checkpoint of step {step} could not be written: {error}. "
      f"{self._last_whole()} Free some space, or check the folder's permissions, and run the same "
      "command again: it continues from there."
    )

  def _last_whole(self) -> str:
    for step in reversed(_steps(self.folder / "latest")):
      if (self.folder / "latest" / str(step) / MANIFEST).exists():
        return f"The last whole checkpoint is of step {step}."
    return "No checkpoint was written yet."

  def last_finite(self) -> str:
    """Names the newest state on disk, whose numbers were all finite (see `states.check_finite`)."""
    with contextlib.suppress(InputError):  # a save that failed is not what the caller reports
      self._finish(self._latest)
    return self._last_whole()

  def wait(self) -> None:
    """Waits until every save is on disk; raises InputError where one could not be written."""
    self._finish(self._latest)
    self._finish(self._best)

  def restore(self, abstract: Any) -> tuple[Any, dict]:
    """Restores the latest state, with the shardings of `abstract`, and the position of the loop."""
    self._finish(self._latest)
    path = self.folder / "latest" / str(self.latest_step)
    args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
    try:
      restored = self._latest.restore(self.latest_step, args=args)
    except (ValueError, KeyError, FileNotFoundError) as error:
      raise InputError(
        f"{path} cannot be restored: {error}. Was it written by another model? Start in another "
        "--workdir, or delete this one."
      ) from error
    return restored["state"], processes.by_first(lambda: _read_manifest(path)["progress"])

  def restore_best(self, step: int, abstract: Any) -> Any:
    """Restores the variables that `save_best` saved at `step`."""
    self._finish(self._best)
    processes.by_first(lambda: _verify(self.folder / "best" / str(step), AGAIN))
    args = ocp.args.Composite(variables=ocp.args.StandardRestore(abstract))
    return self._best.restore(step, args=args)["variables"]

  def close(self) -> None:
    """Finishes all saves and ends their threads."""
    try:
      self.wait()
    finally:
      self._sealer.shutdown()
      for manager in (self._latest, self._best):
        manager.close()

  def abandon(self) -> None:
    """Closes after an error of the run: a save under way would hang the interpreter's end."""
    try:
      self.close()
    except Exception as error:  # the run's own error is the one to show
      log.warning("%s: a checkpoint under way was not finished: %s", self.folder, error)
