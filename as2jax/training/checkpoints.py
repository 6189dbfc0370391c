"""Orbax checkpoints of the latest states and of the best parameters, each written atomically.

Each has a manifest with the checksum of every file, which is verified before anything is read from it.
It is written last, when the step is whole on disk: a step without one was cut off. That of a latest
state holds the position of the loop, too. Checksums are of files, so they hold on any number of hosts.
"""

import concurrent.futures
import contextlib
import hashlib
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

from as2jax.encoders.weights import check_finite
from as2jax.runtime import processes
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import (
  THREADS,
  checksum_of,
  compute_checksum,
  refuse_others,
  seal,
  unseal,
  write_whole,
)

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"  # in the folder of a step
HEADROOM = 1.1  # a save needs this many times the size of the checkpoint as free space
AGAIN = (
  "Run the training command again (in a finished run's folder, delete results.json first): it goes "
  "on from the newest whole checkpoint, to the bit. Where none is left, repeat the run in another "
  "--workdir with --config=rerun:FOLDER/config.json; then evaluate again there"
)


def group_folder(workdir: epath.PathLike, seeds: Sequence[int], group: Sequence[int]) -> epath.Path:
  """Returns the folder of the checkpoints of `group`, the seeds of a run that train together."""
  name = "" if len(seeds) == 1 else "seed-" + "-".join(map(str, group))
  return epath.Path(workdir) / "checkpoints" / name


def best_step(folder: epath.PathLike) -> int:
  """Returns the step of the best parameters that `Checkpoints.save_best` has saved in `folder`."""
  steps = _steps(_absolute(folder) / "best")
  if not steps:
    raise InputError(f"{folder}/best has no checkpoint: was it deleted? {AGAIN}")
  return steps[-1]


def read_best(folder: epath.PathLike, step: int) -> dict[str, Any]:
  """Reads, as host arrays, what `Checkpoints.save_best` saved in `folder` at `step`.

  Raises:
    InputError: the checkpoint is absent, was damaged, or holds a number that is not finite.

  """
  folder = _absolute(folder)
  path = folder / "best" / str(step)
  if not path.exists():
    raise InputError(f"{folder}/best has no checkpoint of step {step}: was it deleted? {AGAIN}")
  _verify_or_advise(path, together=False)
  variables = read_tree(path / "variables")
  check_finite(traverse_util.flatten_dict(variables, sep="/"), path)
  return variables


def read_tree(path: epath.PathLike) -> dict[str, Any]:
  """Reads one item of a checkpoint (`state`, `variables`) as host arrays, unchecked."""
  handler = ocp.PyTreeCheckpointHandler()
  try:
    tree = handler.metadata(epath.Path(path)).tree
    host = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return handler.restore(epath.Path(path), args=ocp.args.PyTreeRestore(restore_args=host))
  finally:
    handler.close()


def read_progress(folder: epath.PathLike) -> dict:
  """The position of the loop in the latest checkpoint of `folder`, see `Checkpoints`; reads only.

  Raises:
    InputError: there is no checkpoint, or its manifest was damaged.

  """
  latest = _absolute(folder) / "latest"
  for step in reversed(_steps(latest)):
    if (latest / str(step) / MANIFEST).exists():  # else the save is not finished
      try:
        return _read_manifest(latest / str(step))["progress"]
      except InputError as error:
        raise InputError(f"{error}. {AGAIN}") from None
  raise InputError(f"{latest} holds no checkpoint: train first; was it deleted? Train again")


def digest_of_best(folder: epath.PathLike, step: int) -> str:
  """Returns the SHA-256 of a best checkpoint's manifest, "" where there is none."""
  manifest = epath.Path(folder) / "best" / str(step) / MANIFEST
  return hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.exists() else ""


def _write_manifest(step: epath.Path, **fields: Any) -> None:
  """Writes the manifest of a step that is whole on disk, with `fields` (JSON data) in it.

  The files are read back for it, once: a manifest that is there keeps its checksums.
  """
  if not processes.first():
    return
  if (step / MANIFEST).exists():
    write_whole(step / MANIFEST, seal({**_read_manifest(step), **fields}))
    return
  names = sorted(str(path.relative_to(step)) for path in _files(step))
  with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
    sums = list(pool.map(lambda name: compute_checksum(step / name), names))
  sizes = {name: (step / name).stat().length for name in names}
  content = {"bytes": sizes, "checksums": dict(zip(names, sums)), **fields}
  write_whole(step / MANIFEST, seal(content))


def _read_manifest(step: epath.Path) -> dict[str, Any]:
  path = step / MANIFEST
  if not path.exists():
    raise InputError(f"{step} has no {MANIFEST}: the save was cut off, or the file was deleted")
  refuse_others(path)
  try:
    return unseal(path.read_bytes().decode("ascii"))
  except (OSError, ValueError) as error:
    raise InputError(f"{path} was damaged: {error}") from None


def _verify(step: epath.PathLike, *, together: bool) -> dict[str, Any]:
  """Compares the files of a step with its manifest, and returns the manifest's content.

  Args:
    step: its folder.
    together: whether all processes call it, and share the work and the answer.

  Raises:
    InputError: a file is missing or has other content, or the manifest is not there or damaged.

  """
  step = epath.Path(step)
  if together:
    fields = processes.by_first(lambda: _read_manifest(step))
    names = sorted(fields["checksums"])[processes.index() :: processes.count()]
  else:
    fields = _read_manifest(step)
    names = sorted(fields["checksums"])
  with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
    damaged = [text for text in pool.map(lambda name: _damage(step, name, fields), names) if text]
  if together:
    damaged = sum(processes.gather(lambda: damaged), [])
  if damaged:
    more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
    raise InputError(f"{damaged[0]}{more}")
  return fields


def _damage(step: epath.Path, name: str, fields: dict[str, Any]) -> str:
  """Says what is wrong with one file; "" where nothing is."""
  path = step / name
  try:
    size, wanted = path.stat().length, fields["bytes"][name]
    if size != wanted:
      return f"{path} was damaged: it has {size} bytes, {wanted} were saved"
    if checksum_of(path) != fields["checksums"][name]:
      return f"{path} was damaged: its content is not what was saved"
  except OSError as error:
    return f"{path} was damaged: it cannot be read ({error})"
  return ""


def _files(folder: epath.Path) -> list[epath.Path]:
  found = []
  for entry in folder.iterdir():
    found += _files(entry) if entry.is_dir() else [entry]
  return found


def _verify_or_advise(step: epath.Path, *, together: bool) -> None:
  try:
    _verify(step, together=together)
  except InputError as error:
    raise InputError(f"{error}. {AGAIN}") from None


def _absolute(folder: epath.PathLike) -> epath.Path:
  """Orbax needs absolute paths; those of object stores are absolute."""
  folder = epath.Path(folder)
  return folder if "://" in str(folder) else epath.Path(folder.absolute())


def _steps(folder: epath.Path) -> list[int]:
  """The steps that have a folder in `latest/` or `best/`, ascending."""
  return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def _recover(folder: epath.Path) -> None:
  """Leaves only what the newest whole state, and what it needs, were saved before.

  Newer steps are deleted, damaged or not: the loop goes on from there and saves them again.

  Raises:
    InputError: there are states, and none of them is whole.

  """
  latest, best = folder / "latest", folder / "best"
  steps, damage = processes.by_first(lambda: _steps(latest)), []
  for step in reversed(steps):
    try:
      content = _verify(latest / str(step), together=True)
      needed = content["progress"].get("best", -1)
      if needed >= 0:
        _verify(best / str(needed), together=True)
      break
    except InputError as error:
      damage.append(str(error))
  else:
    step = needed = -1
    sealed = lambda: [(latest / str(n) / MANIFEST).exists() for n in steps]
    if len(steps) > 1 or any(processes.by_first(sealed)):
      raise InputError(
        "\n".join(damage) + f"\n{folder} has no whole checkpoint left to go on from. Put the files "
        "back from a copy, or repeat the run in another --workdir with "
        "--config=rerun:FOLDER/config.json"
      )
  for text in damage:
    log.warning("%s", text)
  if damage:
    log.warning("going back to %s", f"the checkpoint of step {step}" if step >= 0 else "the start")

  def drop():
    for kept, newest in ((latest, step), (best, needed)):
      for number in _steps(kept):
        if number > newest:
          (kept / str(number)).rmtree()

  processes.by_first(drop)


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

  `latest/` holds the last two states with the position of the loop, for resuming; `best/` holds the
  parameters and running statistics of the best evaluation, for ranking. Three best checkpoints are
  kept: a run that is killed between a best checkpoint and the state that names it goes on from an
  older state, whose best may be another one.

  Opening verifies the newest state and its best, falls back to the state before where one of them
  is damaged or was cut off, says so in the log, and deletes what is newer.

  Raises:
    InputError: there are states, and none of them is whole.

  """

  def __init__(self, folder: epath.PathLike):
    self.folder = _absolute(folder)
    _recover(self.folder)
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

  def save(self, step: int, state: Any, progress: dict) -> None:
    """Begins to save the state and the loop's position.

    A step that is saved already keeps its state, which is the same. Its position may differ (a run
    that was stopped in an evaluation has saved before it) and replaces the one before.

    Args:
      progress: JSON data; `best` in it is the step of the best checkpoint that it needs.

    """
    self._put(self._latest, step, state, progress=progress)

  def save_best(self, step: int, variables: Any) -> None:
    """Begins to save the parameters and running statistics of the best evaluation so far."""
    self._put(self._best, step, variables)

  def _put(self, manager: ocp.CheckpointManager, step: int, tree: Any, **fields) -> None:
    self._finish(manager)
    if step not in manager.all_steps():
      self._check_space(step, tree)
      item = "variables" if manager is self._best else "state"
      try:
        manager.save(
          step, args=ocp.args.Composite(**{item: ocp.args.StandardSave(tree)}), force=True
        )
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
    _write_manifest(epath.Path(manager.directory) / str(step), **fields)

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
    latest = self.folder / "latest"
    steps = [step for step in _steps(latest) if (latest / str(step) / MANIFEST).exists()]
    if not steps:
      return "No checkpoint was written yet."
    return f"The last whole checkpoint is of step {steps[-1]}."

  def last_finite(self) -> str:
    """Names the newest state on disk, whose numbers were all finite (see `states.check_finite`)."""
    with contextlib.suppress(InputError):  # a save that failed is not what the caller reports
      self._finish(self._latest)
    return self._last_good()

  def _failure(self, step: int, error: Exception) -> InputError:
    return InputError(
      f"{self.folder}: the checkpoint of step {step} could not be written: "
      f"{error}. {self._last_good()} Free some space, or check the folder's "
      "permissions, and run the same command again: it continues from there."
    )

  def _finish(self, manager: ocp.CheckpointManager) -> None:
    try:
      if manager in self._sealed:
        self._sealed[manager].result()
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

  def restore(self, abstract: Any) -> tuple[Any, dict]:
    """Restores the latest state, with the shardings of `abstract`, and the position of the loop.

    The number of devices may differ from that of the run that saved.

    Raises:
      InputError: the checkpoint does not fit the model that the config describes.

    """
    step = self.latest_step
    args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
    try:
      restored = self._latest.restore(step, args=args)
    except (ValueError, KeyError, FileNotFoundError) as error:
      raise InputError(
        f"{self.folder}/latest/{step} cannot be restored: {error}. Was it written by "
        "another model? Start in another --workdir, or delete this one."
      ) from error
    self._finish(self._latest)
    path = self.folder / "latest" / str(step)
    return restored["state"], processes.by_first(lambda: _read_manifest(path)["progress"])

  def restore_best(self, step: int, abstract: Any) -> Any:
    """Restores the variables that `save_best` saved at `step`.

    Raises:
      InputError: there is no such checkpoint, or it was damaged.

    """
    self._finish(self._best)
    if step not in self._best.all_steps():
      raise InputError(
        f"{self.folder}/best has no checkpoint of step {step}, only "
        f"{sorted(self._best.all_steps())}: was the folder changed by hand?"
      )
    _verify_or_advise(self.folder / "best" / str(step), together=True)
    args = ocp.args.Composite(variables=ocp.args.StandardRestore(abstract))
    return self._best.restore(step, args=args)["variables"]

  def close(self) -> None:
    """Finishes all saves and ends their threads."""
    self.wait()
    self._end_threads()

  def _end_threads(self) -> None:
    self._sealer.shutdown()
    for manager in (self._latest, self._best):
      manager.close()

  def abandon(self) -> None:
    """`close` for a run that ends with an error: all saves are still finished.

    Otherwise a save that is under way fails when the interpreter shuts down, or hangs it.
    """
    for end in (self.wait, self._end_threads):
      try:
        end()
      except Exception as error:  # the run's own error is the one to show
        log.warning("%s: a checkpoint under way was not finished: %s", self.folder, error)
