"""`identity.json`: what a run's results follow from, as digests, so that nothing is exchanged unnoticed.

A run's folder records the questions that it trains and is evaluated on (texts, labels and order,
after text rules and filters), another ranker's order of them where that is ranked again, the
pretrained encoder's fields and weights, the tokeniser with its vocabulary, what inputs have fitted, the
source of the package (and of the user's own classes) and the versions of packages. Digests are of
content: paths and times do not count.

Resuming compares all of it; evaluating the run's own splits again compares their data, and every use
of a run the weights, the tokeniser, the fitted inputs and the best checkpoint. What differs is
refused, but other code or versions, which a line in the log and in the results names.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from as2jax.config import base
from as2jax.config.overrides import flatten
from as2jax.data.datasets import holdout
from as2jax.data.inputs import fitted
from as2jax.data.inputs.first_stage_ranking import FirstStageRanking
from as2jax.data.inputs.teacher_scores import TeacherScores
from as2jax.data.record import Question, fingerprint
from as2jax.evaluation import results, retrieve
from as2jax.runtime import checksums, processes, regular_files, version
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole
from as2jax.training import checkpoint_digests, stored_split
from as2jax.training.build import Components
from as2jax.training.run_folder import begun

log = logging.getLogger(__name__)
NAME = "identity.json"  # in a run's folder
TRAINING = "training"  # among the splits: the questions that are left to train on, or to fit
# Keys of the config by which `data` are a run's own.
OWN_DATA = (
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


def settle(workdir: epath.PathLike, components: Components) -> dict:
  """Records the identity of a new run, or compares that of a run that is resumed.

  All processes call it; the first one computes.

  Returns:
    The record, for `results.json`.

  Raises:
    InputError: data, weights, tokeniser or inputs are not those that the run began with.

  """
  return processes.by_first(lambda: _settle(epath.Path(workdir), components))


def _settle(workdir: epath.Path, components: Components) -> dict:
  config = components.config
  splits = (holdout.selection_split(config.data), *config.evaluation.splits)
  there = (split for split in splits if split in components.data.splits)  # dev may be absent
  splits = (TRAINING, *there)
  now = {**_of_use(components), **_of_data(components, splits), **_of_code(config)}
  if now["architecture"]:
    now["architecture"] = {**now["architecture"], **_rates(components.source.module)}
  if not begun(workdir):
    _write(workdir, {**now, "changed": [], "best": {}})
    return {**now, "changed": []}
  was = read(workdir)
  _refuse(
    workdir,
    was,
    now,
    "The run cannot go on with what it did not begin with: put it back, or start in another "
    "--workdir",
  )
  known = {**_merged(was, now, _changes(workdir, was, now)), "best": {}}  # it may be saved again
  _write(workdir, known)
  return {part: its for part, its in known.items() if part != "best"}


def check(workdir: epath.PathLike, components: Components) -> list[str]:
  """Compares what every use of a run needs: weights, tokeniser and fitted inputs.

  Returns:
    What differs in code and versions, a line each.

  Raises:
    InputError: something else differs.

  """
  was = read(workdir)
  _refuse(
    workdir,
    was,
    _of_use(components),
    f"Put it back as it was, or train again: --config=rerun:{workdir}/config.json "
    "--workdir=ANOTHER",
  )
  return _changes(workdir, was, _of_code(components.config))


def check_data(
  workdir: epath.PathLike, components: Components, splits: Sequence[str]
) -> dict[str, Any]:
  """Digests of the data of `components`, compared with the run's.

  A split that the run has not used yet is recorded. Files may have been moved.

  Raises:
    InputError: one of the run's own splits has changed, or the config names other data.

  """
  now, was = _of_data(components, splits), read(workdir)
  changed = other_data(workdir, components.config)
  if changed and any(was["data"].get(name) != its for name, its in now["data"].items()):
    raise InputError(
      f"{workdir}: {'; '.join(changed)}. These are other data than the run's, of which eval/ is: to "
      "evaluate the run on others, beside its own, name them in evaluation.data (as2jax evaluate "
      f"{workdir} --data=NAME:SPLIT or FILE)"
    )
  _refuse(
    workdir,
    was,
    now,
    "Put the files back as they were; --config.evaluation.data=FILE evaluates the run on other "
    "data",
  )
  if any(name not in was["data"] for name in now["data"]):
    _write(epath.Path(workdir), _merged(was, now, []))
  return {"own": True, **now}


def other_data(workdir: epath.PathLike, config: Any) -> list[str]:
  """What a config says otherwise of the data than the run in `workdir`: `key: then, now`."""
  there = flatten(json.loads((epath.Path(workdir) / "config.json").read_text()))
  here = flatten(json.loads(config.to_json()))
  # For keys that are younger than the run.
  default = flatten(json.loads(base.get_config().to_json()))
  pairs = {key: (there.get(key, default[key]), here.get(key)) for key in OWN_DATA}
  return [f"{key}: {a!r} then, {b!r} now" for key, (a, b) in pairs.items() if a != b]


def check_best(workdir: epath.PathLike, folder: epath.PathLike, step: int) -> None:
  """Compares the best checkpoint of a finished run with the one that its results are of.

  Raises:
    InputError: it is another one.

  """
  wanted = read(workdir)["best"].get(epath.Path(folder).name)
  digest = _digest_of_best(epath.Path(folder), step)
  if wanted and digest and wanted != digest:  # what is absent or damaged, its reader says
    raise InputError(
      f"{folder}/best/{step} is not the checkpoint that this run ended with ({wanted[:SHOWN]} then, "
      f"{digest[:SHOWN]} now): put it back, or train again: --config=rerun:{workdir}/config.json "
      "--workdir=ANOTHER"
    )


def record_best(workdir: epath.PathLike, steps: Mapping[epath.PathLike, int]) -> None:
  """Records the best checkpoints of a run that ends: {folder of a group: step}."""
  if processes.first():
    best = {epath.Path(f).name: _digest_of_best(epath.Path(f), step) for f, step in steps.items()}
    _write(epath.Path(workdir), {**read(workdir), "best": best})


def _digest_of_best(folder: epath.Path, step: int) -> str:
  """Of the manifest, which has the checksum of every file."""
  manifest = folder / "best" / str(step) / checkpoint_digests.NAME
  return hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.exists() else ""


def read(workdir: epath.PathLike) -> dict:
  """The content of `identity.json`.

  Raises:
    InputError: it is absent or damaged.

  """
  path = epath.Path(workdir) / NAME
  again = "put it back, or train again in another --workdir"
  regular_files.refuse_others(path)
  try:
    return checksums.unsealed(path.read_bytes().decode("ascii"))
  except FileNotFoundError:
    if not begun(workdir):
      raise InputError(f"{workdir} holds no checkpoint and no results: train first") from None
    raise InputError(
      f"{path} is missing, so that what the run began with is not known (early versions wrote "
      f"none): {again}"
    ) from None
  except ValueError as error:
    raise InputError(f"{path} was damaged or changed by hand ({error}): {again}") from None


def _write(workdir: epath.Path, content: dict) -> None:
  write_whole(workdir / NAME, checksums.sealed(content))


def of_questions(questions: Iterable[Question], records: Iterable[Any] = ()) -> dict[str, Any]:
  """The digest of questions, and of what belongs to them (a pool), with their numbers."""
  questions = tuple(questions)
  candidates = [candidate for question in questions for candidate in question.candidates]
  return {
    "sha256": fingerprint((*questions, *records)),
    "questions": len(questions),
    "candidates": len(candidates),
    "positive": sum(candidate.label == 1 for candidate in candidates),
  }


def _rates(module: Any) -> dict[str, str]:
  """The rates of dropout, which an encoder's config may state; only training reads them."""
  fields = {name: getattr(module, name, None) for name in ("hidden_dropout", "attention_dropout")}
  return {name: repr(rate) for name, rate in fields.items() if rate is not None}


def _of_use(components: Components) -> dict[str, Any]:
  return {
    "architecture": components.provenance.get("architecture"),
    "weights": components.provenance.get("sha256"),
    "tokenizer": components.provenance.get("tokenizer"),
    "inputs": {name: fitted.digest(values) for name, values in components.fitted.items()},
  }


def _of_data(components: Components, splits: Sequence[str]) -> dict[str, Any]:
  """Digests of the data as they are used, and of other rankers' orders and scores of them."""
  digests, orders = {}, {}
  named: dict[str, Any] = {entry.name: entry for entry in components.inputs}
  ranking, teachers = (named.get(kind.name) for kind in (FirstStageRanking, TeacherScores))
  pools = getattr(components.dataset, "pools", {})
  for name in dict.fromkeys(splits):
    pool = pools[name] if name in pools else None
    digests[name] = _of_split(components, name, pool)
    if pool and components.model.has_parameters and not components.model.encodes:
      source = components.config.data.ranking
      orders[name] = retrieve.digest(source, pool, name)
    if ranking is not None and ranking.ranking is not None:
      split = ranking.for_layout(_questions(components, name))
      arrays = {str(i): order for i, order in enumerate(split)}
      orders[name] = checksums.of_arrays(arrays)
  taught = teachers is not None and teachers.teachers and TRAINING in splits
  scores = {"teachers": {TRAINING: teachers.digest()}} if taught else {}
  return {"data": digests, "first_stage_ranking": orders, **scores}


def _of_split(components: Components, name: str, pool: Any) -> dict[str, Any]:
  """Returns the digest of a split's questions and of its pool."""
  further = (*pool.passages, *pool.queries) if pool else ()
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
  own = tuple(
    name.partition(":")[0]
    for name in (config.model.name, config.loss.name, config.encoder.name)
    if ":" in name
  )
  sent = version.source()  # only on a machine that the source was sent to
  return {
    "code": version.source_digest(own),
    "versions": results.versions(),
    **({"source": sent} if sent else {}),
  }


def _refuse(workdir: epath.PathLike, was: Mapping, now: Mapping, advice: str) -> None:
  """Raises InputError with every part that differs; what one side lacks is not compared."""
  lines = []
  for part, name in PARTS.items():
    there, here = was.get(part), now.get(part)
    if isinstance(here, Mapping):
      before: Mapping = there or {}
      lines += [
        f"  {name.format(key)}: {_shown(before[key])} then, {_shown(here[key])} now"
        for key in here
        if key in before and before[key] != here[key]
      ]
    elif part in now and there != here:
      lines.append(f"  {name}: {_shown(there)} then, {_shown(here)} now")
  if lines:
    raise InputError(
      f"{workdir}: this is not what the run recorded ({NAME}):\n" + "\n".join(lines) + f"\n{advice}"
    )


def _shown(digest: str | Mapping[str, Any] | None) -> str:
  if isinstance(digest, Mapping):
    numbers = ", ".join(f"{count} {name}" for name, count in digest.items() if name != "sha256")
    return f"{digest['sha256'][:SHOWN]} ({numbers})"
  return "none" if digest is None else digest[:SHOWN]


def _changes(workdir: epath.PathLike, was: Mapping, now: Mapping) -> list[str]:
  """What differs in code and versions; one line in the log says it."""
  lines = []
  if was["code"] != now["code"]:
    lines.append(f"code {was['code'][:SHOWN]} → {now['code'][:SHOWN]}")
  for name in sorted({*was["versions"], *now["versions"]}):
    versions = [side["versions"].get(name, "absent") for side in (was, now)]
    if versions[0] != versions[1]:
      lines.append(f"{name} {versions[0]} → {versions[1]}")
  if lines:
    log.warning("%s goes on with other code or versions: %s", workdir, ", ".join(lines))
  return lines


def _merged(was: Mapping, now: Mapping, changed: Sequence[str]) -> dict:
  """The record with the splits that are used for the first time, and the changes of code."""
  added = {part: {**now[part], **was[part]} for part in ("data", "first_stage_ranking")}
  lines = [*was["changed"], *(line for line in changed if line not in was["changed"])]
  return {**was, **added, "changed": lines}
