"""Say in sentences which system is better, and what speaks against trusting it."""

from collections.abc import Sequence
from typing import Any

from as2jax.data import card
from as2jax.encoders import pretraining
from as2jax.evaluation import compare, metrics, results, significance
from as2jax.report import plots
from as2jax.report.runs import Runs, System

LEVEL = 0.05
PROTOCOL = {
  "rerank": "each question's own candidates are ranked",
  "retrieve": "one pool of sentences is ranked for every question",
}
Row = dict[str, Any]
FIRST = "ranks a right answer first in {:.0f} of 100 questions"
TOLD = {  # of the difference from the first system, by `compare`'s tests of models and of methods
  (True, True): "the difference{} is larger than chance",
  (True, False): (
    "the difference{} is larger than chance between these trained models, and not shown of other seeds"
  ),
  (False, False): "these questions cannot tell whether the difference{} is chance",
}


def plain(runs: Runs, rows: Sequence[Row], first: Sequence[Row]) -> str:
  """Say how often each system ranks a right answer first, and whether that is chance.

  Args:
    rows: of `compare.compare`: P@1 or R@1, or where a system lacks these the page's first metric.
    first: of the page's first metric, named where its tests tell otherwise.

  """
  parts: list[str] = []
  metric, _ = _metric(rows[0])
  for row in sorted(rows, key=lambda row: -row["mean"]):
    said = "in {:.0f}" if parts else FIRST
    if metric not in ("P@1", "R@1"):
      said = "{:.0f} %" if parts else f"has {metric} {{:.0f}} %"
    parts.append(f"{row['system']} {said.format(100 * row['mean'])}")
  told, otherwise = (_told(of_metric) for of_metric in (rows, first))
  if told != otherwise:
    told = f"{told}; by {_metric(first[0])[0]}, {otherwise}"
  if len(rows) == 1 and (before := plots.before_training(runs.systems[0])):
    told = "its {} was {:.3f} before training and is {:.3f} at its best".format(*before)
  return f"{'; '.join(filter(None, (', '.join(parts), told)))}."


def _told(rows: Sequence[Row]) -> str:
  """Say of which systems the difference from the first one is larger than chance."""
  found: dict[str, list[str]] = {}
  for row in rows[1:]:
    models = row.get("p_randomization_holm", row["p_randomization"]) < LEVEL
    methods = not row["methods_note"] and row.get("p_methods_holm", row["p_methods"]) < LEVEL
    found.setdefault(TOLD[models, models and methods], []).append(row["system"])
  said = []
  for sentence, systems in found.items():
    between = f" of {' and of '.join(systems)} from {rows[0]['system']}"
    said.append(sentence.format(between if len(rows) > 2 else ""))
  return "; ".join(said)


def lines(runs: Runs, rows: Sequence[Row]) -> list[str]:
  """Return the verdict: a sentence a later system, or one on the system alone."""
  if len(rows) > 1:
    return [sentence(row, rows[0]) for row in rows[1:]]
  (row,) = rows
  metric, where = _metric(row)
  width = "" if row["half_width"] is None else f" ± {row['half_width']:.3f}"
  counted = f"{significance.count_text(row['questions'], row['groups'])}, seeds: {row['seeds']}"
  if row["sd"] is not None:
    counted += f" with s.d. {row['sd']:.3f}"
  return [f"{runs.systems[0].label} has {metric} {row['mean']:.3f}{width} on {where} ({counted})."]


def sentence(row: Row, base: Row) -> str:
  """Say which system is better on what, by how much, as a model and as a method."""
  metric, where = _metric(row)
  us, them, gain = row["system"], base["system"], row["difference"]
  size = f"by {abs(gain):.3f} ± {row['difference_half_width']:.3f}"
  p = row.get("p_randomization_holm", row["p_randomization"])
  told = f"p {_p(p)} by the randomization test over questions"
  if p != row["p_randomization"]:
    told += ", adjusted by Holm's method"
  way, better = ("higher", "better") if gain > 0 else ("lower", "worse")
  if gain == 0:
    head = f"{us} and {them} have the same {metric} on {where}"
  elif p < LEVEL:
    head = f"{us} is {better} than {them} in {metric} on {where}, {size}"
  else:
    head = f"No difference between {us} and {them} is shown: {metric} is {way} {size} on {where}"
  methods = f"a difference {row['methods_note']}."
  if not row["methods_note"]:
    p = row.get("p_methods_holm", row["p_methods"])
    methods = (
      f"they {'differ' if p < LEVEL else 'are not shown to differ'}: ± {row['methods_half_width']:.3f} "
      f"over seeds and questions, p {_p(p)}; a difference of {row['methods_detectable']:.3f} would be "
      "found in 80 % of cases."
    )
  counted = f"{significance.count_text(row['questions'], row['groups'])}; seeds: {row['seeds']} against {base['seeds']}"
  return f"{head} ({counted}). These models: {told}. These methods: {methods}"


def _metric(row: Row) -> tuple[str, str]:
  name, _, where = row["metric"].rstrip("]").partition("[")
  return name.upper(), where


def _p(p: float) -> str:
  said = compare.p_text(p)
  return said.replace("<", "< ") if said.startswith("<") else f"= {said}"


def protocol(runs: Runs, row: Row) -> str:
  """Say how the figures were measured, in a line."""
  said = f"Protocol: {PROTOCOL[runs.task]}, questions of {_metric(row)[1]}"
  selectors: dict[str, list[str]] = {}
  for system in runs.systems:
    if system.content and any(outcome["steps"] > 0 for outcome in system.content["seeds"]):
      selectors.setdefault(system.content["selected_on"], []).append(system.label)
  if runs.first_run is not None:
    said += f"; ties: {runs.first_run.content['ties']}"
  if selectors:
    chosen = [f"{selector} ({', '.join(labels)})" for selector, labels in selectors.items()]
    said += f"; the best checkpoint was chosen by {' and '.join(chosen)}"
  return said + "; ± is the 95 % half-width over questions."


def caveats(runs: Runs, rows: Sequence[Row]) -> list[str]:
  """Return what a careful reader would hold against the comparison."""
  found: list[str] = []
  codes = set()
  for system, row in zip(runs.systems, rows, strict=True):
    found += [f"{system.label}: {line}" for line in _of_system(system, row, runs.split)]
    codes.add(system.code)
  found += [row["groups_note"] for row in rows[:1] if row["groups_note"]]
  if runs.data_record:
    found += card.wrong(runs.data_record)
  if len(codes - {None}) > 1:
    found.append("the runs were made by different versions of the code")
  return found + pretraining.under_table(system.scores.pretraining for system in runs.systems)


def _of_system(system: System, row: Row, split: str) -> list[str]:
  content, found = system.content, []
  if row["seeds"] == 1 and not system.scores.deterministic:
    found.append(f"one seed: whether the method differs from another {significance.ONE_SEED}")
  if system.scores.shared_stage:
    found.append("its seeds began with one first stage, so that they are not independent runs")
  if row["note"]:
    found.append(f"{row['note']}: training did not improve it")
  if content is None:
    return [*found, "made elsewhere: how it was trained, and what it has seen, is not known here"]
  for outcome in content["seeds"]:
    entry = outcome["metrics"].get(row["metric"], {"best": 0, "worst": 0})
    if entry["best"] - entry["worst"] > metrics.TIE_TOLERANCE:
      found.append(
        f"ties touch {entry['tied_questions']} questions of seed {outcome['seed']}: by their order the "
        f"mean lies between {entry['worst']:.4f} and {entry['best']:.4f}"
      )
  for line in content.get("identity", {}).get("changed", ()):
    found.append(f"changed while it ran: {line}")
  if "test" in split.split("+"):
    count = results.times_evaluated(system.place, "test", content["data"]["name"])
    if count != (1, 1):
      found.append(results.ledger_note(count))
  return found
