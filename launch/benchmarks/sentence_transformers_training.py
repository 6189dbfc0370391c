"""python -m launch.benchmarks.sentence_transformers_training: their own trainer on our training questions.

Trains a bi-encoder (`MultipleNegativesRankingLoss`, each answer with some of its question's negatives; no text twice in a
batch, so that no right answer counts as a wrong one) or a cross-encoder (`LambdaLoss` or `ListNetLoss`, all candidates of a
question) of sentence-transformers from one published encoder, for as many epochs as `recommended:fast`. Dev chooses the epoch,
and by the first seed loss and rate; test is scored once, by the chosen. Into its folder go, a seed, TREC run files for `as2jax compare`, scores
of questions, and a line in `seeds.jsonl`. The same command goes on after a kill. Besides sentence-transformers and torch it
needs `datasets` and `accelerate`.

  python -m launch.benchmarks.sentence_transformers_training bi wikiqa -o runs/st-bi --rates 2e-5 5e-5 1e-4
  as2jax compare runs/fast runs/st-bi/seed-0.test.run,runs/st-bi/seed-1.test.run
"""

import argparse
import copy
import itertools
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from importlib import metadata

import numpy as np

from as2jax.config import base, words
from as2jax.data import trec_files
from as2jax.data.load import load as load_dataset
from as2jax.data.load import require
from as2jax.data.record import Question
from as2jax.encoders.hub import resolve
from as2jax.evaluation import metrics, results
from as2jax.runtime import devices
from as2jax.runtime.errors import InputError

Scores = list[np.ndarray]
RULES = {"trecqa": ("ptb",)}


def answer_rows(questions: Sequence[Question], negatives: int, seed: int) -> dict[str, list[str]]:
  """Return a row for each right answer, with so many of its question's negatives, drawn by seed.

  Each negative is drawn once before any is drawn again.
  """
  rng = np.random.default_rng(seed)
  columns = ["anchor", "positive", *(f"negative_{i + 1}" for i in range(negatives))]
  rows: dict[str, list[str]] = {column: [] for column in columns}
  for question in questions:
    wrong = [candidate.text for candidate in question.candidates if candidate.label == 0]
    for candidate in question.candidates:
      if candidate.label != 1:
        continue
      drawn: list[int] = []
      while len(drawn) < negatives:
        drawn += rng.permutation(len(wrong)).tolist()
      texts = [question.text, candidate.text, *(wrong[i] for i in drawn[:negatives])]
      for column, text in zip(columns, texts, strict=True):
        rows[column].append(text)
  return rows


def list_rows(questions: Sequence[Question]) -> dict[str, list]:
  """Return a row for each question, with its candidates and their labels."""
  return {
    "question": [question.text for question in questions],
    "candidates": [[c.text for c in question.candidates] for question in questions],
    "labels": [[float(c.label) for c in question.candidates] for question in questions],
  }


def split(values: np.ndarray, questions: Sequence[Question]) -> Scores:
  """Cut what all candidates have into what each question's have."""
  return np.split(values, np.cumsum([len(q.candidates) for q in questions])[:-1])


def bi_encoder(
  flags: argparse.Namespace, questions: Sequence[Question], loss: str, rate: float, seed: int
):
  """Return a trainer without callbacks, and what scores questions."""
  import datasets
  import sentence_transformers as st
  from sentence_transformers.sentence_transformer import losses

  model = st.SentenceTransformer(str(resolve(flags.encoder)), device=flags.device)
  model.max_seq_length = 128
  trainer = st.SentenceTransformerTrainer(
    model=model,
    args=st.SentenceTransformerTrainingArguments(
      **arguments(flags, rate, seed), batch_sampler="no_duplicates"
    ),
    train_dataset=datasets.Dataset.from_dict(answer_rows(questions, flags.negatives, seed)),
    loss=getattr(losses, loss)(model, scale=20.0),
  )

  def score(asked: Sequence[Question]) -> Scores:
    options = {"normalize_embeddings": True, "show_progress_bar": False}
    vectors = model.encode([q.text for q in asked], **options)
    sentences = model.encode([c.text for q in asked for c in q.candidates], **options)
    return [u @ v for u, v in zip(split(sentences, asked), vectors, strict=True)]

  return trainer, score


def cross_encoder(
  flags: argparse.Namespace, questions: Sequence[Question], loss: str, rate: float, seed: int
):
  """Return the same of a cross-encoder."""
  import datasets
  import sentence_transformers as st
  from sentence_transformers import cross_encoder as cross

  folder, options = str(resolve(flags.encoder)), {"num_labels": 1, "max_length": 128}
  model = st.CrossEncoder(folder, device=flags.device, **options)
  trainer = cross.CrossEncoderTrainer(
    model=model,
    args=cross.CrossEncoderTrainingArguments(**arguments(flags, rate, seed)),
    train_dataset=datasets.Dataset.from_dict(list_rows(questions)),
    loss=getattr(cross.losses, loss)(model, mini_batch_size=32),
  )

  def score(asked: Sequence[Question]) -> Scores:
    pairs = [(q.text, c.text) for q in asked for c in q.candidates]
    return split(model.predict(pairs, show_progress_bar=False).reshape(-1), asked)

  return trainer, score


def arguments(flags: argparse.Namespace, rate: float, seed: int) -> dict:
  """Return the values of their training arguments."""
  return {
    "output_dir": str(pathlib.Path(flags.output) / "trainer"),
    "num_train_epochs": flags.epochs,
    "per_device_train_batch_size": flags.batch,
    "learning_rate": rate,
    "warmup_steps": flags.warmup,  # below 1: a part of all steps
    "seed": seed,
    "save_strategy": "no",
    "report_to": "none",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": flags.device == "cpu",
  }


def mean_ap(scores: Scores, questions: Sequence[Question]) -> float:
  """Return the MAP over the questions that have an answer."""
  _, _, labels = metrics.columns_of(questions)
  values = metrics.per_question(scores, labels)["map"]
  return float(values[metrics.filter_mask("answerable", labels)].mean())


def train(
  flags: argparse.Namespace, data, questions: list[Question], loss: str, rate: float, seed: int
):
  """Train one seed by one loss at one rate, unless its folder has it; return its record and what scores questions.

  Those are scored by the epoch with the best MAP on dev. Test is not looked at.
  """
  import torch
  from transformers import TrainerCallback

  place, dev = flags.output / f"{loss}-{rate:g}-seed-{seed}", data.splits["dev"]
  settings = {name: value for name, value in vars(flags).items() if name not in NO_SETTINGS}
  settings |= {"loss": loss, "rate": rate, "seed": seed}
  torch.manual_seed(seed)
  trainer, score = KINDS[flags.kind](flags, questions, loss, rate, seed)
  if (place / "record.json").exists():
    record = json.loads((place / "record.json").read_text())
    if changed := [name for name in settings if record.get(name) != settings[name]]:
      raise InputError(f"{place} was trained with another {changed[0]}: name another folder")
    trainer.model.load_state_dict(torch.load(place / "best.pt"))
    trainer.model.eval()
    return record, score
  record = {**settings, "dev_map": [mean_ap(score(dev), dev)]}
  best, aside = {}, 0.0

  class Evaluate(TrainerCallback):
    def on_epoch_end(self, *_, **__):
      nonlocal aside
      began = time.perf_counter()
      trainer.model.eval()
      value = mean_ap(score(dev), dev)
      if value > max(record["dev_map"][1:], default=-1.0):
        best.update(copy.deepcopy(trainer.model.state_dict()))
        record["epoch"] = len(record["dev_map"])
      record["dev_map"].append(value)
      trainer.model.train()
      aside += time.perf_counter() - began

  trainer.add_callback(Evaluate())
  began = time.perf_counter()
  trainer.train()
  record["seconds"] = time.perf_counter() - began - aside
  trainer.model.load_state_dict(best)
  trainer.model.eval()
  place.mkdir(parents=True, exist_ok=True)
  torch.save(best, place / "best.pt")
  (place / "record.json").write_text(json.dumps(record))
  results.note_evaluation(flags.output, "dev", (seed,), flags.data, "train")
  print(json.dumps(record), flush=True)
  return record, score


def write(folder: pathlib.Path, seed: int, scores: dict[str, Scores], data) -> None:
  """Write one run file and one table of scores of questions a split."""
  for split, its in scores.items():
    place = f"{folder}/seed-{seed}.{split}"
    ids, candidates, labels = metrics.columns_of(data.splits[split])
    values = metrics.per_question(its, labels)
    trec_files.write_per_question(pathlib.Path(f"{place}.tsv"), ids, labels, values)
    run = pathlib.Path(f"{place}.run")
    trec_files.write_run(run, ids, candidates, its, "sentence-transformers")


KINDS = {"bi": bi_encoder, "cross": cross_encoder}
LOSSES = {"bi": ("MultipleNegativesRankingLoss",), "cross": ("LambdaLoss", "ListNetLoss")}
NO_SETTINGS = ("output", "seeds", "rates", "losses", "device")


def main() -> None:
  """Choose loss and rate on dev, and train one seed after another; print a JSON line each."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("kind", choices=KINDS)
  parser.add_argument("data", help="a data set with dev and test, such as wikiqa")
  parser.add_argument(
    "-o", "--output", required=True, type=pathlib.Path, help="folder of run files"
  )
  parser.add_argument("--encoder", default=words.MINILM)
  parser.add_argument("--seeds", type=int, default=3)
  parser.add_argument("--epochs", type=int, default=3)
  parser.add_argument(
    "--batch", type=int, help="rows of a step: 16 answers, or 2 questions of `cross`"
  )
  parser.add_argument("--negatives", type=int, default=3, help="of each answer, for `bi`")
  parser.add_argument("--rates", type=float, nargs="+", default=[2e-5, 5e-5, 1e-4])
  parser.add_argument("--losses", nargs="+", choices=LOSSES["cross"], help="of `cross`: not all")
  parser.add_argument("--warmup", type=float, default=0.1, help="share of all steps")
  parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
  flags = parser.parse_args()

  import torch

  torch.set_num_threads(devices.cores())
  flags.accelerator = "" if flags.device == "cpu" else torch.cuda.get_device_name()
  flags.versions = {name: metadata.version(name) for name in ("sentence-transformers", "torch")}
  flags.batch = flags.batch or (16 if flags.kind == "bi" else 2)
  config = base.get_config()
  config.data.name, config.data.rules = flags.data, RULES.get(flags.data, ())
  data = load_dataset(config.data)
  require(data, ("train", "dev", "test"))
  questions = []
  for question in data.splits["train"]:
    if {0, 1} <= {candidate.label for candidate in question.candidates}:
      questions.append(question)
  flags.output.mkdir(parents=True, exist_ok=True)
  tried = {}
  for choice in itertools.product(flags.losses or LOSSES[flags.kind], flags.rates):
    tried[choice] = max(train(flags, data, questions, *choice, 0)[0]["dev_map"][1:])
  chosen = max(tried, key=tried.__getitem__)
  by_choice = {f"{loss} {rate:g}": value for (loss, rate), value in tried.items()}
  print(f"dev MAP of the first seed: {by_choice}; {chosen[0]} {chosen[1]:g} is taken", flush=True)
  lines = []
  for seed in range(flags.seeds):
    record, score = train(flags, data, questions, *chosen, seed)
    for split in ("dev", "test"):
      if not pathlib.Path(f"{flags.output}/seed-{seed}.{split}.run").exists():
        results.note_evaluation(flags.output, split, (seed,), flags.data, "train")
        write(flags.output, seed, {split: score(data.splits[split])}, data)
    lines.append(json.dumps({**record, "dev_map_tried": by_choice}) + "\n")
  (flags.output / "seeds.jsonl").write_text("".join(lines))


if __name__ == "__main__":
  try:
    main()
  except InputError as error:
    print(f"sentence_transformers_training: {error}", file=sys.stderr)
    sys.exit(2)
