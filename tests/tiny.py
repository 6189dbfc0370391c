"""A tiny BERT folder and a tiny config: what every test of the loop shares, so that jax compiles once."""

import functools
import json
import os
import pathlib
import socket
import string
import tempfile

import jax
import numpy as np
import pytest

SIZES = {
  "vocab_size": 0,
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 32,
  "max_position_embeddings": 128,
  "type_vocab_size": 2,
  "layer_norm_eps": 1e-12,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "attention_probs_dropout_prob": 0.1,
  "model_type": "bert",
}


def vocabulary() -> list[str]:
  """Special tokens, letters, two-letter pieces: enough to tokenise any English text."""
  letters = string.ascii_lowercase + string.digits
  pieces = [a + b for a in string.ascii_lowercase for b in "aeiourstn"]
  return (
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    + list(letters + ".,?!'-\"()")
    + [f"##{x}" for x in letters]
    + pieces
    + [f"##{x}" for x in pieces]
  )


@functools.cache
def encoder_folder() -> str:
  """A folder with config.json, vocab.txt and random weights, made once a process.

  A child process takes its parent's, where $AS2JAX_TINY_ENCODER names it.
  """
  if os.environ.get("AS2JAX_TINY_ENCODER"):
    return os.environ["AS2JAX_TINY_ENCODER"]
  from safetensors.numpy import save_file

  from as2jax.encoders import weights

  folder = pathlib.Path(tempfile.mkdtemp(prefix="as2jax-tiny-"))
  words = vocabulary()
  (folder / "config.json").write_text(json.dumps({**SIZES, "vocab_size": len(words)}))
  (folder / "vocab.txt").write_text("\n".join(words) + "\n")
  encoder = encoder_module(folder)
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens(), train=False))["params"]
  params = jax.tree.map(lambda x: rng.normal(0, 0.2, x.shape).astype(np.float32), shapes)
  pooler = {
    "kernel": rng.normal(0, 0.2, (16, 16)).astype(np.float32),
    "bias": rng.normal(0, 0.02, 16).astype(np.float32),
  }
  save_file(
    {k: np.ascontiguousarray(v) for k, v in weights.to_tensors(params, encoder, pooler).items()},
    str(folder / "model.safetensors"),
  )
  return str(folder)


def encoder_module(folder=None, **fields):
  """The Linen module of `encoder_folder`."""
  from as2jax.encoders import transformer_folder
  from as2jax.encoders.bert import BertEncoder

  return BertEncoder(**{**transformer_folder.read_family(folder or encoder_folder())[1], **fields})


def tokens(shards: int = 1, rows: int = 2, length: int = 8):
  """Tokens of one full row each."""
  from as2jax.data.batches.batch import Tokens

  shape = (shards, rows, length)
  ones = np.ones(shape, np.int32)
  position = np.broadcast_to(np.arange(length, dtype=np.int32), shape)
  arrays = dict(ids=6 * ones, segment=ones, position=position, type=0 * ones, role=0 * ones)
  return Tokens(**{k: jax.numpy.asarray(v) for k, v in arrays.items()})


def drawn(shapes, spread: float):
  """Random arrays; scales and variances of a norm are around 1, with a spread of 0.1."""
  rng = np.random.default_rng(0)

  def draw(path, x):
    centre, width = (1, 0.1) if path[-1].key in ("scale", "var") else (0, spread)
    return rng.normal(centre, width, x.shape).astype(np.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


def random_variables(model, batch):
  """Random values for all variables of a model, so that no term vanishes."""
  shapes = jax.eval_shape(lambda b: model.init(jax.random.key(0), b, train=False), batch)
  return jax.tree.map(jax.numpy.asarray, drawn(shapes, 0.3))


@functools.partial(jax.jit, static_argnums=0)
def init(model, batch):
  """A model's variables in one program: op by op it takes a second to compile."""
  return model.init(jax.random.key(0), batch, train=False)


@functools.partial(jax.jit, static_argnums=0, static_argnames=("train", "method"))
def apply(model, variables, batch, key=0, *, train=False, method=None):
  """A model's output in one program; `key` is dropout's seed."""
  rngs = {"dropout": jax.random.key(key)} if train else {}
  return model.apply(variables, batch, train=train, method=method, rngs=rngs)


def config(model: str = "triplet", *words: str, **overrides):
  """A resolved config of the named preset over `sample` and the tiny encoder.

  `overrides` have dots as double underscores: `optimizer__rate=1e-3`.
  """
  from as2jax.config import base, recipes
  from as2jax.config import words as config_words

  job_config = base.get_config()
  preset = recipes.RECOMMENDED.get(model) or recipes.SYSTEMS[model]
  preset(job_config)
  config_words.apply(job_config, ",".join(("sample", *words)))
  job_config.encoder.pretrained = encoder_folder()
  job_config.epochs, job_config.data.max_length = 1, 64
  job_config.data.train_fraction = 0.1  # of the sample: more than a dozen steps
  job_config.batch.row_lengths, job_config.batch.rows, job_config.batch.predict_rows = (64,), 16, 64
  job_config.batch.examples = 256 if "grouped" in words else 16
  job_config.batch.num_row_buckets, job_config.batch.shards = 1, 2  # the tests have two devices
  job_config.log.tensorboard = job_config.log.report = False
  job_config.compilation_cache = "off"  # conftest sets one for all
  for key, value in overrides.items():
    job_config.update_from_flattened_dict({key.replace("__", "."): value})
  return job_config.lock()


def from_folder(folder, model: str, **overrides):
  """A run of a preset, at a rate that moves it, from an encoder or a published model in a folder."""
  settings = {"data__max_length": 48, "optimizer__rate": 3e-3, "optimizer__warmup": 0.0}
  settings |= {"encoder__pretrained": str(folder), "evaluation__splits": ("dev",)}
  return config(model, "grouped", **{**settings, **overrides})


POOLED = "ice snow fire water cold hot melts burns floats why what stone river cloud".split()


def write_pool(folder: pathlib.Path) -> None:
  """Files of a user whose candidates make a small pool: pairs of questions share a right sentence."""
  for n, split in enumerate(("train", "dev", "test")):
    random = np.random.default_rng(n)
    text = lambda random=random: " ".join(random.choice(POOLED, size=random.integers(3, 7)))
    lines = ["question\tcandidate\tlabel"]
    for i in range(0, 24, 2):
      right = f"{text()} {i}"
      for j in (i, i + 1):
        asked = f"{text()} {j} ?"
        lines += [f"{asked}\t{right}\t1", f"{asked}\t{text()} {j} .\t0", f"{asked}\t{text()}\t0"]
    (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def pool_config(folder: pathlib.Path, preset: str = "triplet", ranker: str = "", **overrides):
  """A run of a preset, or of a ranker of words, over the pool that `write_pool` wrote."""
  settings = {
    "evaluation__task": "retrieve",
    "select": "mrr",
    "data__negatives": "paragraph",
    "evaluation__depth": 20,
    "evaluation__min_questions_per_answer": 2,
    "data__name": "files",
    **{f"data__{split}": str(folder / f"{split}.tsv") for split in ("train", "dev", "test")},
  }
  job_config = config(preset, **{**settings, **overrides})
  if ranker:
    job_config.unlock().model = {"name": ranker}
  return job_config.lock()


def write_questions(path: pathlib.Path, questions, labelled: bool = True) -> str:
  """Questions as a user's file, a candidate a line; returns its path."""
  lines = []
  for q in questions:
    for c in q.candidates:
      row = {"question_id": q.id, "question": q.text, "candidate_id": c.id, "candidate": c.text}
      lines.append(json.dumps(row | ({"label": c.label} if labelled else {})) + "\n")
  path.write_text("".join(lines))
  return str(path)


def free_port() -> int:
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return free.getsockname()[1]


def best_parameters(folder) -> dict[str, np.ndarray]:
  """The trainable parameters of a run's last best checkpoint, by path."""
  from as2jax.training import checkpoints

  return checkpoints.read_best(pathlib.Path(folder) / "checkpoints")["trainable"]


def final_parameters(folder) -> dict[str, np.ndarray]:
  """Those of its last whole state, on one device."""
  import orbax.checkpoint as ocp

  kept = pathlib.Path(folder).absolute() / "checkpoints/latest"
  step = max(int(p.name) for p in kept.iterdir() if p.name.isdigit())
  reader, path = ocp.StandardCheckpointer(), kept / str(step) / "state"
  alone = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  target = jax.tree.map(
    lambda m: jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=alone),
    reader.metadata(path).item_metadata.tree,
  )
  return {k: np.asarray(v) for k, v in reader.restore(path, target)["trainable"].items()}


def differences(folder, other) -> list[str]:
  """What two finished runs do not share to the bit: results, log, rankings, parameters.

  Times may differ, and how often a frozen encoder ran, whose vectors the second run finds in the cache.
  """

  def content(run):
    found = json.loads((run / "results.json").read_text()) | {"execution": None}
    found.get("inputs", {}).get("frozen_vectors", {}).pop("encoder_calls", None)
    for path in (run / "eval").rglob("*.*"):
      found[str(path.relative_to(run))] = path.read_bytes()
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    found["log"] = [{**row, "seconds_per_step": None} for row in rows]
    for path, value in best_parameters(run).items():
      found[f"parameter {path}"] = value.tobytes()
    return found

  one, expected = content(folder), content(other)
  return [key for key in sorted({*one, *expected}) if one.get(key) != expected.get(key)]


def rewrite(path: pathlib.Path, change) -> None:
  """Changes the JSON in a run's file, bound by its digest as what the run wrote."""
  from as2jax.runtime import bound

  content = json.loads(path.read_text())
  change(content)
  bound.write(path.parent, path.name, json.dumps(content))


COMPILED = []  # of each program of this process, for how long it was compiled or read
jax.monitoring.register_event_duration_secs_listener(
  lambda event, seconds, **_: COMPILED.append(seconds) if "backend_compile" in event else None
)


def compilations():
  """The number of programs that were compiled so far."""
  return len(COMPILED)


def real_data(*parts: str) -> pathlib.Path:
  """A file or folder of the real data; skips the test where it is absent."""
  path = pathlib.Path(os.environ.get("AS2JAX_DATA") or "/absent", *parts)
  if not path.exists():
    pytest.skip(f"{path} is not there: set AS2JAX_DATA to the folder of the data sets")
  return path


class Killed(Exception):
  """Stands for the end of a process."""


def interrupted(monkeypatch, config, folder, after):
  """Runs until `after` steps were taken, then dies: nothing is tidied."""
  from as2jax.training import loop

  add, count = loop.StepLog.add, [0]

  def stop(self, step, *rest):
    count[0] += 1
    if count[0] > after:
      raise Killed
    add(self, step, *rest)

  with monkeypatch.context() as patch:
    patch.setattr(loop.StepLog, "add", stop)
    with pytest.raises(Killed):
      loop.train_and_evaluate(config, folder)
