"""One record of a run: `config.json` says what it is, `run.json` what it follows from.

`run.json` holds digests (of content: paths and times do not count) of the questions that the run trains
and is evaluated on, of a first-stage ranking, of the pretrained weights, the tokeniser and the fitted
inputs; the encoder's fields; the source and versions of packages; what a warm start copied; and digests
of the best checkpoints and of the files that decide a score or a figure (`runtime/bound.py`).
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.config.overrides import FREE_KEYS, differences, flatten
from as2jax.data import holdout
from as2jax.data.inputs import protocol as fitted
from as2jax.data.inputs.rankings import FirstStageRanking, TeacherScores
from as2jax.data.load import ASNQ_FILES, FILES, SPLITS
from as2jax.data.load import load as load_dataset
from as2jax.data.record import Question, fingerprint
from as2jax.evaluation import results, retrieve
from as2jax.runtime import bound, files, processes, version
from as2jax.runtime.errors import InputError
from as2jax.training import checkpoints, stored_split
from as2jax.training.build import Components

log = logging.getLogger(__name__)
TRAINING = "training"  # among the splits: the questions that are left to train on, or to fit
PARTS = {
  "data": "the questions of {!r}",
  "first_stage_ranking": "the first-stage ranking of {!r}",
  "teachers": "the teachers' scores of {!r}",
  "architecture": "the encoder's {!r}",
  "weights": "the pretrained weights",
  "tokenizer": "the tokeniser with its vocabulary",
  "inputs": "what the input {!r} has counted",
}
CHANGED = "put it back as it was, or give another folder"
SHOWN = 12  # hexadecimal digits of a digest in a message
SMALL = 8 << 20  # bytes of users' files that a finished run compares before it returns its results


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

  A folder is new until its run has saved something.

  Returns:
    Whether the folder's config is this one; not where seeds are added: see `add_seeds`.

  """
  path = epath.Path(workdir) / "config.json"
  text = config.to_json(indent=2)
  if not begun(workdir):
    bound.write(workdir, path.name, text + "\n")
    return True
  bound.file(workdir, path.name)
  old, new = flatten(files.read_object(path, CHANGED)), flatten(json.loads(text))
  before = old["seeds"]
  added = not new["seeds_parallel"] and new["seeds"][: len(before)] == before
  if len(before) == 1 and "://" in str(workdir):
    added = False  # the files of a single seed are moved into a folder of the seed
  changed = differences(old, new, (*FREE_KEYS, "seeds") if added else FREE_KEYS)
  if changed:
    raise InputError(
      f"{workdir} holds a run of another config:\n"
      + "\n".join(changed)
      + "\nOnly seeds can be added, where they train one by one. Give another folder, or "
      f"repeat that run with --config=rerun:{workdir}/config.json"
    )
  return before == new["seeds"]


def add_seeds(workdir: epath.PathLike, config: Any) -> None:
  """Gives a run the seeds of a config that `claim` has checked, and binds its config.

  What a single seed has left becomes that of one of several; the config is written last.
  """
  path = epath.Path(workdir) / "config.json"
  before = files.read_object(path, CHANGED)["seeds"]
  if before == list(config.seeds):
    bound.bind(workdir, path.name)
    return
  log.info("%s had the seeds %s", workdir, ", ".join(map(str, before)))
  for name in ("results.json", "evaluation.json", "report.html"):  # of the seeds before
    (epath.Path(workdir) / name).unlink(missing_ok=True)
  if len(before) == 1:
    for folder in (path.parent / "checkpoints", *(path.parent / "eval").glob("*")):
      of_seed = folder / f"seed-{before[0]}"
      for left in list(folder.glob("*")):
        if left != of_seed:
          of_seed.mkdir(exist_ok=True)
          left.rename(of_seed / left.name)
  files.write_whole(path, config.to_json(indent=2) + "\n")
  bound.bind(workdir, path.name)


def check_finished(workdir: epath.PathLike, config: Any, content: dict[str, Any]) -> None:
  """Compares a config, and small files of the user's that it names, with a finished run."""
  reported = results.splits_of(content)
  first = files.read_object(epath.Path(workdir) / "config.json", CHANGED)["evaluation"]["splits"]
  # The data may lack a split that the run itself was asked for, as its log has said.
  absent = [s for s in first if not set(s.split("+")) <= content["data"]["splits"].keys()]
  lacking = [split for split in config.evaluation.splits if split not in (*reported, *absent)]
  if lacking:
    raise InputError(
      f"evaluation.splits: {workdir} is finished, without results of {', '.join(lacking)}; "
      f"as2jax evaluate {workdir} --splits={','.join(lacking)} evaluates it on them"
    )
  section = config.data.copy_and_resolve_references()
  if section.name in (FILES, ASNQ_FILES):
    paths = [epath.Path(section[split]).expanduser() for split in SPLITS if section[split]]
    if all(path.exists() for path in paths) and sum(p.stat().length for p in paths) <= SMALL:
      with section.unlocked():  # the fingerprints are of the files as they are
        section.holdout, section.mined, section.rules = 0.0, (), ()
        section.labelled_negatives = True
      results.require_unchanged(str(workdir), content, load_dataset(section))


def settle(workdir: epath.PathLike, components: Components, warm_start: Any = None) -> dict:
  """Records what a new run follows from, or compares it where a run is resumed.

  Args:
    warm_start: what was copied from another run (JSON data), None for nothing.

  Returns:
    The record, for `results.json`.

  """
  config, source = components.config, components.source
  asked = (holdout.selection_split(config.data), *config.evaluation.splits)
  splits = (TRAINING, *(split for split in asked if split in components.data.splits))
  now = {**_of_use(components), **_of_data(components, splits), **_of_code(config)}
  for name in ("hidden_dropout", "attention_dropout"):  # which only training reads
    rate = getattr(source and source.module, name, None)
    if rate is not None:
      now["architecture"] = {**now["architecture"], name: repr(rate)}
  known = {**now, "changed": []}
  if begun(workdir):
    advice = "The run cannot go on with what it did not begin with: put it back, or start in another folder"
    was = _compare(workdir, now, advice)
    known = _merged(was, now)
    known["changed"] = list(dict.fromkeys((*was["changed"], *changes(workdir, was, config))))
  for part in ("best", "results", "warm_start", bound.FILES):  # of the end, and of what began
    known.pop(part, None)
  began = {"warm_start": warm_start} if warm_start else {}
  bound.write_record(workdir, {**known, "best": {}, bound.FILES: {}, **began})
  return known


def check(workdir: epath.PathLike, components: Components) -> None:
  """Refuses another tokeniser, other weights or fitted inputs than the run's (InputError)."""
  again = f"train again: --config=rerun:{workdir}/config.json --workdir=ANOTHER"
  _compare(workdir, _of_use(components), f"Put it back as it was, or {again}")


def changes(workdir: epath.PathLike, was: Mapping[str, Any], config: Any) -> list[str]:
  """Lists what differs in code and versions from the record `was` of a run; the log says it, too."""
  now = _of_code(config)
  before = {"code": was["code"][:SHOWN], **was["versions"]}
  here = {"code": now["code"][:SHOWN], **now["versions"]}
  lines = []
  for name in sorted(before | here):
    if before.get(name) != here.get(name):
      lines.append(f"{name} {before.get(name, 'absent')} → {here.get(name, 'absent')}")
  if lines:
    log.warning("%s goes on with other code or versions: %s", workdir, ", ".join(lines))
  return lines


def check_data(
  workdir: epath.PathLike, components: Components, splits: Sequence[str]
) -> dict[str, Any]:
  """Digests the data of `components` and compares them with the run's (InputError).

  A split that the run has not used yet is recorded.
  """
  now = _of_data(components, splits)
  advice = f"as2jax evaluate {workdir} --data=NAME:SPLIT or FILE evaluates the run on other data"
  was = _compare(workdir, now, f"Put the files back as they were; {advice}")
  if not now["data"].keys() <= was["data"].keys():
    bound.write_record(workdir, _merged(was, now))
  return {"own": True, **now}


def finish(workdir: epath.PathLike, config: Any, best: Mapping[epath.Path, int]) -> None:
  """Records the digests of the best checkpoints, {group's folder: step}, and of all but `results.json`.

  The results are written last: a run that has them is bound.
  """
  if processes.first():
    ended: dict[str, str] = {}
    for folder, step in best.items():
      ended[folder.name] = bound.digest(folder / "best" / str(step) / checkpoints.MANIFEST)
    bound.write_record(workdir, {**read(workdir), "best": ended})
    splits = (holdout.selection_split(config.data), *config.evaluation.splits)
    written = (f"eval/{split}" for split in splits)
    bound.bind(workdir, results.LEDGER, "metrics.jsonl", *written)


def read(workdir: epath.PathLike) -> dict:
  """Reads `run.json`; InputError where it is absent or damaged."""
  if content := bound.read(workdir):
    return content
  if not begun(workdir):
    raise InputError(f"{workdir} holds no checkpoint and no results: train first")
  raise InputError(
    f"{epath.Path(workdir) / bound.NAME} is missing: put it back, or train again: "
    f"--config=rerun:{workdir}/config.json --workdir=ANOTHER"
  )


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
    further = (*pool.passages, *pool.queries) if pool else ()
    compute = lambda: of_questions(_questions(components, name), further)
    digests[name] = stored_split.digest(components, compute) if name == TRAINING else compute()
    if pool and components.model.has_parameters and not components.model.encodes:
      orders[name] = retrieve.digest(components.config.data.ranking, pool, name)
    if ranking is not None and ranking.ranking is not None:
      of_split = ranking.for_layout(_questions(components, name))
      orders[name] = files.digest_of_arrays({str(i): order for i, order in enumerate(of_split)})
  found: dict[str, Any] = {"data": digests, "first_stage_ranking": orders}
  if teachers is not None and teachers.teachers and TRAINING in splits:
    found["teachers"] = {TRAINING: teachers.digest()}
  return found


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
  if modules:  # the code of as2jax alone, by which runs of one's own classes compare with others
    found["package"] = version.source_digest()
  if sent := version.source():  # only on a machine that the source was sent to
    found["source"] = sent
  return found


def _compare(workdir: epath.PathLike, now: Mapping[str, Any], advice: str) -> dict:
  """Returns the record; InputError with all that differs from it (what one side lacks does not)."""
  was, lines = read(workdir), []
  for part in PARTS.keys() & now.keys():
    if not isinstance(now[part], Mapping):
      pairs = {"": (was.get(part), now[part])}
    else:
      recorded = was.get(part) or {}
      pairs = {key: (recorded[key], now[part][key]) for key in now[part].keys() & recorded.keys()}
    for key, (before, here) in pairs.items():
      if before != here:
        lines.append(f"  {PARTS[part].format(key)}: {_shown(before)} then, {_shown(here)} now")
  if lines:
    listed = "\n".join(sorted(lines))
    raise InputError(
      f"{workdir}: this is not what the run recorded ({bound.NAME}):\n{listed}\n{advice}"
    )
  return was


def _shown(digest: str | Mapping[str, Any] | None) -> str:
  if isinstance(digest, Mapping):
    numbers = ", ".join(f"{count} {name}" for name, count in digest.items() if name != "sha256")
    return f"{digest['sha256'][:SHOWN]} ({numbers})"
  return "none" if digest is None else digest[:SHOWN]


def _merged(was: Mapping, now: Mapping) -> dict:
  """Adds to a record the splits that are used for the first time."""
  parts = ("data", "first_stage_ranking")
  return {**was, **{part: {**now[part], **was[part]} for part in parts}}
