"""What the data are, and what each run is: counts, licence, digests, versions, device, time."""

from typing import Any

from as2jax.data import dataset as datasets
from as2jax.report import markup
from as2jax.report.runs import Runs, System

SHOWN = 12  # hexadecimal digits of a digest
CHOSEN = (
  "encoder.pretrained",
  "loss.name",
  "optimizer.name",
  "optimizer.rate",
  "epochs",
  "batch.sampler",
  "data.max_length",
)


def section(runs: Runs) -> str:
  """The data's card and the identity of each run."""
  parts = [_data(runs.data_record)] if runs.data_record else []
  rows = _identity(runs)
  if rows:
    head = ["", *(system.label for system in runs.systems)]
    parts.append("<h3>Runs</h3>" + markup.table(head, rows, left=len(head)))
  return markup.section("identity", "Data and runs", *parts)


def _data(record: dict[str, Any]) -> str:
  rows = []
  for split, its in record["splits"].items():
    kept = its.get("question_filters", {}).get("clean", {})
    rows.append(
      [
        split,
        *(its.get(key, "–") for key in ("questions", "pairs", "positives")),
        kept.get("questions", "–"),
        its.get("duplicate_pairs", "–"),
        its.get("contradictory_pairs", "–"),
        its.get("verdict") or "–",
        its.get("fingerprint", "")[:SHOWN],
      ]
    )
  head = ["split", "questions", "candidates", "right", "clean questions", "duplicate pairs"]
  head += ["contradictory", "against published counts", "SHA-256"]
  shared = [
    f"{pair.replace('+', ' and ')}: {n}" for pair, n in (record.get("overlap") or {}).items()
  ]
  said = [f"question texts in two splits: {', '.join(shared)}"] if shared else []
  spec = datasets.SPECS.get(record["name"])
  said.append(f"licence: {licence(record['name'])}")
  if spec:
    said.append(f"source: {spec.citation}")
  if record.get("why"):
    said.append(f"against published counts: {record['why']}")
  if record.get("rules"):
    said.append(f"text rules: {', '.join(record['rules'])}")
  return f"<h3>{markup.text(record['name'])}</h3>{markup.table(head, rows)}{markup.items(said)}"


def licence(name: str) -> str:
  """What the distributors of a data set state, or that they state none."""
  spec = datasets.SPECS.get(name)
  if spec is None:
    return "that of your own files"
  return spec.licence or "not stated by its distributors"


def _identity(runs: Runs) -> list[list[str]]:
  """One row a fact, one column a system; rows that no system has are left out."""
  columns = [_description(system) for system in runs.systems]
  names = dict.fromkeys(name for column in columns for name in column)
  return [[name, *(column.get(name, "–") for column in columns)] for name in names]


def _description(system: System) -> dict[str, str]:
  content = system.content
  if content is None:
    return {"made": "elsewhere"}
  identity, execution = content.get("identity", {}), content.get("execution", {})
  description = {"folder": system.name, "model.name": str(_value(system.config, "model.name"))}
  for key in CHOSEN if "parameters" in content else ():
    value = _value(system.config, key)
    if value not in (None, ""):
      description[key] = str(value)
  description["seeds"] = ", ".join(map(str, system.seeds))
  trained = [outcome for outcome in content["seeds"] if outcome["steps"] > 0]
  if trained:
    description["best epoch"] = ", ".join(str(outcome["best_epoch"]) for outcome in trained)
    description["steps"] = ", ".join(str(outcome["steps"]) for outcome in trained)
  if "parameters" in content:
    counts = content["parameters"]
    description["parameters"] = f"{counts['all']:,} ({counts['trainable']:,} trained)"
  if "padding" in content:
    description["padding"] = f"{100 * content['padding']:.1f} %"
  if execution:
    count = execution.get("devices", 0)
    name = execution.get("device") or execution.get("backend", "")
    description["device"] = f"{count} × {name}"
    description["time"] = f"{execution.get('seconds', 0):,.0f} s"
  if execution.get("peak_memory_bytes"):
    description["memory"] = f"{execution['peak_memory_bytes'] / 2**30:.2f} GiB at most"
  for name in ("weights", "tokenizer", "code"):
    if identity.get(name):
      description[f"{name} (SHA-256)"] = str(identity[name])[:SHOWN]
  description["versions"] = ", ".join(
    f"{name} {v}" for name, v in content.get("versions", {}).items()
  )
  return description


def _value(config: dict[str, Any], key: str) -> Any:
  for part in key.split("."):
    config = config.get(part) if isinstance(config, dict) else None
  return config
