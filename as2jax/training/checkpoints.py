"""Orbax checkpoints of the latest state and of the best parameters, each written atomically."""

import json
import logging
import shutil
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from flax import traverse_util
from orbax.checkpoint.checkpoint_managers import preservation_policy

from as2jax.encoders.checkpoints.weights import check_finite
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

log = logging.getLogger(__name__)
MOVED = "position.json"  # beside the latest checkpoint
HEADROOM = 1.1  # a save needs this many times the size of the checkpoint as free space


def group_folder(workdir: epath.PathLike, seeds: Sequence[int], group: Sequence[int]) -> epath.Path:
  """The folder of the checkpoints of `group`, those of a run's `seeds` that train together."""
  name = "" if len(seeds) == 1 else "seed-" + "-".join(map(str, group))
  return epath.Path(workdir) / "checkpoints" / name


def read_best(folder: epath.PathLike, step: int) -> dict[str, Any]:
  """Reads, as host arrays, what `Checkpoints.save_best` saved in `folder` at `step`.

  Raises:
    InputError: the checkpoint is absent, cannot be read, or holds a number that is not finite.

  """
  path = epath.Path(folder) / "best" / str(step) / "variables"
  path = path if "://" in str(path) else epath.Path(path.absolute())
  if not path.exists():
    raise InputError(f"{folder}/best has no checkpoint of step {step}: was it deleted? Train again")
  handler = ocp.PyTreeCheckpointHandler()
  try:
    tree = handler.metadata(path).tree
    host = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    variables = handler.restore(path, args=ocp.args.PyTreeRestore(restore_args=host))
  except (OSError, ValueError, KeyError) as error:
    raise InputError(f"{path} cannot be read ({error}): it was damaged; train again") from error
  finally:
    handler.close()
  check_finite(traverse_util.flatten_dict(variables, sep="/"), path)
  return variables


def read_progress(folder: epath.PathLike) -> dict:
  """The position of the loop in the latest checkpoint of `folder`, see `Checkpoints`; reads only.

  Raises:
    InputError: there is no checkpoint, or it cannot be read.

  """
  latest = epath.Path(folder) / "latest"
  steps = [int(path.name) for path in latest.glob("*") if path.name.isdigit()]
  if not steps:
    raise InputError(f"{latest} holds no checkpoint: train first; was it deleted? Train again")
  path = latest / str(max(steps)) / "progress"
  handler = ocp.JsonCheckpointHandler()
  try:
    progress = handler.restore(path if "://" in str(path) else epath.Path(path.absolute()))
  except (OSError, ValueError) as error:
    raise InputError(f"{path} cannot be read ({error}): it was damaged; train again") from error
  finally:
    handler.close()
  return _moved(folder, max(steps), progress)


def _moved(folder: epath.PathLike, saved: int | None, progress: dict) -> dict:
  """The position beside the latest checkpoint, saved at step `saved`, if there is one, else `progress`."""
  path = epath.Path(folder) / MOVED
  found = json.loads(path.read_text()) if path.exists() else {}
  return found["progress"] if found.get("saved") == saved else progress


class _Manager(ocp.CheckpointManager):
  """Orbax's manager without its own handling of preemption, which `preemption` does.

  At every save, and again from a thread when the save is on disk, Orbax asks jax whether the
  processes have agreed to end at this *step*. jax then takes the step for the point that this
  process has reached, which `preemption.due` counts differently: a SIGTERM before the next point
  led to an agreement on a point in the past, which no process passes again, or far in the future.
  """

  def reached_preemption(self, step: int) -> bool:
    """Always False: `preemption` decides when the run ends."""
    return False


class Checkpoints:
  """The checkpoints of one group of seeds, below `folder`.

  `latest/` holds the last whole state with the position of the loop, for resuming; `best/` holds
  the parameters and running statistics of the best evaluation, for ranking. Two best checkpoints
  are kept, because a run that is killed between the two saves resumes from a state whose best is
  the previous one.
  """

  def __init__(self, folder: epath.PathLike):
    folder = epath.Path(folder)
    # Orbax needs absolute paths; those of object stores are absolute.
    self.folder = folder if "://" in str(folder) else epath.Path(folder.absolute())
    self._latest = self._manager("latest", keep=1)
    self._best = self._manager("best", keep=2)

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

  def save(self, step: int, state: Any, progress: dict) -> None:
    """Begins to save the state and the loop's position.

    A step that is saved already keeps its state, which is the same. Its position may differ (a run
    that was stopped in an evaluation has saved before it) and is then written beside it.
    """
    self._finish(self._latest)
    if step in self._latest.all_steps():
      if self.progress() != progress:
        write_whole(self.folder / MOVED, json.dumps({"saved": step, "progress": progress}))
      return
    self._put(
      self._latest, step, state=ocp.args.StandardSave(state), progress=ocp.args.JsonSave(progress)
    )

  def save_best(self, step: int, variables: Any) -> None:
    """Begins to save the parameters and running statistics of the best evaluation so far."""
    self._put(self._best, step, variables=ocp.args.StandardSave(variables))

  def _put(self, manager: ocp.CheckpointManager, step: int, **items) -> None:
    self._finish(manager)
    if step in manager.all_steps():
      return
    self._check_space(step, next(iter(items.values())).item)
    try:
      manager.save(step, args=ocp.args.Composite(**items), force=True)
    except (OSError, ValueError) as error:
      raise self._failure(step, error) from error

  def _check_space(self, step: int, tree: Any) -> None:
    folder = epath.Path(self.folder)
    if "://" in str(folder):
      return  # object stores do not run out of space
    need = sum(x.nbytes for x in jax.tree.leaves(tree)) * HEADROOM
    free = processes.by_first(lambda: shutil.disk_usage(folder).free)
    if free < need:
      raise InputError(
        f"{folder}: no room for the checkpoint of step {step}: it needs {need / 2**20:.0f} MiB, "
        f"{free / 2**20:.0f} MiB are free. {self._last_good()} Free some space and run the same "
        "command again: it continues from there."
      )

  def _last_good(self) -> str:
    steps = self._latest.all_steps()
    if not steps:
      return "No checkpoint was written yet."
    return f"The last whole checkpoint is of step {max(steps)}."

  def _failure(self, step: int, error: Exception) -> InputError:
    return InputError(
      f"{self.folder}: the checkpoint of step {step} could not be written: "
      f"{error}. {self._last_good()} Free some space, or check the folder's "
      "permissions, and run the same command again: it continues from there."
    )

  def _finish(self, manager: ocp.CheckpointManager) -> None:
    try:
      manager.wait_until_finished()
    except (OSError, ValueError, RuntimeError) as error:
      raise self._failure(manager.latest_step() or 0, error) from error

  def wait(self) -> None:
    """Waits until every save is on disk; raises InputError where one could not be written."""
    self._finish(self._latest)
    self._finish(self._best)

  @property
  def latest_step(self) -> int | None:
    """The step of the latest checkpoint, None where there is none."""
    return self._latest.latest_step()

  def progress(self) -> dict:
    """The position of the loop in the latest checkpoint."""
    args = ocp.args.Composite(progress=ocp.args.JsonRestore())
    return _moved(
      self.folder, self.latest_step, self._latest.restore(self.latest_step, args=args)["progress"]
    )

  def restore(self, abstract: Any) -> tuple[Any, dict]:
    """Restores the latest state, with the shardings of `abstract`, and the position of the loop.

    The number of devices may differ from that of the run that saved.

    Raises:
      InputError: the checkpoint does not fit the model that the config describes.

    """
    step = self.latest_step
    args = ocp.args.Composite(
      state=ocp.args.StandardRestore(abstract), progress=ocp.args.JsonRestore()
    )
    try:
      restored = self._latest.restore(step, args=args)
    except (ValueError, KeyError, FileNotFoundError) as error:
      raise InputError(
        f"{self.folder}/latest/{step} cannot be restored: {error}. Was it written by "
        "another model? Start in another --workdir, or delete this one."
      ) from error
    return restored["state"], _moved(self.folder, step, restored["progress"])

  def restore_best(self, step: int, abstract: Any) -> Any:
    """Restores the variables that `save_best` saved at `step`."""
    self._finish(self._best)
    if step not in self._best.all_steps():
      raise InputError(
        f"{self.folder}/best has no checkpoint of step {step}, only "
        f"{sorted(self._best.all_steps())}: was the folder changed by hand?"
      )
    args = ocp.args.Composite(variables=ocp.args.StandardRestore(abstract))
    return self._best.restore(step, args=args)["variables"]

  def close(self) -> None:
    """Finishes all saves and ends Orbax's threads."""
    self._latest.close()
    self._best.close()

  def abandon(self) -> None:
    """`close` for a run that ends with an error: all saves are still finished.

    Otherwise a save that is under way fails when the interpreter shuts down, or hangs it.
    """
    for manager in (self._latest, self._best):
      try:
        manager.close()
      except Exception as error:  # the run's own error is the one to show
        log.warning("%s: a checkpoint under way was not finished: %s", self.folder, error)
