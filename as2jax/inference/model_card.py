"""The model card of an exported run: what it is, made of what, how good, how to load it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from as2jax.config.overrides import flatten
from as2jax.data.text.prompts import Prompts
from as2jax.encoders import pretraining
from as2jax.models.system import PublishedForm, System

# What of a config made the model; the rest says where and how fast it was made.
SETTINGS = (
  "data.labelled_negatives",
  "data.train_filter",
  "data.holdout",
  "data.train_fraction",
  "data.max_length",
  "encoder.dtype",
  "encoder.hidden_dropout",
  "encoder.attention_dropout",
  "model.",
  "loss.",
  "optimizer.",
  "batch.sampler",
  "batch.examples",
  "batch.accumulate",
  "epochs",
  "patience",
  "select",
  "warm_start.",
)
KINDS = {
  "biencoder": "A bi-encoder: a published encoder, evaluated as it is",
  "sentence_bert": "A bi-encoder: a published Sentence-BERT",
  "triplet": "The bi-encoder of ASBERT's triplet network (Shonibare 2021)",
  "siamese": "The bi-encoder of ASBERT's siamese network (Shonibare 2021)",
  "reranker": "A published cross-encoder with its own head",
  "crossencoder": "A cross-encoder: question and sentence in one sequence, two classes",
}
CODE = {
  "sentence_transformer": """from sentence_transformers import SentenceTransformer
model = SentenceTransformer("FOLDER")
scores = model.similarity(model.encode(questions), model.encode(sentences))""",
  "sequence_classifier": """from sentence_transformers import CrossEncoder
ranked = CrossEncoder("FOLDER").rank(question, sentences)  # best first, by P(answer)""",
}
CODE["reranker"] = CODE["sequence_classifier"]
PROMPTED = """from sentence_transformers import SentenceTransformer
model = SentenceTransformer("FOLDER")
questions = model.encode(questions, prompt_name="query")
sentences = model.encode(sentences, prompt_name="document")
scores = model.similarity(questions, sentences)"""  # of a sentence transformer with prompts


def render(
  content: Mapping[str, Any],
  config: Any,
  seed: int,
  *,
  form: PublishedForm,
  model: System,
  prompts: Prompts,
) -> str:
  """The card as Markdown; every fact is from the run's results and config.

  Args:
    content: of `results.json`.
    config: the run's.
    seed: the one that is exported.
    form: what is exported.
    model: the system.
    prompts: what the run put before texts.

  """
  outcome = next(o for o in content["seeds"] if o["seed"] == seed)
  own = form.score == model.ranking_score
  metrics = outcome["metrics"] if own else outcome["other_scores"][form.score]
  parts = [
    _header(content, form),
    _about(content, config, outcome, form),
    _use(config, form, prompts),
    _results(content, outcome, metrics, form.score),
    _data(content),
    _base(content, seed),
    _training(content, config, outcome),
    _differences(config, model, form),
    _left_out(content, config, model),
  ]
  return "\n\n".join(part for part in parts if part) + "\n"


def differences(config: Any, model: System, form: PublishedForm) -> list[str]:
  """Why the exported folder would rank otherwise than the run did, one sentence a reason."""
  reasons = []
  if form.score != model.ranking_score:
    reasons.append(
      f"the run ranks by `{model.ranking_score}`, whose layers have no place in the folder, which "
      f"ranks by `{form.score}`"
    )
  if config.data.rules:
    reasons.append(
      f"the run changes texts before it reads them (data.rules = {tuple(config.data.rules)}), "
      "which the folder does not: apply these rules to questions and sentences first"
    )
  return reasons


def _header(content: Mapping[str, Any], form: PublishedForm) -> str:
  ranking, similarity = "text-ranking", "sentence-similarity"
  task = {"sequence_classifier": ranking, "reranker": ranking, "sentence_transformer": similarity}
  lines = [
    "---",
    "library_name: sentence-transformers",
    f"pipeline_tag: {task[form.kind]}",
    "tags:",
    "- answer-sentence-selection",
    "- as2jax",
  ]
  pretrained = content["weights"]["pretrained"]
  # A name on the hub: what lies in a folder of somebody's disk means nothing to a reader.
  if not epath.Path(pretrained).is_dir() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", pretrained):
    lines.append(f"base_model: {pretrained}")
  return "\n".join([*lines, "---"])


def _about(
  content: Mapping[str, Any], config: Any, outcome: Mapping[str, Any], form: PublishedForm
) -> str:
  kind = KINDS.get(config.model.name, f"The model `{config.model.name}`")
  lines = [
    f"# {config.model.name} on {content['data']['name']}",
    "",
    f"{kind}, for answer sentence selection: it ranks sentences by how well they answer a "
    f"question. Made with as2jax {content['versions']['as2jax']}, seed {outcome['seed']}.",
  ]
  if form.kind == "sentence_transformer":
    lines.append(
      f"Vectors are compared by {form.score} "
      f"{'distance, with a minus' if form.score == 'euclidean' else 'similarity'}."
    )
  if not outcome["steps"]:
    lines.append("This run took no training step: these are the weights that it began with.")
  return "\n".join(lines)


def _use(config: Any, form: PublishedForm, prompts: Prompts) -> str:
  code, said = CODE[form.kind], ""
  if form.kind == "sentence_transformer" and (prompts.question or prompts.candidate):
    code = PROMPTED
    said = (
      f" The prompt `query` is `{prompts.question}`, and `document` is `{prompts.candidate}`: without "
      "them the vectors are others."
    )
  elif prompts.question:
    said = (
      f" `{prompts.question}` stands before each question: `CrossEncoder` puts it there, and "
      "transformers' own classes do not."
    )
  return (
    f"## Use\n\n```python\n{code}\n```\n\nHigher scores are better. Inputs of more than "
    f"{config.data.max_length} tokens are cut, as they were in training.{said}"
  )


def _results(
  content: Mapping[str, Any], outcome: Mapping[str, Any], metrics: Mapping[str, Any], score: str
) -> str:
  lines = [
    "## Results",
    "",
    f"Of seed {outcome['seed']}, ranked by `{score}`; ties: "
    f"{content['ties']}. A half-width is that of the 95 % interval over questions. The "
    f"checkpoint was selected by {content['selected_on']}.",
    "",
    "| metric | value | ± half-width | questions |",
    "|---|---|---|---|",
  ]
  for name, entry in metrics.items():
    width = entry["half_width"]
    lines.append(
      f"| {name} | {entry['value']:.4f} | {'–' if width is None else f'{width:.4f}'} "
      f"| {entry['questions']} |"
    )
  lines += [f"\nNote: {note}." for note in outcome["notes"]]
  return "\n".join(lines)


def _data(content: Mapping[str, Any]) -> str:
  data = content["data"]
  pool = any("entries" in entry for entry in data["splits"].values())
  counts = ("entries", "queries", "questions") if pool else ("questions", "pairs", "positives")
  lines = [
    "## Data",
    "",
    f"`{data['name']}`, its fingerprint (SHA-256 of the records) and counts:",
    "",
    f"| split | {' | '.join(counts)} | fingerprint |",
    "|---|---|---|---|---|",
  ]
  for split, entry in data["splits"].items():
    cells = (str(entry.get(key, "–")) for key in counts)
    lines.append(f"| {split} | {' | '.join(cells)} | `{entry['fingerprint']}` |")
  return "\n".join(lines)


def _base(content: Mapping[str, Any], seed: int) -> str:
  weights = content["weights"]
  text = (
    f"## Base weights\n\n`{weights['pretrained']}`; SHA-256 of the pretrained parameters "
    f"`{weights['sha256']}`; pooler before the head: {weights['pooler']}.\n"
    + "".join(f"\n- {line}" for line in pretraining.statements(content))
  )
  if "warm_start" not in content:
    return text
  first = content["warm_start"]
  taken = next(entry for entry in first["seeds"] if entry["seed"] == seed)
  what = {"all": "all parameters", "matching": "the parameters that this model has, too,"}.get(
    first["scope"], "the encoder"
  )
  return (
    f"{text}\n\nFrom them another run made the start of this one: {what} of "
    f"`{first['model']}` trained on `{first['data']}` (step {taken['step']}; SHA-256 of what "
    f"was taken `{taken['sha256']}`)."
  )


def _training(content: Mapping[str, Any], config: Any, outcome: Mapping[str, Any]) -> str:
  flat = flatten(json.loads(config.to_json()))
  kept = {
    key: value
    for key, value in flat.items()
    if value is not None
    and any(key == name or (name.endswith(".") and key.startswith(name)) for name in SETTINGS)
  }
  lines = [
    "## Training",
    "",
    f"{outcome['steps']} steps were taken; the best checkpoint is that of step "
    f"{outcome['best_step']} (epoch {outcome['best_epoch']}).",
    "",
  ]
  lines += [f"- `{key}`: {json.dumps(value)}" for key, value in sorted(kept.items())]
  versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
  return "\n".join([*lines, "", f"Versions: {versions}."])


def _differences(config: Any, model: System, form: PublishedForm) -> str:
  reasons = differences(config, model, form)
  if not reasons:
    return ""
  lines = [f"- {reason[0].upper()}{reason[1:]}." for reason in reasons]
  return "\n".join(["## Ranks otherwise than the run", "", *lines])


def _left_out(content: Mapping[str, Any], config: Any, model: Any) -> str:
  lines = []
  if config.model.name == "siamese":
    lines.append(
      "- The head (P2 and its linear layer): only the encoder ranks here"
      + (
        ", so the run's own figures, which are the head's, are not those above."
        if model.score == "head"
        else "."
      )
    )
  if len(content["seeds"]) > 1:
    others = ", ".join(str(o["seed"]) for o in content["seeds"])
    lines.append(f"- The run's other seeds: it has {others}.")
  if config.encoder.dtype != "float32":
    lines.append(
      f"- The arithmetic: the run computed in {config.encoder.dtype}, this folder is "
      "float32, so scores differ by rounding."
    )
  lines.append("- The optimiser's state.")
  return "\n".join(["## Not exported", "", *lines])
