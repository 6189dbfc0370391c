"""Soft labels of teachers: which are refused, averages, cross-fitting, and that a ranker learns them."""

import gzip
import json
import pathlib
import shutil

import numpy as np
import pytest
import tiny

import as2jax
from as2jax.commands import app
from as2jax.data import load as loading
from as2jax.data import trec_files
from as2jax.data.inputs import rankings
from as2jax.data.record import Candidate, Question
from as2jax.experiments import distil, mine
from as2jax.runtime.errors import InputError

QUESTIONS = tuple(
  Question(
    f"q{i}",
    f"who is number {i}",
    (Candidate(f"q{i}-0", f"number {i} is here", 1), Candidate(f"q{i}-1", f"a dog {i}", 0)),
  )
  for i in range(24)
)


def scored(path, score, by=("question", "candidate")):
  """JSON-lines with the score of each pair."""
  rows = []
  for q in QUESTIONS:
    for i, c in enumerate(q.candidates):
      names = {"question": q.text, "candidate": c.text, "question_id": q.id, "candidate_id": c.id}
      rows.append(
        json.dumps({**{name: names[name] for name in by}, "score": score(int(q.id[1:]), i)})
      )
  path.write_text("\n".join(rows) + "\n")
  return str(path)


def soft(folder):
  return trec_files.read_run(folder / "eval" / "train" / "run.trec")


def test_files_of_scores_are_read_by_ids_or_texts_and_averaged(tmp_path):
  first = scored(tmp_path / "a.jsonl", lambda q, i: q + 10.0 * i)
  second = scored(tmp_path / "b.jsonl", lambda q, i: -5.0 * i, ("question_id", "candidate_id"))
  distil.distil(QUESTIONS, tmp_path / "one", [first])
  assert soft(tmp_path / "one")["q3"] == {"q3-1": 13.0, "q3-0": 3.0}
  packed = tmp_path / "b.jsonl.gz"
  packed.write_bytes(gzip.compress((tmp_path / "b.jsonl").read_bytes()))
  assert rankings.read_scores(packed) == rankings.read_scores(second)
  content = distil.distil(QUESTIONS, tmp_path / "two", [first, second], source="made")
  standard = lambda x: (x - x.mean()) / x.std()
  q, i = np.divmod(np.arange(48.0), 2)
  expected = (standard(q + 10 * i) + standard(-5 * i)) / 2
  actual = soft(tmp_path / "two")
  flat = [actual[x.id][c.id] for x in QUESTIONS for c in x.candidates]
  np.testing.assert_allclose(flat, expected, rtol=1e-5, atol=1e-6)
  assert content["teachers"] == [{"file": first}, {"file": second}] and content["pairs"] == 48


def test_one_that_was_killed_before_its_end_goes_on(tmp_path, monkeypatch):
  scores, out = scored(tmp_path / "x.jsonl", lambda q, i: i), tmp_path / "out"
  with monkeypatch.context() as patched:
    patched.setattr(distil, "write_whole", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
      distil.distil(QUESTIONS, out, [scores])
  assert (out / "eval").exists() and not (out / distil.CARD).exists()
  assert distil.distil(QUESTIONS, out, [scores])["pairs"] == 48
  assert (out / distil.CARD).exists() and not (out / "working").exists()
  with pytest.raises(InputError, match="is not empty"):
    distil.distil(QUESTIONS, out, [scores])


def test_files_of_scores_that_are_wrong_name_the_line(tmp_path):
  good = {"question": "who is number 0", "candidate": "a dog 0", "score": 1}
  for line, message in (
    ({"question": "who", "score": 1}, ":1: a line names its pair by question_id and"),
    ({**good, "score": "1"}, ":1: score is '1'"),
    ({**good, "score": True}, ":1: score is True"),
  ):
    (tmp_path / "x.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=message):
      rankings.read_scores(tmp_path / "x.jsonl")
  (tmp_path / "x.jsonl").write_text((json.dumps(good) + "\n") * 2)
  with pytest.raises(InputError, match=":2: the pair of .* occurs twice"):
    rankings.read_scores(tmp_path / "x.jsonl")
  (tmp_path / "x.jsonl").write_text(json.dumps(good) + "\n")
  with pytest.raises(InputError, match="x.jsonl: candidate 'q0-0' of the training question 'q0'"):
    distil.distil(QUESTIONS, tmp_path / "out", [str(tmp_path / "x.jsonl")])


def test_ids_that_no_run_file_holds_are_refused_before_anything_is_scored(tmp_path, monkeypatch):
  monkeypatch.setattr(distil, "_scores_of", lambda *_: pytest.fail("scored"))
  for asked, what in (
    (Question("a b", "who", (Candidate("c", "me"),)), "the id 'a b' cannot"),
    (Question("a", "who", (Candidate("c d", "me"),)), "the id 'c d' cannot"),
  ):
    with pytest.raises(InputError, match=f"pairs.jsonl: {what} be written .*an id is not empty"):
      distil.distil([asked], tmp_path / "out", ["x.trec"], source="pairs.jsonl")


def test_nothing_to_do_is_said(tmp_path):
  with pytest.raises(InputError, match="no teacher: give"):
    distil.distil(QUESTIONS, tmp_path / "out", [])
  with pytest.raises(InputError, match="no question has a candidate"):
    distil.distil([Question("q", "who", ())], tmp_path / "out", ["x.trec"])


def test_a_run_is_asked_what_it_has_seen(finished_run, tmp_path):
  teacher = str(finished_run("crossencoder"))
  own = loading.load(as2jax.open_run(teacher).config.data).splits["train"][:3]
  with pytest.raises(InputError, match="was trained on 3 of these 3 questions.*--cross-fit"):
    distil.distil(own, tmp_path / "out", [teacher])
  content = distil.distil(own, tmp_path / "own", [teacher], allow_seen=True)
  assert content["teachers"][0]["seen"] == 3
  content = distil.distil(QUESTIONS, tmp_path / "new", [teacher])  # it has not seen these
  assert content["teachers"][0]["seen"] == 0
  scores = as2jax.load(teacher).all_scores(QUESTIONS)["logit"]
  actual = soft(tmp_path / "new")
  np.testing.assert_allclose(
    [actual["q5"][c.id] for c in QUESTIONS[5].candidates], scores[5], atol=1e-6
  )


def test_questions_that_a_run_was_not_trained_on_are_no_seen_ones(finished_run, tmp_path):
  """A triplet network is trained on answerable questions; it may score the others of its file."""
  teacher = finished_run("triplet")
  config = as2jax.open_run(teacher).config
  train = loading.load(config.data).splits["train"]
  others = [q for q in train if not q.positives][:2]
  assert config.data.train_filter == "answerable" and others
  content = distil.distil(others, tmp_path / "out", [str(teacher)])
  assert content["teachers"][0]["seen"] == 0
  answered = next(q for q in train if q.positives)
  with pytest.raises(InputError, match="trained on 1 of these 3"):
    distil.distil([*others, answered], tmp_path / "x", [str(teacher)])


def test_what_a_run_or_its_first_stage_read_under_its_rules_is_seen(finished_run, tmp_path):
  first = finished_run("crossencoder")
  own = loading.load(as2jax.open_run(first).config.data).splits["train"][:3]
  loud = [Question(q.id, f"{q.text.upper()}?", q.candidates) for q in own]
  assert distil._seen(str(first), loud) == 0
  for name, changes, steps in (
    ("ruled", {"data": {"rules": ["lowercase", "alphanumeric"]}}, None),
    ("begun", {"warm_start": {"run": str(tmp_path / "ruled")}}, 0),
    ("alone", {"warm_start": {"run": str(tmp_path / "gone")}}, 0),
  ):
    folder = tmp_path / name
    shutil.copytree(first, folder)
    for section, its in changes.items():
      tiny.rewrite(folder / "config.json", lambda config: config[section].update(its))
    if steps is not None:
      tiny.rewrite(folder / "results.json", lambda found: found["seeds"][0].update(steps=steps))
  assert distil._seen(str(tmp_path / "ruled"), loud) == 3
  assert distil._seen(str(tmp_path / "begun"), loud) == 3  # itself it took no step
  with pytest.raises(InputError, match="gone .the teacher .*alone, or what it was begun from"):
    distil._seen(str(tmp_path / "alone"), loud)


def test_a_cross_fitted_teacher_never_scores_what_it_was_trained_on(tmp_path, monkeypatch):
  trained, folders = [], []

  class Fitted:
    def __init__(self, known):
      self.known = known

    def ranker(self):
      return self

    def all_scores(self, questions):
      assert not self.known & {q.text for q in questions}
      return {"logit": [np.asarray([1.0, float(len(self.known))]) for _ in questions]}

  def train(job, output, *, data, overrides):
    with open(data["train"]) as file:
      known = {json.loads(line)["question"] for line in file}
    trained.append((job, overrides, known))
    folders.append(output)
    return Fitted(known)

  monkeypatch.setattr(distil.opening, "train", train)
  doubled = (*QUESTIONS, Question("again", QUESTIONS[0].text, QUESTIONS[1].candidates))
  fit = {"cross_fit": "recommended:accurate", "folds": 3, "overrides": {"epochs": 1}}
  content = distil.distil(doubled, tmp_path / "out", [], **fit)
  assert len(trained) == 3 and content["pairs"] == 50
  assert set.union(*(known for *_, known in trained)) == {q.text for q in QUESTIONS}
  assert content["teachers"] == [{"cross_fit": "recommended:accurate", "folds": 3, "epochs": 1}]
  # A teacher that was left behind by other folds is not taken for one of these.
  distil._cross_fitted(doubled, "recommended:accurate", 2, {"epochs": 1}, tmp_path)
  assert len({pathlib.Path(output).parent.name for output in folders}) == 5
  with pytest.raises(InputError, match="leaves 0 questions to score|to train on; give fewer folds"):
    distil.distil(QUESTIONS[:1], tmp_path / "y", [], **fit)


@pytest.mark.slow
def test_unlabelled_pairs_are_scored_and_learned(tmp_path, monkeypatch):
  """The student sees no label in training, and ranks as its teacher does."""
  monkeypatch.chdir(tmp_path)
  file = tiny.write_questions(tmp_path / "train.jsonl", QUESTIONS, labelled=False)
  tiny.write_questions(tmp_path / "dev.jsonl", QUESTIONS[:6])
  assert all(c.label == -1 for q in mine.to_score(file, ()) for c in q.candidates)
  teacher = scored(tmp_path / "teacher.jsonl", lambda q, i: 4.0 - 8 * i)
  assert app.run(["lab", "distill", file, f"--teacher={teacher}", "-o", "soft"]) == 0
  config = tiny.config(
    "fast",
    "distil",
    data__name="files",
    data__train=file,
    data__dev=str(tmp_path / "dev.jsonl"),
    data__train_fraction=1.0,
    data__teachers=(str(tmp_path / "soft"),),
    evaluation__splits=("dev",),
    optimizer__rate=3e-3,
    optimizer__warmup=0.0,
    epochs=4,
  )
  run = as2jax.train(config, tmp_path / "run")
  ranked = run.ranker().rank_many(QUESTIONS[:12])
  assert np.mean([hits[0].index == 0 for hits in ranked]) > 0.8
  with pytest.raises(InputError, match="the answers are all right"):  # without teachers
    as2jax.train(
      tiny.config("fast", data__name="files", data__train=file, data__holdout=0.1), tmp_path / "no"
    )


@pytest.mark.slow
def test_the_command_cross_fits_a_job(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  file = tiny.write_questions(tmp_path / "train.jsonl", QUESTIONS)
  settings = {
    "encoder.pretrained": tiny.encoder_folder(),
    "epochs": "1",
    "data.max_length": "64",
    "batch.row_lengths": "(64,)",
    "batch.shards": "2",
    "compilation_cache": "off",
  }
  options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
  command = ["lab", "distill", file, "-o", "soft", "--cross-fit=recommended:accurate", *options]
  assert app.run(command) == 0
  assert len(soft(tmp_path / "soft")) == len(QUESTIONS)
  assert not (tmp_path / "soft" / "working").exists()
