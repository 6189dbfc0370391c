"""CASSIE and its joint form through the loop, on the sample: trained, reported, ranking."""

import numpy as np
import pytest
import tiny_systems
from tiny_cassie import run_config

from as2jax.config import jobs
from as2jax.data import dataset, trec_files
from as2jax.data.inputs.rankings import FirstStageRanking
from as2jax.data.user_files import read
from as2jax.evaluation import run_scores
from as2jax.inference import explain, reevaluate
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.training import build
from as2jax.training.loop import train_and_evaluate

UNION = "dev+test"


@pytest.fixture(scope="module")
def ranker(tmp_path_factory):
  """A run of BM25, evaluated on every split as configs/wikiqa_cassie.py says."""
  folder = tmp_path_factory.mktemp("bm25")
  settings = {"evaluation__splits": ("dev", "test"), "log__tensorboard": False}
  first = train_and_evaluate(tiny_systems.config("bm25", **settings), folder)
  again = jobs.of_run(str(folder / "config.json"))
  again.mode, again.evaluation.splits = "evaluate", ("train", "dev", "test", UNION)
  content = reevaluate.reevaluate(again, folder)
  assert all(content["metrics"][name] == entry for name, entry in first["metrics"].items())
  return folder


@pytest.mark.slow
def test_a_run_is_reported_on_dev_and_test_together(ranker, tmp_path):
  content = train_and_evaluate(run_config("cassie"), tmp_path / "run")
  actual = content["metrics"][f"map[sample-clean/{UNION}]"]
  data = dataset.load("sample")
  both = data.splits["dev"] + data.splits["test"]
  clean = sum(bool(q.positives) for q in both)
  assert actual["questions"] == clean and "map[sample-clean/heldout]" in content["metrics"]
  folder = tmp_path / "run" / "eval" / UNION
  assert list(trec_files.read_run(folder / "run.trec")) == [q.id for q in both]
  ours, bm25 = run_scores.load([str(tmp_path / "run"), str(ranker)], split=UNION)
  assert ours.ids == bm25.ids and len(ours.ids) == clean
  assert ours.metric("map").mean() == pytest.approx(actual["mean"])
  assert (tmp_path / "run" / "inputs" / "document_frequency.json").exists()


@pytest.fixture(scope="module")
def joint(ranker, tmp_path_factory):
  """(config, folder, results) of a finished joint run."""
  job_config = run_config(
    "cassie", "joint", data__ranking=str(ranker), evaluation__splits=("test",)
  )
  folder = tmp_path_factory.mktemp("joint")
  return job_config, folder, train_and_evaluate(job_config, folder)


def test_joint_reads_training_questions_in_the_order_that_it_is_told(ranker):
  orders = {}
  for name in ("", "shuffled"):
    parts = build.load(
      run_config("cassie", "joint", data__ranking=str(ranker), data__ranking_train=name)
    )
    (ranking,) = [e.ranking for e in parts.inputs if e.name == FirstStageRanking.name]
    dev, train = parts.dataset.splits["dev"], parts.dataset.splits["train"]
    orders[name] = [[ranking.order(q).tolist() for q in its] for its in (dev, train)]
  assert orders[""][0] == orders["shuffled"][0] and orders[""][1] != orders["shuffled"][1]
  for plain, shuffled in zip(orders[""][1], orders["shuffled"][1], strict=True):
    assert plain[3:] == shuffled[3:] and sorted(plain) == sorted(shuffled)
  with pytest.raises(InputError, match="data.ranking_train = 'shuffled' is for models"):
    build.load(run_config("cassie", data__ranking_train="shuffled"))


def best_first(scores):
  return sorted(scores, key=lambda c: (np.float32(scores[c]), c), reverse=True)


def test_joint_ranks_the_best_of_a_ranker_and_leaves_the_rest(ranker, joint):
  job_config, folder, content = joint
  ours = trec_files.read_run(folder / "eval" / "test" / "run.trec")
  first = trec_files.read_run(ranker / "eval" / "test" / "run.trec")
  moved = 0
  for question, scores in ours.items():
    before, after = best_first(first[question]), best_first(scores)
    assert set(after[:3]) == set(before[:3]) and after[3:] == before[3:]
    rest = [scores[c] for c in after[3:]]
    assert len(set(rest)) == len(rest) and all(x < scores[after[2]] for x in rest)
    moved += after != before
  assert moved
  job_config = job_config.copy_and_resolve_references()
  job_config.mode = "evaluate"
  assert reevaluate.reevaluate(job_config, folder)["metrics"] == content["metrics"]
  by_name, first = dataset.dataset("sample", "test"), ranker / "eval" / "test" / "run.trec"
  again = reevaluate.evaluate_on(Run(folder), by_name, ranking=first)
  assert again["metrics"] == content["metrics"]


@pytest.mark.slow
def test_a_picture_of_joint_shows_its_candidates_in_the_rankers_order(ranker, joint):
  run = Run(joint[1])
  question = next(q for q in dataset.load("sample").splits["test"] if len(q.candidates) > 3)
  first = trec_files.read_run(ranker / "eval" / "test" / "run.trec")[question.id]
  text = {c.id: c.text for c in question.candidates}
  texts = [text[c] for c in best_first(first)[:3]]
  asked = explain.from_data(run.config, question.id, "test")
  assert [c.text for c in asked.candidates] == texts
  two = explain.from_texts(run.config, question.text, texts[:2])
  plans, edges = explain.Words(run, two).alignment(run.ranker())
  assert [plan.mode for plan in plans] == ["candidate 1", "candidate 2", "candidate 3"]
  assert plans[2].candidate == () and not edges[2].any()
  with pytest.raises(InputError, match="given 4 times; the run reads 3"):
    explain.from_texts(run.config, "a", list("bcde"))


def test_joint_ranks_unlabelled_candidates_by_a_run_file_over_them(joint, tmp_path):
  job_config, folder, _ = joint
  job_config, questions = job_config.copy_and_resolve_references(), tmp_path / "questions.tsv"
  names = [f"candidate number {i}" for i in range(5)]
  rows = "".join(f"what is it\t{name}\n" for name in names)
  questions.write_text("question\tcandidate\n" + rows)
  with job_config.unlocked():
    job_config.mode, job_config.predict.input, job_config.data.ranking = (
      "predict",
      str(questions),
      "",
    )
    job_config.predict.output = str(tmp_path / "predictions.tsv")
  with pytest.raises(InputError, match="name the run file .* in predict.ranking"):
    reevaluate.predict(job_config, folder)
  (question,) = read(questions, labelled=False).questions
  trec_files.write_run(
    tmp_path / "first.trec",
    [question.id],
    [[c.id for c in question.candidates]],
    [np.arange(5.0)],
    "first",
  )
  with job_config.unlocked():
    job_config.predict.ranking = str(tmp_path / "first.trec")
  rows = reevaluate.predict(job_config, folder).read_text().splitlines()[1:]
  ranked = [row.split("\t")[-1] for row in rows]
  assert set(ranked[:3]) == set(names[2:]) and ranked[3:] == [names[1], names[0]]


def test_a_ranking_is_for_joint_models(ranker, tmp_path):
  with pytest.raises(InputError, match="data.ranking = .* is for .*model.template = 'joint'"):
    train_and_evaluate(run_config("cassie", data__ranking=str(ranker)), tmp_path / "a")
  with pytest.raises(InputError, match="data.ranking is missing"):
    train_and_evaluate(run_config("cassie", "joint"), tmp_path / "b")
