"""The model card of an exported run: what it is, made of what, how good, how to load it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from etils import epath

from as2jax.config.overrides import flatten
from as2jax.data.text.input_templates import Prompts
from as2jax.encoders import pretraining
from as2jax.models.system import PublishedForm, System

# What of a config made the model; the rest says where and how fast it was made.
SETTINGS = (
  "data.max_length",
  "data.train_filter",
  "data.train_fraction",
  "encoder.dtype",
  "model.",
  "loss.",
  "optimizer.",
  "batch.examples",
  "epochs",
  "patience",
  "select",
  "warm_start.",
)
SCOPES = {"all": "all parameters", "matching": "all parameters of both", "encoder": "the encoder"}
CARD = """\
---
library_name: sentence-transformers
pipeline_tag: {{ "sentence-similarity" if bi_encoder else "text-ranking" }}
tags:
- answer-sentence-selection
- as2jax
{% if on_hub %}base_model: {{ weights.pretrained }}
{% endif %}---

# {{ config.model.name }} on {{ data.name }}

A {{ "bi-encoder" if bi_encoder else "cross-encoder" }} (the model `{{ config.model.name }}`) for answer \
sentence selection: it ranks sentences by how well they answer a question. \
Made with as2jax {{ versions.as2jax }}, seed {{ outcome.seed }} of {{ seeds | join(", ", attribute="seed") }}.

## Use

```python
{% if not bi_encoder %}from sentence_transformers import CrossEncoder
ranked = CrossEncoder("FOLDER").rank(question, sentences)  # best first, by P(answer)
{% else %}from sentence_transformers import SentenceTransformer
model = SentenceTransformer("FOLDER")
{% if prompted %}questions = model.encode(questions, prompt_name="query")
sentences = model.encode(sentences, prompt_name="document")
scores = model.similarity(questions, sentences)
{% else %}scores = model.similarity(model.encode(questions), model.encode(sentences))
{% endif %}{% endif %}```

Higher scores are better. Inputs of more than {{ config.data.max_length }} tokens are cut, as in training.\
{% if bi_encoder and prompted %} The prompt `query` is `{{ prompts.question }}`, and `document` is \
`{{ prompts.candidate }}`: without them the vectors are others.\
{% elif prompts.question %} `{{ prompts.question }}` stands before each question: `CrossEncoder` puts \
it there, and transformers' own classes do not.{% endif %}

## Results

Of seed {{ outcome.seed }}, ranked by `{{ form.score }}`; ties: {{ ties }}. A half-width is that of the \
95 % interval over questions.

| metric | value | ± half-width | questions |
|---|---|---|---|
{% for metric, entry in metrics.items() %}| {{ metric }} | {{ "%.4f" % entry.value }} | \
{{ "–" if entry.half_width is none else "%.4f" % entry.half_width }} | {{ entry.questions }} |
{% endfor %}{% for note in outcome.notes %}
Note: {{ note }}.
{% endfor %}
## Training

{% if outcome.steps < 1 %}Not trained: these are the weights that it began with.
{% else %}Trained for {{ outcome.steps }} steps, {{ config.epochs }} epochs at most, on the split train of \
`{{ data.name }}`{% if "train" in data.splits %} ({{ data.splits.train.questions }} questions, \
{{ data.splits.train.pairs }} candidates, {{ data.splits.train.positives }} of them right)\
{% endif %}, by the loss `{{ config.loss.name }}` and {{ config.optimizer.name }} with a rate of {{ config.optimizer.rate }}. \
{% if outcome.best_epoch %}Kept is the best checkpoint, of epoch {{ outcome.best_epoch }} (step {{ outcome.best_step }}), \
{% else %}No epoch was better than the start, whose weights these are, {% endif %}by {{ selected_on }}.
{% endif %}
## Made of

`{{ data.name }}` (SHA-256 of its records) and the weights `{{ weights.pretrained }}` (SHA-256 \
`{{ weights.sha256 }}`; pooler before the head: {{ weights.pooler }}):

{% for split, entry in data.splits.items() %}- {{ split }}: `{{ entry.fingerprint }}`
{% endfor %}{% for line in statements %}- {{ line }}
{% endfor %}{% if warm_start %}
Another run made the start of this one: {{ scopes[warm_start.scope] }} of \
`{{ warm_start.model }}` trained on `{{ warm_start.data }}` (step {{ taken.step }}; SHA-256 of what was \
taken `{{ taken.sha256 }}`).
{% endif %}
{% for key, value in settings %}- `{{ key }}`: {{ value }}
{% endfor %}
Versions: {% for name, version in versions.items() %}{{ name }} {{ version }}\
{{ ", " if not loop.last }}{% endfor %}.
{% if reasons %}
## Ranks otherwise than the run

{% for reason in reasons %}- {{ reason[0] | upper }}{{ reason[1:] }}.
{% endfor %}{% endif %}"""


def render(
  content: Mapping[str, Any],
  config: Any,
  seed: int,
  *,
  form: PublishedForm,
  model: System,
  prompts: Prompts,
) -> str:
  """Returns the card as Markdown; every fact is from the run's results and config.

  Args:
    content: of `results.json`; config: the run's.
    seed: the one that is exported; form: what is exported.
    model: the system; prompts: what the run put before texts.

  """
  import jinja2

  outcome = next(one for one in content["seeds"] if one["seed"] == seed)
  pretrained = content["weights"]["pretrained"]
  settings = []
  for key, value in sorted(flatten(json.loads(config.to_json())).items()):
    if value is not None and key.startswith(SETTINGS):
      settings.append((key, json.dumps(value)))
  facts = {**content, "taken": {}}
  if facts.setdefault("warm_start", None):
    facts["taken"] = next(one for one in content["warm_start"]["seeds"] if one["seed"] == seed)
  facts["metrics"] = outcome["metrics"]
  if form.score != model.ranking_score:
    facts["metrics"] = outcome["other_scores"][form.score]
  environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
  return environment.from_string(CARD).render(
    **facts,
    config=config,
    # A name on the hub: what lies in a folder of somebody's disk means nothing to a reader.
    on_hub=not epath.Path(pretrained).is_dir() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", pretrained),
    statements=pretraining.statements(content),
    scopes=SCOPES,
    outcome=outcome,
    form=form,
    bi_encoder=form.kind == "sentence_transformer",
    prompts=prompts,
    prompted=bool(prompts.question or prompts.candidate),
    settings=settings,
    reasons=differences(config, model, form),
  )


def differences(config: Any, model: System, form: PublishedForm) -> list[str]:
  """Returns why the exported folder would rank otherwise than the run did, one sentence a reason."""
  reasons = []
  if form.score != model.ranking_score:
    reasons.append(
      f"the run ranks by `{model.ranking_score}`, whose layers have no place in the folder, which "
      f"ranks by `{form.score}`: the run's own figures are not those above"
    )
  if config.data.rules:
    reasons.append(
      f"the run changes texts before it reads them (data.rules = {tuple(config.data.rules)}), "
      "which the folder does not: apply these rules to questions and sentences first"
    )
  return reasons
