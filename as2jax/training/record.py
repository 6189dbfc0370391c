"""One record of a run: `config.json` says what it is, `run.json` what it follows from.

`run.json` holds digests of the questions that the run trains and is evaluated on (texts, labels and
order, after text rules and filters), of a first-stage ranking of them, of the pretrained weights, the
tokeniser and the fitted inputs; the encoder's fields; the source and versions of packages; what a warm
start copied; and digests of the best checkpoints and of `results.json`. Digests are of content: paths
and times do not count.

Resuming compares all of it; every use of a run the weights, the tokeniser, the fitted inputs, the best
checkpoint and the results. Changed data, weights or tokeniser are refused; changed code or versions are
logged.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.config import base
from as2jax.config.overrides import FREE_KEYS, differences, flatten
from as2jax.data import holdout
from as2jax.data.inputs import protocol as fitted
from as2jax.data.inputs.first_stage_ranking import FirstStageRanking
from as2jax.data.inputs.teacher_scores import TeacherScores
from as2jax.data.load import ASNQ_FILES, FILES, SPLITS
from as2jax.data.load import load as load_dataset
from as2jax.data.record import Question, fingerprint
from as2jax.evaluation import results, retrieve
from as2jax.runtime import processes, version
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import (
  digest_of_arrays,
  read_object,
  refuse_others,
  seal,
  unseal,
  write_whole,
)
from as2jax.training import checkpoints, stored_split
from as2jax.training.build import Components

log = logging.getLogger(__name__)
NAME, OLD_NAME = "run.json", "identity.json"  # versions before 0.2 wrote the second
TRAINING = "training"  # among the splits: the questions that are left to train on, or to fit
OWN_DATA = (  # keys of the config by which `data` are a run's own
  "data.name",
  "data.train",
  "data.dev",
  "data.test",
  "data.columns",
  "data.drop",
  "data.rules",
  "data.mined",
  "data.labelled_negatives",
  "data.holdout",
  "evaluation.task",
)
PARTS = {
  "data": "the questions of {!r}",
  "first_stage_ranking": "the first-stage ranking of {!r}",
  "teachers": "the teachers' scores of {!r}",
  "architecture": "the encoder's {!r}",
  "weights": "the pretrained weights",
  "tokenizer": "the tokeniser with its vocabulary",
  "inputs": "what the input {!r} has counted",
}
SHOWN = 12  # hexadecimal digits of a digest in a message
SMALL = 8 << 20  # bytes of users' files that a finished run compares before it returns its results
SEEDS = (
  "Seeds can be added after those that are there (to a single one in a local folder only), and the last that "
  "have not begun can be left out, down to two; not with seeds_parallel"
)


def begun(workdir: epath.PathLike) -> bool:
  """Returns whether the folder holds results or checkpoints, which belong to one config."""
  workdir = epath.Path(workdir)
  if (workdir / "results.json").exists():
    return True
  for pattern in ("latest/*", "best/*", "*/latest/*", "*/best/*"):
    if any(path.name.isdigit() for path in (workdir / "checkpoints").glob(pattern)):
      return True
  return False


def claim(workdir: epath.PathLike, config: Any) -> bool:
  """Writes the config into a new run's folder, or checks it against the run's config.

  A folder counts as new until its run has saved something, so that it can be used again after a
  mistake in the config was corrected.

  Returns:
    Whether the folder's config is this one. It is not where seeds are added to those that train one by
    one, or left out that have not begun: that changes nothing before `change_seeds` is called.

  Raises:
    InputError: the folder holds a run of another config; the message lists the differences.

  """
  path = epath.Path(workdir) / "config.json"
  text = config.to_json(indent=2)
  if not (path.exists() and begun(workdir)):
    write_whole(path, text + "\n")
    return True
  old, new = flatten(_read_config(path)), flatten(json.loads(text))
  changed = differences(old, new)
  seeds_alone = not differences(old, new, (*FREE_KEYS, "seeds"))
  if changed and not (seeds_alone and _may_change_seeds(epath.Path(workdir), old, new)):
    raise InputError(
      f"{workdir} holds a run of another config:\n"
      + "\n".join(changed)
      + f"\n{SEEDS}" * seeds_alone
      + f"\nGive another --workdir, or repeat that run with --config=rerun:{path}"
    )
  return not changed


def _may_change_seeds(workdir: epath.Path, old: dict[str, Any], new: dict[str, Any]) -> bool:
  """Returns whether seeds are added at the end, or left out there that have not begun."""
  before, now = old["seeds"], new["seeds"]
  both = min(len(before), len(now))
  if new["seeds_parallel"] or before[:both] != now[:both]:
    return False
  if len(before) == 1:  # its files lie in no folder of the seed; object stores cannot rename
    return "://" not in str(workdir)
  folders = [workdir / "checkpoints" / f"seed-{seed}" for seed in before[both:]]
  return len(now) > 1 and not any(folder.exists() for folder in folders)


def change_seeds(workdir: epath.PathLike, config: Any) -> None:
  """Gives a run the seeds of a config that `claim` has checked; without results, it goes on.

  What a single seed has left becomes that of one of several. Killed half-way, it begins again, as the
  config is written last.
  """
  workdir = epath.Path(workdir)
  path = workdir / "config.json"
  before = _read_config(path)["seeds"]
  if before == list(config.seeds):
    return
  log.info("%s had the seeds %s", workdir, ", ".join(map(str, before)))
  for name in ("results.json", "report.html"):
    (workdir / name).unlink(missing_ok=True)
  if len(before) == 1:
    for folder in (workdir / "checkpoints", workdir / "diagnostics", *(workdir / "eval").glob("*")):
      of_seed = folder / f"seed-{before[0]}"
      for left in [left for left in folder.glob("*") if left.name != of_seed.name]:
        of_seed.mkdir(exist_ok=True)
        left.rename(of_seed / left.name)
  write_whole(path, config.to_json(indent=2) + "\n")


def _read_config(path: epath.Path) -> dict[str, Any]:
  return read_object(path, "it was changed by hand; give another --workdir")


def check_finished(workdir: epath.PathLike, config: Any, content: dict[str, Any]) -> None:
  """Compares a config, and the users' files that it names, with the results of a finished run.

  Files that are not on this machine, or too large to be read at once, are not compared.

  Raises:
    InputError: a split is asked for that the results lack, or the data have changed.

  """
  reported = results.splits_of(content)
  first = _read_config(epath.Path(workdir) / "config.json")["evaluation"]["splits"]
  # The data may lack a split that the run itself was asked for, as its log has said.
  absent = [s for s in first if not set(s.split("+")) <= content["data"]["splits"].keys()]
  lacking = [split for split in config.evaluation.splits if split not in (*reported, *absent)]
  if lacking:
    raise InputError(
      f"evaluation.splits: {workdir} is finished, and its results are of {', '.join(reported)}, not of "
      f"{', '.join(lacking)}; as2jax evaluate {workdir} --splits={','.join(lacking)} evaluates it on them"
    )
  section = config.data.copy_and_resolve_references()
  if section.name not in (FILES, ASNQ_FILES):
    return
  size = 0
  for split in SPLITS:
    path = epath.Path(section[split]).expanduser()
    if section[split]:
      size += path.stat().length if path.exists() else SMALL + 1
  if size > SMALL:
    log.info("%s: its data were not compared with those it was trained on", workdir)
    return
  with section.unlocked():  # the fingerprints are of the files as they are
    section.holdout, section.mined, section.rules, section.labelled_negatives = 0.0, (), (), True
  changed = results.changed_split(content["data"], load_dataset(section))
  if changed:
    raise InputError(
      f"{workdir} is finished, and its data have changed since: the questions of {changed!r} are others. "
      f"Put the files back as they were, or give another --workdir; as2jax evaluate {workdir} "
      "--data=FILE evaluates the run on other data"
    )


def settle(workdir: epath.PathLike, components: Components, warm_start: Any = None) -> dict:
  """Records what a new run follows from, or compares it where a run is resumed.

  All processes call it; the first one computes.

  Args:
    workdir: the run's folder.
    components: the parts of the run.
    warm_start: what was copied from another run (JSON data), None for nothing.

  Returns:
    The record, for `results.json`.

  Raises:
    InputError: data, weights, tokeniser or inputs are not those that the run began with.

  """
  return processes.by_first(lambda: _settle(epath.Path(workdir), components, warm_start))


def _settle(workdir: epath.Path, components: Components, warm_start: Any) -> dict:
  config = components.config
  asked = (holdout.selection_split(config.data), *config.evaluation.splits)
  splits = (TRAINING, *(split for split in asked if split in components.data.splits))
  now = {**_of_use(components), **_of_data(components, splits), **_of_code(config)}
  if now["architecture"]:
    now["architecture"] = {**now["architecture"], **_rates(components.source.module)}
  if begun(workdir):
    was = read(workdir)
    _refuse(
      workdir,
      was,
      now,
      "The run cannot go on with what it did not begin with: put it back, or start in another "
      "--workdir",
    )
    known = _merged(was, now, _changes(workdir, was, now))
  else:
    known = {**now, "changed": []}
  for part in ("best", "results", "warm_start"):  # of the end, and of what began
    known.pop(part, None)
  further: dict[str, Any] = {"best": {}}
  if warm_start:
    further["warm_start"] = warm_start
  _write(workdir, known | further)
  return known


def check(workdir: epath.PathLike, components: Components) -> None:
  """Refuses another tokeniser, other weights, fitted inputs or results than the run's (InputError)."""
  was = read(workdir)
  again = f"train again: --config=rerun:{workdir}/config.json --workdir=ANOTHER"
  _refuse(workdir, was, _of_use(components), f"Put it back as it was, or {again}")
  path = epath.Path(workdir) / "results.json"
  if was.get("results") and path.exists() and was["results"] != _digest(path):
    raise InputError(f"{path} is not what the run wrote: put it back, or {again}")


def changes(workdir: epath.PathLike, config: Any) -> list[str]:
  """Returns what differs in code and versions from those that the run began with, a line each."""
  return _changes(workdir, read(workdir), _of_code(config))


def check_data(
  workdir: epath.PathLike, components: Components, splits: Sequence[str]
) -> dict[str, Any]:
  """Digests the data of `components` and compares them with the run's.

  A split that the run has not used yet is recorded. Files may have been moved.

  Raises:
    InputError: one of the run's own splits has changed, or the config names other data.

  """
  now, was = _of_data(components, splits), read(workdir)
  changed = _other_data(workdir, components.config)
  if changed and any(was["data"].get(name) != digest for name, digest in now["data"].items()):
    raise InputError(
      f"{workdir}: {'; '.join(changed)}. These are other data than the run's, of which eval/ is: to "
      "evaluate the run on others, beside its own, name them in evaluation.data (as2jax evaluate "
      f"{workdir} --data=NAME:SPLIT or FILE)"
    )
  _refuse(
    workdir,
    was,
    now,
    "Put the files back as they were; --config.evaluation.data=FILE evaluates the run on other data",
  )
  if not now["data"].keys() <= was["data"].keys():
    _write(epath.Path(workdir), _merged(was, now, []))
  return {"own": True, **now}


def _other_data(workdir: epath.PathLike, config: Any) -> list[str]:
  """Returns what a config says otherwise of the data than the run's: `key: then, now`."""
  then = flatten(json.loads((epath.Path(workdir) / "config.json").read_text()))
  now = flatten(json.loads(config.to_json()))
  default = flatten(
    json.loads(base.get_config().to_json())
  )  # of keys that are younger than the run
  lines = []
  for key in OWN_DATA:
    before = then.get(key, default[key])
    if before != now.get(key):
      lines.append(f"{key}: {before!r} then, {now.get(key)!r} now")
  return lines


def check_best(workdir: epath.PathLike, folder: epath.PathLike, step: int) -> None:
  """Raises InputError where a best checkpoint is not the one that the run ended with."""
  wanted = read(workdir)["best"].get(epath.Path(folder).name)
  digest = checkpoints.digest_of_best(folder, step)
  if wanted and digest and wanted != digest:  # what is absent or damaged, its reader says
    raise InputError(
      f"{folder}/best/{step} is not the checkpoint that this run ended with ({wanted[:SHOWN]} then, "
      f"{digest[:SHOWN]} now): put it back, or train again: --config=rerun:{workdir}/config.json "
      "--workdir=ANOTHER"
    )


def finish(workdir: epath.PathLike, best: Mapping[epath.Path, int]) -> None:
  """Records the digests of `results.json` and of the best checkpoints: {group's folder: step}."""
  if processes.first():
    digests = {
      epath.Path(folder).name: checkpoints.digest_of_best(folder, step)
      for folder, step in best.items()
    }
    path = epath.Path(workdir) / "results.json"
    _write(epath.Path(workdir), {**read(workdir), "best": digests, "results": _digest(path)})


def read(workdir: epath.PathLike) -> dict:
  """Reads `run.json`.

  Raises:
    InputError: it is absent or damaged.

  """
  path = epath.Path(workdir) / NAME
  if not path.exists() and (epath.Path(workdir) / OLD_NAME).exists():
    path = epath.Path(workdir) / OLD_NAME
  again = "put it back, or train again in another --workdir"
  refuse_others(path)
  try:
    return unseal(path.read_bytes().decode("ascii"))
  except FileNotFoundError:
    if not begun(workdir):
      raise InputError(f"{workdir} holds no checkpoint and no results: train first") from None
    raise InputError(
      f"{path} is missing, so that what the run began with is not known: {again}"
    ) from None
  except ValueError as error:
    raise InputError(f"{path} was damaged or changed by hand ({error}): {again}") from None


def _write(workdir: epath.Path, content: dict) -> None:
  write_whole(workdir / NAME, seal(content))


def _digest(path: epath.Path) -> str:
  return hashlib.sha256(path.read_bytes()).hexdigest()


def of_questions(questions: Iterable[Question], records: Iterable[Any] = ()) -> dict[str, Any]:
  """Digests questions, and what belongs to them (a pool), with their numbers."""
  questions = tuple(questions)
  labels = [candidate.label for question in questions for candidate in question.candidates]
  return {
    "sha256": fingerprint((*questions, *records)),
    "questions": len(questions),
    "candidates": len(labels),
    "positive": labels.count(1),
  }


def _rates(module: Any) -> dict[str, str]:
  """Returns the rates of dropout, which an encoder's config may state; only training reads them."""
  rates = {}
  for name in ("hidden_dropout", "attention_dropout"):
    rate = getattr(module, name, None)
    if rate is not None:
      rates[name] = repr(rate)
  return rates


def _of_use(components: Components) -> dict[str, Any]:
  return {
    "architecture": components.provenance.get("architecture"),
    "weights": components.provenance.get("sha256"),
    "tokenizer": components.provenance.get("tokenizer"),
    "inputs": {name: fitted.digest(values) for name, values in components.fitted.items()},
  }


def _of_data(components: Components, splits: Sequence[str]) -> dict[str, Any]:
  """Digests the data as they are used, and other rankers' orders and scores of them."""
  digests, orders = {}, {}
  named: dict[str, Any] = {entry.name: entry for entry in components.inputs}
  ranking, teachers = named.get(FirstStageRanking.name), named.get(TeacherScores.name)
  pools = getattr(components.dataset, "pools", {})
  for name in dict.fromkeys(splits):
    pool = pools.get(name)
    digests[name] = _of_split(components, name, pool)
    if pool and components.model.has_parameters and not components.model.encodes:
      source = components.config.data.ranking
      orders[name] = retrieve.digest(source, pool, name)
    if ranking is not None and ranking.ranking is not None:
      of_split = ranking.for_layout(_questions(components, name))
      orders[name] = digest_of_arrays({str(i): order for i, order in enumerate(of_split)})
  found: dict[str, Any] = {"data": digests, "first_stage_ranking": orders}
  if teachers is not None and teachers.teachers and TRAINING in splits:
    found["teachers"] = {TRAINING: teachers.digest()}
  return found


def _of_split(components: Components, name: str, pool: Any) -> dict[str, Any]:
  """Digests a split's questions and its pool."""
  further: Sequence[Any] = ()
  if pool:
    further = (*pool.passages, *pool.queries)
  compute = lambda: of_questions(_questions(components, name), further)
  return stored_split.digest(components, compute) if name == TRAINING else compute()


def _questions(components: Components, name: str) -> Sequence[Question]:
  model = components.model
  if name != TRAINING:
    return components.data.splits[name]
  if model.has_parameters:
    return components.train_questions()
  return components.data.splits["train"] if model.reads_training else ()


def _of_code(config: Any) -> dict[str, Any]:
  names = (config.model.name, config.loss.name, config.encoder.name)
  modules = tuple(name.partition(":")[0] for name in names if ":" in name)
  found: dict[str, Any] = {"code": version.source_digest(modules), "versions": results.versions()}
  if sent := version.source():  # only on a machine that the source was sent to
    found["source"] = sent
  return found


def _refuse(workdir: epath.PathLike, was: Mapping, now: Mapping, advice: str) -> None:
  """Raises InputError with every part that differs; what one side lacks is not compared."""
  lines = []
  for part, name in PARTS.items():
    before, here = was.get(part), now.get(part)
    if not isinstance(here, Mapping):
      if part in now and before != here:
        lines.append(f"  {name}: {_shown(before)} then, {_shown(here)} now")
      continue
    recorded: Mapping = before or {}
    for key in here.keys() & recorded.keys():
      if recorded[key] != here[key]:
        lines.append(f"  {name.format(key)}: {_shown(recorded[key])} then, {_shown(here[key])} now")
  if lines:
    listed = "\n".join(sorted(lines))
    raise InputError(f"{workdir}: this is not what the run recorded ({NAME}):\n{listed}\n{advice}")


def _shown(digest: str | Mapping[str, Any] | None) -> str:
  if isinstance(digest, Mapping):
    numbers = ", ".join(f"{count} {name}" for name, count in digest.items() if name != "sha256")
    return f"{digest['sha256'][:SHOWN]} ({numbers})"
  return "none" if digest is None else digest[:SHOWN]


def _changes(workdir: epath.PathLike, was: Mapping, now: Mapping) -> list[str]:
  """Lists what differs in code and versions; one line in the log says it."""
  lines = []
  if was["code"] != now["code"]:
    lines.append(f"code {was['code'][:SHOWN]} → {now['code'][:SHOWN]}")
  for name in sorted({*was["versions"], *now["versions"]}):
    before, here = was["versions"].get(name, "absent"), now["versions"].get(name, "absent")
    if before != here:
      lines.append(f"{name} {before} → {here}")
  if lines:
    log.warning("%s goes on with other code or versions: %s", workdir, ", ".join(lines))
  return lines


def _merged(was: Mapping, now: Mapping, changed: Sequence[str]) -> dict:
  """Adds to a record the splits that are used for the first time, and the changes of code."""
  merged = {**was, "changed": list(dict.fromkeys((*was["changed"], *changed)))}
  for part in ("data", "first_stage_ranking"):
    merged[part] = {**now[part], **was[part]}
  return merged
