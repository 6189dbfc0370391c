"""A person's own data in Python: trained on, evaluated, ranked; texts come out as they went in."""

import pytest

import as2jax
from as2jax.data import user_files
from as2jax.inference import modes
from as2jax.runtime.errors import InputError

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
FRAME = pandas.DataFrame(
  {
    "ask": ["who sat"] * 3 + ["what is ice"] * 2,
    "reply": ["a\tdog\r\ncame", "the cat\nsat", 'who "sat" there', "ice is water", ""],
    "good": [False, True, False, True, False],
    "team": ["x", "y", None, "z", "z"],
  }
)
COLUMNS = {"question": "ask", "candidate": "reply", "label": "good"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A run of BM25 on the frame alone, as its test set."""
  folder = tmp_path_factory.mktemp("own") / "run"
  return as2jax.train("own:bm25", folder, data={"test": FRAME}, columns=COLUMNS, drop=True)


def test_a_frame_is_kept_in_the_runs_folder(run):
  assert run.config.data.test == str(run.folder / "data" / "test.jsonl")
  kept = user_files.read_labelled(run.config.data.test)
  assert kept == user_files.read(FRAME, labelled=True, columns=COLUMNS, drop=True).questions
  assert run.metrics["map[files-all/test]"]["questions"] == 2
  again = as2jax.train("own:bm25", run.folder, data={"test": FRAME}, columns=COLUMNS, drop=True)
  assert again.metrics == run.metrics


def test_another_frame_does_not_replace_the_data_of_a_run(run):
  train = lambda job, frame: as2jax.train(
    job, run.folder, data={"test": frame}, columns=COLUMNS, drop=True
  )
  path = run.folder / "data" / "test.jsonl"
  before = path.read_text()
  with pytest.raises(InputError, match="began with other data .*test.jsonl.*give another output"):
    train("own:bm25", FRAME.head(3))
  with pytest.raises(InputError, match="holds a run of another config"):
    train("own:word_overlap", FRAME)
  assert path.read_text() == before


def test_without_text_nothing_begins(tmp_path):
  with pytest.raises(InputError, match="the frame: row 4: .*1 without a question or a candidate"):
    as2jax.train("own:bm25", tmp_path / "run", data={"test": FRAME}, columns=COLUMNS)
  assert not (tmp_path / "run").exists()


def test_pairs_are_measured_over_one_pool_of_their_answers(run, tmp_path, monkeypatch):
  """By a run, and by any system in Python: each question ranks the answers of all."""
  frame = pandas.DataFrame(
    {
      "question": ["who sat there", "what is ice", "who came in", "when did the dog bark"],
      "answer": ["the cat sat", "ice is water", "a dog came", "noon"],
    }
  )
  path = tmp_path / "pairs.csv"
  frame.to_csv(path, index=False)
  found = as2jax.evaluate(run, path)
  assert found.metrics["mrr"]["questions"] == 4 and len(found.values["mrr"][0]) == 4
  config = run.config.copy_and_resolve_references().unlock()
  config.mode, config.evaluation.data = "evaluate", str(path)
  of_run = modes.content(config, str(run.folder))
  assert of_run["task"] == "retrieve"
  assert of_run["metrics"]["mrr[pairs-gold/test]"]["mean"] == found.metrics["mrr"]["mean"] < 1
  monkeypatch.setattr("as2jax.inference.evaluate.LARGEST", 15)
  with pytest.raises(InputError, match="16 pairs; evaluate a run"):
    as2jax.evaluate(run, path)
  held_out = {"data.holdout": 0.5}
  trained = as2jax.train("own:bm25", tmp_path / "x", data={"train": frame}, overrides=held_out)
  assert trained.results["task"] == "retrieve"


def test_files_and_frames_evaluate_alike(run, tmp_path):
  path = tmp_path / "faq.csv"
  FRAME.to_csv(path, index=False)
  options = {"columns": COLUMNS, "drop": True}
  first = as2jax.evaluate(run, FRAME, **options)
  assert first.metrics == as2jax.evaluate(run, path, **options).metrics
  data = as2jax.dataset(FRAME, filter="both", **options)
  assert [q.text for q in data.questions] == ["who sat"]
