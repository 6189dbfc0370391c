"""Controlled tasks: each system against its own ablation on data that only its mechanism can answer.

`as2jax lab controlled` trains both from scratch over small encoders (CPU, a minute or two each) on
the data sets of `as2jax.data.readers.controlled`, and prints them with the test of methods.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flax import traverse_util

from as2jax.config import jobs as job_files
from as2jax.config import overrides
from as2jax.data.readers import controlled
from as2jax.encoders import transformer_folder, weights
from as2jax.evaluation import compare, run_scores
from as2jax.inference import open as opening
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

WIDTH, VECTOR = 64, 32  # of the small encoders and of the word vectors
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SAMPLES = 10_000  # of the randomization test


class Task(NamedTuple):
  """One task.

  Attributes:
    about: what decides which candidate is right.
    encoder: the encoder that all of its systems begin with, one of `ENCODERS`.
    settings: of all of its systems.
    systems: name -> (job, settings); the first is the ablation to which the others are compared.
    metric: by which they are compared.

  """

  about: str
  encoder: str
  settings: Mapping[str, Any]
  systems: Mapping[str, tuple[str, Mapping[str, Any]]]
  metric: str = "map"


ENCODERS = {  # name -> the config key that names it, and its place in the folder
  "mixing": ("encoder.pretrained", "mixing"),  # two layers of attention
  "separate": ("encoder.pretrained", "separate"),  # a token's vector is that of its word alone
  "vectors": ("encoder.vectors", f"words.{VECTOR}d.txt"),
}
QUIET = {
  "log.tensorboard": False,
  "log.report": False,
  "checkpoint.steps": 100_000,
  "evaluation.splits": ("dev", "test"),
}
IN_CONTEXT = {
  "data.holdout": 0.0,
  "data.max_length": 32,
  "batch.row_lengths": (32,),
  "batch.predict_rows": 128,
  "optimizer.rate": 1e-3,
}
CASSIE = {
  "model.hidden": 64,
  "model.question_words": 4,
  "model.sentence_words": 8,
  "model.iterations": 20,
}
NO_CONTEXT = {"model.template": "pair", "model.segments": "none"}
SEPARATE = {"optimizer.lr_multipliers": (("^encoder/layers/", 0.0), ("^(?!encoder/)", 10.0))}
TASKS = {
  "context": Task(
    "the previous sentence names the question's topic, the next one another",
    "mixing",
    {**IN_CONTEXT, "epochs": 4},
    {
      "plain": ("wikiqa_loct", NO_CONTEXT),
      "loct": ("wikiqa_loct", {}),
      "cassie": ("wikiqa_cassie", CASSIE),
    },
  ),
  "paraphrase": Task(
    "each word of the question has a partner of its own",
    "separate",
    {**IN_CONTEXT, **NO_CONTEXT, **CASSIE, **SEPARATE, "epochs": 8},
    {
      "no-transport": ("wikiqa_cassie:tuned", {"model.alignment": "mean"}),
      "cassie": ("wikiqa_cassie:tuned", {}),
    },
  ),
  "questions": Task(
    "many questions of one answer, in words that it does not hold",
    "mixing",
    {
      "epochs": 20,
      "loss.epochs": 4,  # `tuned`'s: the KL has its whole weight after two epochs
      "data.max_length": 8,
      "batch.row_lengths": (8,),
      "batch.examples": 64,
      "encoder.scale": 8.0,
      "model.question_length": 8,
      "model.answer_length": 8,
      "loss.alpha": 1.0,  # on dev better than 0.1 and than 10; `tuned` has 0.01
    },
    {
      "dual-gru": ("squad_dual_gru:small,mlp,tuned", {}),
      "cross-vae": ("squad_cross_vae:small,mlp,tuned", {}),
    },
    metric="mrr",
  ),
  "scales": Task(
    "the distance and order of two runs of words",
    "vectors",
    {"epochs": 8, "model.question_length": 20, "model.candidate_length": 32, "data.rules": ()},
    {"shallow": ("trecqa_m2snet:shallow", {}), "4": ("trecqa_m2snet:4", {})},
  ),
}


def check(name: str) -> Task:
  """Return the task of that name; raise InputError where there is none."""
  if name not in TASKS:
    raise InputError(f"there is no task {name}: name one of {', '.join(TASKS)}")
  return TASKS[name]


def run(
  name: str,
  output: pathlib.Path,
  *,
  seeds: Sequence[int] = (0, 1, 2),
  settings: Mapping[str, Any] = {},  # noqa: B006 (never changed)
) -> str:
  """Train the systems of a task and BM25; return their table with the test of methods.

  The same call goes on where it was stopped, and trains nothing that is finished.

  Args:
    output: folder of the runs, and of the encoders that they begin with.
    settings: in place of the task's own.

  """
  task = check(name)
  write_encoders(output / "encoders")
  folders = {}
  for system, (job, its) in jobs(name, output / "encoders").items():
    folders[system] = output / name / system
    trained = system in task.systems
    changed = {**its, **settings} if trained else its
    opening.train(  # which trains nothing that is finished, and refuses another config
      overrides.apply(job_files.load(job), changed, f"{job}: "),
      folders[system],
      seeds=seeds if trained else (0,),
    )
  rule = "gold" if task.metric == "mrr" else "clean"
  places = list(map(str, folders.values()))
  named = []
  loaded = run_scores.load(places, split="test", question_filter=rule)
  for system, scores in zip(folders, loaded, strict=True):
    named.append(dataclasses.replace(scores, name=system))
  table = compare.as_text(compare.compare(named, [task.metric], samples=SAMPLES))
  return f"{name}: {task.about}\n{table}"


def jobs(name: str, encoders: pathlib.Path) -> dict[str, tuple[str, dict[str, Any]]]:
  """Return the systems of a task, its ablation first and BM25 last: name -> (job, its settings)."""
  task = TASKS[name]
  key, place = ENCODERS[task.encoder]
  common = {"data.name": f"controlled_{name}", **QUIET}
  made = {}
  for system, (job, its) in task.systems.items():
    made[system] = (job, {**common, key: str(encoders / place), **task.settings, **its})
  if task.metric == "mrr":
    common |= {"evaluation.task": "retrieve", "select": "mrr"}
  return {**made, "bm25": ("wikiqa_baseline:bm25", common)}


def write_encoders(folder: pathlib.Path) -> None:
  """Write what `ENCODERS` names, of random numbers, for the words of all tasks; keep what is there."""
  words = controlled.vocabulary()
  rng = np.random.default_rng(0)
  rows = rng.normal(size=(len(words), VECTOR)) / np.sqrt(VECTOR)
  folder.mkdir(parents=True, exist_ok=True)
  with open(folder / ENCODERS["vectors"][1], "w") as file:
    for word, row in zip(words, rows, strict=True):
      file.write(f"{word} {' '.join(f'{x:.5f}' for x in row)}\n")
  for name, layers in (("mixing", 2), ("separate", 1)):
    if not (folder / name / "model.safetensors").exists():
      _write_bert(folder / name, words, layers, mixes=name == "mixing")


def _write_bert(folder: pathlib.Path, words: Sequence[str], layers: int, *, mixes: bool) -> None:
  """Write a BERT of the words; where it does not mix, its layer adds 0 at first."""
  sizes = {
    "model_type": "bert",
    "vocab_size": len(MARKS) + len(words),
    "hidden_size": WIDTH,
    "num_hidden_layers": layers,
    "num_attention_heads": 4,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
  }
  write_whole(folder / "config.json", json.dumps(sizes))
  write_whole(folder / "vocab.txt", "\n".join((*MARKS, *words, "")))
  family, fields = transformer_folder.read_family(folder)
  encoder = family.module(**fields)
  rng = np.random.default_rng(0)
  params = {}
  for path, spec in weights.shapes(encoder).items():
    value = np.zeros(spec.shape)
    if len(spec.shape) > 1:
      value = rng.normal(0, WIDTH**-0.5, spec.shape)
    if path.endswith("/scale"):
      value = np.ones(spec.shape)
    elif path.endswith("/bias") or (not mixes and "/output/" in path):
      value = np.zeros(spec.shape)
    params[path] = value.astype(np.float32)
  params["embeddings/position"] *= 1.0 if mixes else 0.0
  params = traverse_util.unflatten_dict(params, sep="/")
  weights.write_tensors(weights.to_tensors(params, encoder), folder)
