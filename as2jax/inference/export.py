"""A trained run for the original libraries (`as2jax export`), with a model card.

A bi-encoder becomes a sentence-transformers folder, a cross-encoder one that transformers'
AutoModelForSequenceClassification and sentence-transformers' CrossEncoder load.
"""

import dataclasses
import json
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from flax import traverse_util
from safetensors import SafetensorError

from as2jax.config.overrides import flatten
from as2jax.data.text.input_templates import Prompts
from as2jax.encoders import (
  cross_encoder_folder,
  hub,
  pretraining,
  sentence_folder,
  transformer_folder,
  weights,
)
from as2jax.encoders import family as families
from as2jax.inference.run import Run
from as2jax.models.system import PublishedForm, System, exported_form
from as2jax.runtime import bound, registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import lock
from as2jax.runtime.version import __version__
from as2jax.training.build import Components

log = logging.getLogger(__name__)

LABELS = {0: "answer"}  # one logit, w₁ − w₀, whose sigmoid is P(1)
SIGMOID = "activation.Sigmoid"
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


def export(
  run: epath.PathLike, output: epath.PathLike, seed: int | None = None, *, allow_code: bool = False
) -> pathlib.Path:
  """Writes the best checkpoint of a seed of a finished run to a new folder, whole or not at all.

  `allow_code` is that of `as2jax.load`.
  """
  opened = Run(run, as_begun=True, allow_code=allow_code)
  config, content = opened.config, opened.results
  if not registry.has_parameters(config.model.name):
    raise InputError(f"{run} is a run of {config.model.name}, which has no parameters to export")
  if seed is None and len(opened.seeds) > 1:
    raise InputError(f"the run has the seeds {opened.seeds}: choose one with --seed")
  seed = opened.check_seed(seed)
  if "://" in str(output) or os.path.isfile(output) or list(pathlib.Path(output).glob("*")):
    raise InputError(f"{output} is not a new or empty local folder; name one")
  components = opened.components
  form = exported_form(components.model)
  params = opened.parameters(seed)
  for text in differences(config, components.model, form):
    log.warning("%s ranks otherwise than the run: %s", output, text)
  base, lower_case = _base(components, form)
  card = render_card(
    content, components.config, seed, form=form, model=components.model, prompts=components.prompts
  )
  output = pathlib.Path(output)
  scratch = output.absolute().parent / f".{output.name}.unfinished"
  with lock(scratch, str(output)):
    whole = scratch / "whole"
    shutil.rmtree(whole, ignore_errors=True)  # of a process that was killed
    try:
      whole.mkdir()
      write(whole, components, params, form=form, base=base, lower_case=lower_case)
      head, rest = card.split("\n", 1)
      card = "\n".join([head, bound.card_line(whole), rest])
      (whole / bound.CARD).write_text(card, encoding="utf-8")
      os.replace(whole, output)
    except (OSError, SafetensorError) as error:
      raise InputError(f"{output} cannot be written: {error}") from error
    finally:
      shutil.rmtree(scratch, ignore_errors=True)
  return output


def write(
  folder: pathlib.Path,
  components: Components,
  params: Mapping[str, np.ndarray],
  *,
  form: PublishedForm,
  base: epath.PathLike,
  lower_case: bool,
) -> None:
  """Writes all of the folder but its model card.

  Args:
    params: of the model, by path.
    form: the architecture, from `exported_form`.
    base: the folder of the transformer that the run began with.
    lower_case: whether texts are lower-cased before the tokeniser sees them.

  """
  encoder = components.model.encoder
  family = families.of(encoder)
  source = {"base": base, "encoder": encoder, "family": family}
  prompts = dataclasses.astuple(components.prompts)
  # The pooler of BERT's pre-training is no part of the encoder; the library expects it there.
  pooler = components.source.pooler if form.kind == "sentence_transformer" else None
  tensors = weights.to_tensors(_below(params, "encoder/"), encoder, pooler)
  stems, settings, layers, pooling = (), {}, [], form.pooling
  if form.kind == "sentence_transformer":
    for number, dense in enumerate(form.dense):
      layers.append((("dense", *dense), _below(params, f"dense_{number}/")))
    if form.normalize:
      layers.append((("normalize",), {}))
  else:
    stems, settings, layers = _head(form, family, params, base)
  if stems:
    tensors = {family.prefix + name: tensor for name, tensor in tensors.items()}
    for (layer, leaves), stem in zip(layers, stems, strict=True):
      tensors |= sentence_folder.tensors_of(layer, stem, leaves)
  architecture = family.classes + ("ForSequenceClassification" if stems else "Model")
  transformer_folder.write_transformer(
    folder, tensors, architecture=architecture, settings=settings, **source
  )
  if stems:
    pooling, layers = (), []
  if not stems or prompts[0] or lower_case:
    sentence_folder.write_modules(
      folder,
      width=encoder.hidden_size,
      pooling=pooling,
      layers=layers,
      prompts=prompts,
      max_length=components.config.data.max_length,
      lower_case=lower_case,
      version=__version__,
      similarity=form.score if form.kind == "sentence_transformer" else "",
    )
  transformer_folder.write_tokenizer(
    folder,
    tokenizer=components.source.tokenizer,
    family=family,
    max_length=components.config.data.max_length,
    typed=form.typed,
  )


def _head(
  form: PublishedForm,
  family: families.Transformer,
  params: Mapping[str, np.ndarray],
  base: epath.PathLike,
) -> tuple[Sequence[str], dict[str, Any], list[tuple[tuple, dict[str, np.ndarray]]]]:
  """Returns the head of a cross-encoder, as a sequence classifier's layers or as modules.

  Returns:
    The stem of each layer's tensors, () of modules; the config's settings; (layer, its parameters).

  """
  if "head/kernel" not in params:  # a published head
    layers = [(layer, _below(params, f"layer_{n}/")) for n, layer in enumerate(form.layers)]
    stems, classes = cross_encoder_folder.stems(base), form.layers[-1][1]
    if not stems:
      return (), {}, layers
    names = cross_encoder_folder.labels(base) or [f"LABEL_{i}" for i in range(classes)]
    return stems, _labels(names, SIGMOID if classes == 1 else "linear.Identity"), layers
  kernel, bias = params["head/kernel"], params["head/bias"]
  single = {"kernel": kernel[:, 1:] - kernel[:, :1], "bias": bias[1:] - bias[:1]}  # w₁ − w₀
  layers, parts = [(("dense", 1, "identity", True), single)], ["head"]
  if "pooler/kernel" in params:
    pooler = _below(params, "pooler/")
    layers = [(("dense", len(pooler["bias"]), "tanh", True), pooler), *layers]
    parts = ["pooler", "head"]
  if form.kind == "reranker":
    return (), {}, layers
  settings = _labels(list(LABELS.values()), SIGMOID)
  settings |= family.classifier_settings(form.pooler, form.dropout)
  return [family.head[part] for part in parts], settings, layers


def _labels(names: Sequence[str], activation: str) -> dict[str, Any]:
  return {
    "id2label": {str(i): name for i, name in enumerate(names)},
    "label2id": {name: i for i, name in enumerate(names)},
    "sentence_transformers": {"activation_fn": f"torch.nn.modules.{activation}"},
  }


def _base(components: Components, form: PublishedForm) -> tuple[epath.Path, bool]:
  """Returns the folder of the base transformer, and whether texts are lower-cased before its tokeniser."""
  folder = hub.resolve(components.config.encoder.pretrained)
  if form.kind == "reranker" and (published := cross_encoder_folder.read(folder)):
    return published.transformer, published.lower_case
  if form.from_sentence_folder or not (folder / hub.CONFIG).exists():
    published = sentence_folder.read(folder)
    return published.transformer, published.lower_case and form.from_sentence_folder
  return folder, False


def _below(params: Mapping[str, np.ndarray], prefix: str) -> dict[str, Any]:
  flat = {}
  for path, value in params.items():
    if path.startswith(prefix):
      flat[path.removeprefix(prefix)] = value
  return traverse_util.unflatten_dict(flat, sep="/")


def render_card(
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
