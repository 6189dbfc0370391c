"""A run is what it began with: what was exchanged since is refused and named."""

import json
import logging
import os
import shutil
import types

import numpy as np
import pytest
import tiny

from as2jax.config import words as config_words
from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets import trec_files
from as2jax.data.datasets.pool import Pool
from as2jax.data.inputs.first_stage_ranking import FirstStageRanking, Ranking
from as2jax.data.record import Passage, Query
from as2jax.evaluation import results
from as2jax.inference import apply, export
from as2jax.inference.run import Run
from as2jax.runtime import checksums, version
from as2jax.runtime.errors import InputError
from as2jax.training import identity, warm_start
from as2jax.training.loop import train_and_evaluate

SIZES = {"train": 40, "dev": 10, "test": 10}


def write(folder):
  """Files of the first questions of each split of the sample."""
  sample = datasets.load("sample")
  for split, size in SIZES.items():
    rows = [
      {
        "question": question.text,
        "candidate": candidate.text,
        "label": candidate.label,
        "question_id": question.id,
        "candidate_id": candidate.id,
      }
      for question in sample.splits[split][:size]
      for candidate in question.candidates
    ]
    write_rows(folder, split, rows)


def write_rows(folder, split, rows):
  (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(folder, split):
  return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def config(folder, model="crossencoder", **changes):
  files = {f"data__{split}": str(folder / f"{split}.jsonl") for split in SIZES}
  changes = {"data__name": "files", **files, "data__train_fraction": 1.0, **changes}
  return tiny.config(model, **{"encoder__pretrained": str(folder / "encoder"), **changes})


def lexical(folder, **changes):
  from configs import wikiqa_baseline

  job_config = wikiqa_baseline.get_config("idf_overlap,sample")
  job_config.data.name, job_config.evaluation.splits, job_config.log.tensorboard = (
    "files",
    ("test",),
    False,
  )
  for split in SIZES:
    job_config.data[split] = str(folder / f"{split}.jsonl")
  job_config.update_from_flattened_dict({key.replace("__", "."): v for key, v in changes.items()})
  return job_config.lock()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Files, an encoder and finished runs of a cross-encoder (`x`) and of IDF overlap (`idf`) on them."""
  folder = tmp_path_factory.mktemp("identity")
  write(folder)
  shutil.copytree(tiny.encoder_folder(), folder / "encoder")
  train_and_evaluate(config(folder), folder / "x")
  train_and_evaluate(lexical(folder), folder / "idf")
  return folder


@pytest.fixture
def there(trained, monkeypatch, tmp_path):
  """The folder, put back after the test."""
  shutil.copytree(trained, tmp_path / "before")
  yield trained
  shutil.rmtree(trained)
  shutil.copytree(tmp_path / "before", trained)


def resume(folder):
  (folder / "x" / "results.json").unlink(missing_ok=True)
  return train_and_evaluate(config(folder), folder / "x")


def turn_labels(folder, split):
  write_rows(folder, split, [{**row, "label": 1 - row["label"]} for row in rows(folder, split)])


def add_to_weights(folder):
  from safetensors.numpy import load_file, save_file

  path = str(folder / "encoder/model.safetensors")
  tensors = load_file(path)
  name = sorted(tensors)[0]
  save_file({**tensors, name: tensors[name] + 1e-6}, path)


def change_config(folder, **values):
  path = folder / "encoder/config.json"
  path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def swap_tokens(folder):
  path = folder / "x/encoder/tokenizer.json"
  content = json.loads(path.read_text())
  vocabulary = content["model"]["vocab"]
  vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
  path.write_text(json.dumps(content))


def test_what_is_recorded(trained):
  known = identity.read(trained / "x")
  assert known["data"].keys() == {"training", "dev", "test"}
  assert known["data"]["dev"]["questions"] == SIZES["dev"]
  assert known["weights"] == results.read(trained / "x")["weights"]["sha256"]
  assert known["tokenizer"] and known["code"] and known["versions"]["jax"]
  assert known["best"].keys() == {"checkpoints"}
  recorded = results.read(trained / "x")["identity"]
  assert recorded == {key: value for key, value in known.items() if key != "best"}
  without = identity.read(trained / "idf")
  assert without["weights"] is None and without["data"].keys() >= {"training", "test"}


def test_a_digest_does_not_depend_on_paths_or_times(there):
  for name in ("train.jsonl", "encoder/model.safetensors", "x/encoder/tokenizer.json"):
    path = there / name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
  resume(there)


@pytest.mark.parametrize(
  "change,named",
  [
    (lambda folder: turn_labels(folder, "dev"), r"the questions of 'dev': \w+ \(10 questions"),
    (
      lambda folder: write_rows(folder, "train", rows(folder, "train")[::-1]),
      "the questions of 'training'",
    ),
    (
      lambda folder: write_rows(folder, "train", rows(folder, "train")[:-30]),
      r"'training': \w+ \(40 questions, .* then, \w+ \((?!40)\d\d questions",
    ),
    (lambda folder: turn_labels(folder, "test"), "the questions of 'test'"),
    (add_to_weights, "the pretrained weights: "),
    (swap_tokens, "the tokeniser with its vocabulary: "),
    (
      lambda folder: change_config(folder, num_attention_heads=4),
      "the encoder's 'num_heads': 2 then, 4 now",
    ),
    (
      lambda folder: change_config(folder, hidden_dropout_prob=0.3),
      "the encoder's 'hidden_dropout': 0.1 then, 0.3 now",
    ),
  ],
  ids=["labels", "order", "rows", "test", "weights", "tokenizer", "heads", "dropout"],
)
def test_resuming_with_something_else_is_refused(there, change, named):
  change(there)
  with pytest.raises(InputError, match=named):
    resume(there)
  assert not (there / "x/results.json").exists()


def test_resuming_with_other_scores_of_teachers_is_refused(trained, tmp_path):
  file = tmp_path / "soft.jsonl"
  texts = [{"question": r["question"], "candidate": r["candidate"]} for r in rows(trained, "train")]

  def train(sign):
    file.write_text("".join(json.dumps({**t, "score": sign}) + "\n" for t in texts))
    taught = config(trained).unlock()
    config_words.distil(taught)
    taught.data.teachers = (str(file),)
    taught.batch.examples = 64
    return train_and_evaluate(taught.lock(), tmp_path / "run")

  train(1.0)
  (tmp_path / "run/results.json").unlink()
  train(1.0)  # the same scores, written anew
  (tmp_path / "run/results.json").unlink()
  with pytest.raises(InputError, match="the teachers' scores of 'training': "):
    train(-1.0)


def test_evaluating_the_own_splits_again_compares_their_data_alone(there):
  turn_labels(there, "dev")
  again = apply.evaluate(config(there, mode="evaluate", evaluation__splits=("test",)), there / "x")
  assert again["identity"]["own"] and again["identity"]["changed"] == []
  with pytest.raises(InputError, match="the questions of 'dev'.*then(?s:.*)evaluation.data=FILE"):
    apply.evaluate(config(there, mode="evaluate"), there / "x")


def test_other_data_is_recorded_not_compared(there):
  write_rows(there, "dev", rows(there, "dev")[:5])
  (there / "dev.jsonl").rename(there / "other.jsonl")
  other = config(there, mode="evaluate", evaluation__data=str(there / "other.jsonl"))
  known = apply.evaluate(other, there / "x")["identity"]
  assert not known["own"] and known["data"]["test"]["candidates"] == 5


def test_other_data_under_the_runs_own_keys_are_refused_and_moved_files_are_not(there):
  """They would take the place of the run's own evaluation."""
  before = (there / "x/eval/test/run.trec").read_bytes()
  shutil.copy(there / "test.jsonl", there / "moved.jsonl")
  only = {"mode": "evaluate", "evaluation__splits": ("test",)}
  moved = config(there, **only, data__test=str(there / "moved.jsonl"))
  assert apply.evaluate(moved, there / "x")["identity"]["own"]
  other = config(there, **only, data__test=str(there / "dev.jsonl"))
  with pytest.raises(
    InputError, match=r"data.test: '.*test.jsonl' then, .* name them in evaluation"
  ):
    apply.evaluate(other, there / "x")
  assert (there / "x/eval/test/run.trec").read_bytes() == before


def change_epsilon(folder):
  change_config(folder, layer_norm_eps=1e-3)


def test_rates_of_dropout_are_nothing_to_a_use(there):
  change_config(there, hidden_dropout_prob=0.3)
  Run(there / "x").ranker()


@pytest.mark.parametrize(
  "change, words",
  [
    (add_to_weights, "weights"),
    (swap_tokens, "tokeniser"),
    (change_epsilon, "the encoder's 'layer_norm_eps': 1e-12 then, 0.001 now"),
  ],
)
def test_every_use_compares_the_encoder(there, change, words):
  change(there)
  with pytest.raises(InputError, match=words):
    apply.evaluate(config(there, mode="evaluate"), there / "x")
  with pytest.raises(InputError, match=words):
    Run(there / "x").ranker()
  with pytest.raises(InputError, match=words):
    export.export(there / "x", there / "exported")


def test_another_best_checkpoint_is_refused(there):
  content = checksums.unsealed((there / "x/identity.json").read_text())
  content["best"]["checkpoints"] = "0" * 64
  (there / "x/identity.json").write_text(checksums.sealed(content))
  with pytest.raises(InputError, match="not the checkpoint that this run ended with .000000000000"):
    Run(there / "x").ranker()


def test_a_ranker_without_weights_is_its_training_data(there):
  assert Run(there / "idf").ranker().rank("what is ice", ["ice", "fire"])[0].text == "ice"
  write_rows(there, "train", rows(there, "train")[:-30])
  with pytest.raises(InputError, match="the questions of 'training'"):
    Run(there / "idf").ranker()
  with pytest.raises(InputError, match="the questions of 'training'"):
    apply.evaluate(lexical(there, mode="evaluate"), there / "idf")
  turn_labels(there, "test")
  with pytest.raises(InputError, match="the questions of 'test'"):
    apply.evaluate(lexical(there, mode="evaluate"), there / "idf")


def test_other_code_and_versions_go_on_with_a_line(there, monkeypatch, caplog):
  monkeypatch.setattr(identity.version, "source_digest", lambda modules: "f" * 64)
  monkeypatch.setattr(results, "versions", lambda: {"as2jax": "9"})
  with caplog.at_level(logging.WARNING):
    changed = resume(there)["identity"]["changed"]
  assert any(line.startswith("code ") and "ffffffffffff" in line for line in changed)
  assert any(line.startswith("as2jax ") and line.endswith("→ 9") for line in changed)
  assert caplog.text.count("goes on with other code or versions") == 1
  again = apply.evaluate(config(there, mode="evaluate"), there / "x")
  assert again["identity"]["changed"] == changed


@pytest.mark.parametrize("damage", ["absent", "flip", "pipe"])
def test_a_run_without_its_identity_is_refused(there, damage):
  path = there / "x/identity.json"
  content = bytearray(path.read_bytes())
  content[200] ^= 1
  path.unlink() if damage != "flip" else path.write_bytes(content)
  if damage == "pipe":
    os.mkfifo(path)
  with pytest.raises(InputError, match=r"identity.json (is missing|was damaged|is a named pipe)"):
    Run(there / "x").ranker()
  with pytest.raises(InputError, match=r"identity.json (is missing|was damaged|is a named pipe)"):
    resume(there)


def test_the_source_of_a_class_of_the_users_counts(tmp_path, monkeypatch):
  (tmp_path / "my_own_model.py").write_text("A = 1\n")
  monkeypatch.syspath_prepend(tmp_path)
  before = version.source_digest(("my_own_model",))
  assert before != version.source_digest(())
  (tmp_path / "my_own_model.py").write_text("A = 2\n")
  version.source_digest.cache_clear()
  assert version.source_digest(("my_own_model",)) != before


def test_a_split_that_is_used_later_is_recorded_then(there):
  later = config(there, mode="evaluate", evaluation__splits=("train",))
  assert "train" not in identity.read(there / "x")["data"]
  apply.evaluate(later, there / "x")
  assert identity.read(there / "x")["data"]["train"]["questions"] == SIZES["train"]
  turn_labels(there, "train")
  with pytest.raises(InputError, match="the questions of 'train'"):
    apply.evaluate(later, there / "x")


def test_a_first_stage_is_compared_by_its_checkpoint_not_its_data(there):
  section = {"run": str(there / "x"), "scope": "all", "seed": None}
  turn_labels(there, "train")
  assert warm_start.WarmStart(section, (0,)).record["seeds"][0]["sha256"]
  content = identity.read(there / "x")
  content["best"]["checkpoints"] = "0" * 64
  (there / "x/identity.json").write_text(checksums.sealed(content))
  with pytest.raises(InputError, match="not the checkpoint that this run ended with"):
    _ = warm_start.WarmStart(section, (0,)).record


def test_pools_and_first_stage_rankings_count():
  """A passage that no question has, and another order of the same candidates."""
  questions = datasets.load("sample").splits["test"][:3]
  passages = tuple(Passage(str(i), text) for i, text in enumerate(("ice", "snow")))
  pools = [Pool(passages[:n], ()) for n in (1, 2)]
  plain, turned = Ranking(), Ranking()
  for question in questions:
    order = np.arange(len(question.candidates))
    plain.put(question, order)
    turned.put(question, order[::-1])

  def digests(pool, ranking):
    data = types.SimpleNamespace(splits={"test": questions}, pools={"test": pool})
    inputs, model = (FirstStageRanking(ranking),), types.SimpleNamespace(has_parameters=False)
    return identity._of_data(
      types.SimpleNamespace(dataset=data, data=data, inputs=inputs, model=model), ("test",)
    )

  first = digests(pools[0], plain)
  assert digests(pools[0], plain) == first
  assert digests(pools[1], plain)["data"] != first["data"]
  assert digests(pools[0], turned)["first_stage_ranking"] != first["first_stage_ranking"]
  assert digests(pools[0], turned)["data"] == first["data"]


def test_the_ranking_of_a_pool_that_is_ranked_again_counts(tmp_path):
  """Its order and its reciprocal ranks do, scores that give the same order do not."""
  passages = tuple(Passage(str(i), text) for i, text in enumerate(("ice", "snow", "fire")))
  pool = Pool(passages, (Query("q", "what burns ?", ("2",), (1,)),))
  place = tmp_path / "eval" / "test"

  def digest(scores, rank, encodes=False):
    trec_files.write_run(place / "run.trec", ["q"], [["0", "1", "2"]], [np.asarray(scores)], "x")
    table = {"mrr": np.asarray([1 / rank]), "any:mrr": np.asarray([1 / rank])}
    trec_files.write_table(place / "per_question.tsv", ["q"], [3], [1], table)
    data = types.SimpleNamespace(splits={"test": ()}, pools={"test": pool})
    config = types.SimpleNamespace(data=types.SimpleNamespace(ranking=str(tmp_path)))
    model = types.SimpleNamespace(has_parameters=True, encodes=encodes)
    parts = types.SimpleNamespace(dataset=data, data=data, inputs=(), model=model, config=config)
    return identity._of_data(parts, ("test",))["first_stage_ranking"]

  first = digest([3.0, 2.0, 1.0], 3)
  assert first.keys() == {"test"} and digest([9.0, 5.0, 4.0], 3) == first
  assert digest([1.0, 2.0, 3.0], 1) != first and digest([3.0, 2.0, 1.0], 2) != first
  assert digest([1.0, 2.0, 3.0], 1, encodes=True) == {}  # a bi-encoder searches the pool itself


def test_the_source_that_was_sent_to_a_machine_is_part_of_the_identity(
  trained, tmp_path, monkeypatch
):
  assert "source" not in identity.read(trained / "idf")  # here nobody sent it
  sent = {"commit": "0" * 40, "patch": "1" * 40}
  monkeypatch.setattr(identity.version, "source", lambda: sent)
  train_and_evaluate(lexical(trained), tmp_path / "idf")
  assert identity.read(tmp_path / "idf")["source"] == sent
  assert results.read(tmp_path / "idf")["identity"]["source"] == sent
