"""Orbax checkpoints of the latest states and of the best parameters, each written atomically.

Each has a manifest with the checksum of every file, verified before anything is read. It is written last,
when the step is whole on disk; that of a latest state holds the position of the loop, too.
"""

import concurrent.futures
import contextlib
import hashlib
import logging
from collections.abc import Generator, Sequence
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
  ". Put the files back, or run the training command again (in a finished run's folder, delete "
  "results.json first): it goes on from the newest whole checkpoint, to the bit. Where none is left, "
  "repeat the run: --config=rerun:FOLDER/config.json --workdir=ANOTHER"
)


def group_folder(workdir: epath.PathLike, seeds: Sequence[int], group: Sequence[int]) -> epath.Path:
  """Returns the absolute folder of the checkpoints of `group`, seeds of a run that train together."""
  name = "" if len(seeds) == 1 else "seed-" + "-".join(map(str, group))
  folder = epath.Path(workdir) / "checkpoints" / name
  return folder if "://" in str(folder) else epath.Path(folder.absolute())


def read_best(
  folder: epath.PathLike, step: int | None = None, *, digest: str = ""
) -> dict[str, Any]:
  """Reads, as host arrays, the newest best parameters in `folder`, or those of `step`.

  Raises:
    InputError: there are none, they are damaged, or `digest` is that of another manifest.

  """
  best = epath.Path(folder) / "best"
  if step is None and not _steps(best):
    raise InputError(f"{best} has no checkpoint: was it deleted?{AGAIN}")
  path = best / str(_steps(best)[-1] if step is None else step)
  try:
    read_manifest(path, digest=digest)
  except InputError as error:
    raise InputError(f"{error}{AGAIN}") from None
  handler = ocp.PyTreeCheckpointHandler()
  try:
    leaves, structure = jax.tree.flatten(handler.metadata(path / "variables").tree)
    host = structure.unflatten([ocp.RestoreArgs(restore_type=np.ndarray)] * len(leaves))
    variables = handler.restore(path / "variables", args=ocp.args.PyTreeRestore(restore_args=host))
  finally:
    handler.close()
  check_finite(traverse_util.flatten_dict(variables, sep="/"), path)
  return variables


def read_manifest(step: epath.Path, *, whole: bool = True, digest: str = "") -> dict[str, Any]:
  """Reads the manifest of a step and, where `whole`, compares the step's files with it.

  Raises:
    InputError: a file is absent or damaged, or the manifest has another SHA-256 than `digest`.

  """
  path = step / MANIFEST
  files.refuse_others(path)
  try:
    content = path.read_bytes()
    fields = files.unseal(content.decode("ascii"))
    paths = [step / name for name in fields["checksums"]]
    with concurrent.futures.ThreadPoolExecutor(files.THREADS) as pool:
      sums = list(pool.map(files.checksum_of, paths if whole else ()))
  except FileNotFoundError as error:
    raise InputError(f"{step} was deleted, or its save was cut off ({error})") from None
  except (OSError, ValueError) as error:
    raise InputError(f"{path} was damaged: {error}") from None
  for name, found in zip(fields["checksums"], sums):
    if found != fields["checksums"][name]:
      raise InputError(f"{step / name} was damaged: its content is not what was saved")
  if digest and digest != hashlib.sha256(content).hexdigest():
    raise InputError(f"{step} is not the checkpoint that this run ended with ({digest[:12]} then)")
  return fields


def _write_manifest(step: epath.Path, fields: dict[str, Any]) -> None:
  """Writes the manifest of a step that is whole on disk, or new `fields` (JSON data) into it."""
  if (step / MANIFEST).exists():
    content = read_manifest(step, whole=False)
  else:
    paths = sorted(_files(step))
    with concurrent.futures.ThreadPoolExecutor(files.THREADS) as pool:
      sums = list(pool.map(files.compute_checksum, paths))
    names = [str(path.relative_to(step)) for path in paths]
    content = {"checksums": dict(zip(names, sums))}
  files.write_whole(step / MANIFEST, files.seal({**content, **fields}))


def _files(folder: epath.Path) -> list[epath.Path]:
  found = []
  for entry in folder.iterdir():
    found += _files(entry) if entry.is_dir() else [entry]
  return found


def _steps(folder: epath.Path) -> list[int]:
  """Lists the steps that have a folder in `latest/` or `best/`, ascending."""
  return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def _recover(folder: epath.Path) -> None:
  """Deletes what is newer than the newest whole state and the best that it needs."""
  latest, best = folder / "latest", folder / "best"
  steps, damage = _steps(latest), []
  for step in reversed(steps):
    try:
      needed = read_manifest(latest / str(step))["progress"].get("best", -1)
      if needed >= 0:
        read_manifest(best / str(needed))
      break
    except InputError as error:
      damage.append(str(error))
  else:
    step = needed = -1
    # A first save that was cut off has lost nothing.
    if len(steps) > 1 or any((latest / str(number) / MANIFEST).exists() for number in steps):
      damage.append(f"{folder} has no whole checkpoint left to go on from{AGAIN}")
      raise InputError("\n".join(damage))
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
  """The checkpoints of one group of seeds, below its `folder` (see `group_folder`).

  `latest/` holds the last two states with the position of the loop, for resuming; `best/` holds the
  parameters and running statistics of the last three best evaluations, for ranking: a run that is killed
  goes on from an older state, whose best may be another one.
  """

  def __init__(self, folder: epath.PathLike):
    self.folder = epath.Path(folder)
    processes.by_first(lambda: _recover(self.folder))
    self._managers: dict[str, ocp.CheckpointManager] = {}
    for name, kept in (("latest", 2), ("best", 3)):
      options = ocp.CheckpointManagerOptions(
        preservation_policy=preservation_policy.LatestN(kept),
        create=True,
        enable_async_checkpointing=True,
        cleanup_tmp_directories=True,
        # Both managers save at the same time; a prefix of its own keeps their barriers apart.
        multiprocessing_options=ocp.options.MultiprocessingOptions(barrier_sync_key_prefix=name),
      )
      self._managers[name] = _Manager(self.folder / name, options=options)
    # One thread, in order: a state's manifest is written after that of the best that it names.
    self._sealer = concurrent.futures.ThreadPoolExecutor(1, "manifests")
    self._sealed: dict[str, concurrent.futures.Future] = {}

  @property
  def latest_step(self) -> int | None:
    """The step of the latest checkpoint, None where there is none."""
    return self._managers["latest"].latest_step()

  def save(self, step: int, state: Any, progress: dict) -> None:
    """Begins to save the state and the loop's position.

    A step that is saved already keeps its state, which is the same, and gets the new position.

    Args:
      progress: JSON data; `best` in it is the step of the best checkpoint that it needs.

    """
    self._put("latest", step, {"progress": progress}, state=ocp.args.StandardSave(state))

  def save_best(self, step: int, variables: Any) -> None:
    """Begins to save the parameters and running statistics of the best evaluation so far."""
    self._put("best", step, {}, variables=ocp.args.StandardSave(variables))

  def _put(self, name: str, step: int, fields: dict, **item) -> None:
    manager = self._managers[name]
    with self._writing():
      if name in self._sealed:
        self._sealed[name].result()
      if step not in manager.all_steps():
        manager.save(step, args=ocp.args.Composite(**item), force=True)
    before = self._sealed.get("best")
    self._sealed[name] = self._sealer.submit(self._seal, name, step, fields, before)

  def _seal(self, name: str, step: int, fields: dict, before: Any) -> None:
    """Waits until a step is whole on disk, and the best `before` it; then writes its manifest."""
    self._managers[name].wait_until_finished()
    if before is not None:
      before.result()
    if processes.first():
      _write_manifest(self.folder / name / str(step), fields)

  @contextlib.contextmanager
  def _writing(self) -> Generator[None]:
    """Raises InputError for what goes wrong where a checkpoint is written."""
    try:
      yield
    except (OSError, ValueError, RuntimeError) as error:
      raise InputError(
        f"{self.folder}: a checkpoint could not be written: {error}. Free some space, or check the "
        "folder's permissions, and run the same command again: it goes on from the last whole one."
      ) from error

  def wait(self) -> None:
    """Waits until every save is on disk; raises InputError where one could not be written."""
    with self._writing():
      for sealed in self._sealed.values():
        sealed.result()

  def restore(self, abstract: Any) -> tuple[Any, dict]:
    """Restores the latest state, with the shardings of `abstract`, and the position of the loop."""
    path = self.folder / "latest" / str(self.latest_step)
    args = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
    try:
      restored = self._managers["latest"].restore(self.latest_step, args=args)
    except (ValueError, KeyError, FileNotFoundError) as error:
      raise InputError(
        f"{path} cannot be restored: {error}. Was it written by another model? Start in another "
        "folder, or delete this one."
      ) from error
    progress = processes.by_first(lambda: read_manifest(path, whole=False)["progress"])
    return restored["state"], progress

  def restore_best(self, step: int, abstract: Any) -> Any:
    """Restores the variables that `save_best` saved at `step`."""
    self.wait()
    processes.by_first(lambda: read_manifest(self.folder / "best" / str(step)))
    args = ocp.args.Composite(variables=ocp.args.StandardRestore(abstract))
    return self._managers["best"].restore(step, args=args)["variables"]

  def close(self) -> None:
    """Finishes all saves and ends their threads, which would hang the interpreter's end."""
    try:
      self.wait()
    finally:
      self._sealer.shutdown()
      for manager in self._managers.values():
        manager.close()
