"""python -m launch.benchmarks.sentence_transformers_training: their own trainer on our training questions.

Trains a bi-encoder (`MultipleNegativesRankingLoss`, each answer with some of its question's negatives) or a cross-encoder
(`BinaryCrossEntropyLoss`, every pair) of sentence-transformers from one published encoder, for as many epochs as
`recommended:fast`, and keeps the epoch with the best MAP on dev. Into its folder go, a seed, TREC run files for `as2jax
compare`, scores of questions, and a line in `seeds.jsonl`. Besides
sentence-transformers and torch it needs `datasets` and `accelerate`.

  python -m launch.benchmarks.sentence_transformers_training bi wikiqa -o runs/st-bi
  as2jax compare runs/fast runs/st-bi/seed-0.test.run,runs/st-bi/seed-1.test.run
"""

import argparse
import copy
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence

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
SETTINGS = "kind data encoder epochs batch negatives rate warmup accelerator".split()


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


def pair_rows(questions: Sequence[Question]) -> dict[str, list]:
  """Return a row for each pair of question and candidate, with its label."""
  pairs = [(q.text, c.text, float(c.label)) for q in questions for c in q.candidates]
  return {
    name: list(column) for name, column in zip(("question", "candidate", "label"), zip(*pairs))
  }


def split(values: np.ndarray, questions: Sequence[Question]) -> Scores:
  """Cut what all candidates have into what each question's have."""
  return np.split(values, np.cumsum([len(q.candidates) for q in questions])[:-1])


def bi_encoder(flags: argparse.Namespace, questions: Sequence[Question], seed: int):
  """Return a trainer without callbacks, and what scores questions."""
  import datasets
  import sentence_transformers as st
  from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

  model = st.SentenceTransformer(str(resolve(flags.encoder)), device=flags.device)
  model.max_seq_length = 128
  trainer = st.SentenceTransformerTrainer(
    model=model,
    args=st.SentenceTransformerTrainingArguments(**arguments(flags, seed)),
    train_dataset=datasets.Dataset.from_dict(answer_rows(questions, flags.negatives, seed)),
    loss=MultipleNegativesRankingLoss(model, scale=20.0),
  )

  def score(asked: Sequence[Question]) -> Scores:
    options = {"normalize_embeddings": True, "show_progress_bar": False}
    vectors = model.encode([q.text for q in asked], **options)
    sentences = model.encode([c.text for q in asked for c in q.candidates], **options)
    return [u @ v for u, v in zip(split(sentences, asked), vectors, strict=True)]

  return trainer, score


def cross_encoder(flags: argparse.Namespace, questions: Sequence[Question], seed: int):
  """Return the same of a cross-encoder."""
  import datasets
  import sentence_transformers as st
  from sentence_transformers import cross_encoder as cross
  from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

  folder, options = str(resolve(flags.encoder)), {"num_labels": 1, "max_length": 128}
  model = st.CrossEncoder(folder, device=flags.device, **options)
  trainer = cross.CrossEncoderTrainer(
    model=model,
    args=cross.CrossEncoderTrainingArguments(**arguments(flags, seed)),
    train_dataset=datasets.Dataset.from_dict(pair_rows(questions)),
    loss=BinaryCrossEntropyLoss(model),
  )

  def score(asked: Sequence[Question]) -> Scores:
    pairs = [(q.text, c.text) for q in asked for c in q.candidates]
    return split(model.predict(pairs, show_progress_bar=False).reshape(-1), asked)

  return trainer, score


def arguments(flags: argparse.Namespace, seed: int) -> dict:
  """Return the values of their training arguments."""
  return {
    "output_dir": str(pathlib.Path(flags.output) / "trainer"),
    "num_train_epochs": flags.epochs,
    "per_device_train_batch_size": flags.batch,
    "learning_rate": flags.rate,
    "warmup_steps": flags.warmup,  # below 1: a part of all steps
    "seed": seed,
    "save_strategy": "no",
    "report_to": "none",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": flags.device == "cpu",
  }


def labels_of(questions: Sequence[Question]) -> list[np.ndarray]:
  """Return the labels of each question's candidates."""
  return [np.asarray([c.label for c in q.candidates]) for q in questions]


def mean_ap(scores: Scores, questions: Sequence[Question]) -> float:
  """Return the MAP over the questions that have an answer."""
  labels = labels_of(questions)
  values = metrics.per_question(scores, labels)["map"]
  return float(values[metrics.filter_mask("answerable", labels)].mean())


def best_epoch(trainer, score: Callable[[Sequence[Question]], Scores], data) -> dict:
  """Train; return the scores of the epoch with the best MAP on dev, and what it took.

  Test is scored once, by the model of that epoch.
  """
  from transformers import TrainerCallback

  record: dict = {"dev_map": [mean_ap(score(data.splits["dev"]), data.splits["dev"])], "aside": 0.0}

  class Evaluate(TrainerCallback):
    def on_epoch_end(self, *_, **__):
      began = time.perf_counter()
      trainer.model.eval()
      value = mean_ap(score(data.splits["dev"]), data.splits["dev"])
      if value > max(record["dev_map"][1:], default=-1.0):
        record["best"] = copy.deepcopy(trainer.model.state_dict())
        record["epoch"] = len(record["dev_map"])
      record["dev_map"].append(value)
      trainer.model.train()
      record["aside"] += time.perf_counter() - began

  trainer.add_callback(Evaluate())
  began = time.perf_counter()
  trainer.train()
  record["seconds"] = time.perf_counter() - began - record.pop("aside")
  trainer.model.load_state_dict(record.pop("best"))
  trainer.model.eval()
  record["scores"] = {split: score(data.splits[split]) for split in ("dev", "test")}
  return record


def write(folder: pathlib.Path, seed: int, scores: dict[str, Scores], data) -> None:
  """Write one run file and one table of scores of questions a split."""
  for split, its in scores.items():
    place = f"{folder}/seed-{seed}.{split}"
    ids = [question.id for question in data.splits[split]]
    labels = labels_of(data.splits[split])
    candidates = [[c.id for c in question.candidates] for question in data.splits[split]]
    values = metrics.per_question(its, labels)
    trec_files.write_per_question(pathlib.Path(f"{place}.tsv"), ids, labels, values)
    run = pathlib.Path(f"{place}.run")
    trec_files.write_run(run, ids, candidates, its, "sentence-transformers")


def main() -> None:
  """Train one seed after another; print a JSON line each."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("kind", choices=("bi", "cross"))
  parser.add_argument("data", help="a data set with dev and test, such as wikiqa")
  parser.add_argument(
    "-o", "--output", required=True, type=pathlib.Path, help="folder of run files"
  )
  parser.add_argument("--encoder", default=words.MINILM)
  parser.add_argument("--seeds", type=int, default=3)
  parser.add_argument("--epochs", type=int, default=3)
  parser.add_argument("--batch", type=int, default=16, help="rows of a step")
  parser.add_argument("--negatives", type=int, default=6, help="of each answer, for `bi`")
  parser.add_argument("--rate", type=float, default=2e-5)
  parser.add_argument("--warmup", type=float, default=0.1, help="share of all steps")
  parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
  flags = parser.parse_args()

  import torch

  torch.set_num_threads(devices.cores())
  flags.accelerator = "" if flags.device == "cpu" else torch.cuda.get_device_name()
  config = base.get_config()
  config.data.name, config.data.rules = flags.data, RULES.get(flags.data, ())
  data = load_dataset(config.data)
  require(data, ("train", "dev", "test"))
  questions = []
  for question in data.splits["train"]:
    if {0, 1} <= {candidate.label for candidate in question.candidates}:
      questions.append(question)
  flags.output.mkdir(parents=True, exist_ok=True)
  settings = {name: getattr(flags, name) for name in SETTINGS}
  if flags.kind == "cross":
    del settings["negatives"]
  file = flags.output / "seeds.jsonl"
  if file.exists():
    raise InputError(f"{flags.output} has trained seeds: name another folder")
  for seed in range(flags.seeds):
    torch.manual_seed(seed)
    make = bi_encoder if flags.kind == "bi" else cross_encoder
    trainer, score = make(flags, questions, seed)
    record = best_epoch(trainer, score, data)
    for split in record["scores"]:
      results.note_evaluation(flags.output, split, (seed,), flags.data, "train")
    write(flags.output, seed, record.pop("scores"), data)
    line = json.dumps({**settings, "seed": seed, **record})
    print(line, flush=True)
    with file.open("a") as lines:
      lines.write(line + "\n")


if __name__ == "__main__":
  try:
    main()
  except InputError as error:
    print(f"sentence_transformers_training: {error}", file=sys.stderr)
    sys.exit(2)
