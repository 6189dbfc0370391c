"""The record of a run: its config and seeds, and that what was exchanged since is refused and named."""

import json
import logging
import shutil
import types
from unittest import mock

import numpy as np
import pytest
import tiny
import tiny_systems
from ml_collections import ConfigDict

from as2jax.config import base, jobs
from as2jax.config import words as config_words
from as2jax.config.overrides import flatten
from as2jax.data import dataset as datasets
from as2jax.data import load as datasets_load
from as2jax.data import trec_files
from as2jax.data.inputs.rankings import FirstStageRanking, Ranking
from as2jax.data.record import Passage, Pool, Query
from as2jax.evaluation import results, retrieve, run_scores
from as2jax.inference import export, reevaluate
from as2jax.inference.run import Run
from as2jax.report import runs
from as2jax.runtime import bound, version
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import seal, unseal, write_whole
from as2jax.training import record
from as2jax.training.loop import train_and_evaluate

SIZES = {"train": 40, "dev": 10, "test": 10}


def write_rows(folder, split, rows):
  (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(folder, split):
  return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]


def config(folder, model="crossencoder", **changes):
  files = {f"data__{split}": str(folder / f"{split}.jsonl") for split in SIZES}
  changes = {"data__name": "files", **files, "data__train_fraction": 1.0, **changes}
  return tiny.config(model, **{"encoder__pretrained": str(folder / "encoder"), **changes})


def lexical(folder, **changes):
  files = {f"data__{split}": str(folder / f"{split}.jsonl") for split in SIZES}
  own = {"data__name": "files", "evaluation__splits": ("test",), "log__tensorboard": False}
  return tiny_systems.config("idf_overlap", **files, **own, **changes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Files, an encoder and finished runs of a cross-encoder (`x`) and of IDF overlap (`idf`) on them."""
  folder = tmp_path_factory.mktemp("identity")
  for split, size in SIZES.items():
    first = datasets.load("sample").splits[split][:size]
    tiny.write_questions(folder / f"{split}.jsonl", first)
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
  known = record.read(trained / "x")
  assert known["data"].keys() == {"training", "dev", "test"}
  assert known["data"]["dev"]["questions"] == SIZES["dev"]
  assert known["weights"] == results.read(trained / "x")["weights"]["sha256"]
  assert known["tokenizer"] and known["code"] and known["versions"]["jax"]
  assert known["best"].keys() == {"checkpoints"}
  recorded = results.read(trained / "x")["identity"]
  assert recorded == {key: value for key, value in known.items() if key not in ("best", "files")}
  without = record.read(trained / "idf")
  assert without["weights"] is None and without["data"].keys() >= {"training", "test"}


def change_rows(split, function):
  return lambda folder: write_rows(folder, split, function(rows(folder, split)))


CHANGES = {
  "labels": (lambda x: turn_labels(x, "dev"), r"the questions of 'dev': \w+ \(10 questions"),
  "order": (change_rows("train", lambda r: r[::-1]), "the questions of 'training'"),
  "rows": (change_rows("train", lambda r: r[:-30]), r"'training': \w+ \(40 q.* then, .*questions"),
  "test": (lambda x: turn_labels(x, "test"), "the questions of 'test'"),
  "weights": (add_to_weights, "the pretrained weights: "),
  "tokenizer": (swap_tokens, "the tokeniser with its vocabulary: "),
  "heads": (lambda x: change_config(x, num_attention_heads=4), "'num_heads': 2 then, 4 now"),
  "dropout": (lambda x: change_config(x, hidden_dropout_prob=0.3), "'hidden_dropout': 0.1 then"),
}


@pytest.mark.parametrize("change,named", CHANGES.values(), ids=CHANGES)
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
  """Not where they present; others would take the place of the run's own evaluation."""
  before = (there / "x/eval/test/run.trec").read_bytes()
  turn_labels(there, "dev")
  shutil.copy(there / "test.jsonl", there / "moved.jsonl")
  only = {"mode": "evaluate", "evaluation__splits": ("test",)}
  moved = config(there, **only, data__test=str(there / "moved.jsonl"))
  again = reevaluate.reevaluate(moved, there / "x")
  assert again["identity"]["own"] and again["identity"]["changed"] == []
  other = config(there, **only, data__test=str(there / "dev.jsonl"))
  for wrong, split in ((config(there, mode="evaluate"), "dev"), (other, "test")):
    with pytest.raises(InputError, match=f"questions of '{split}'.*then(?s:.*)--data=NAME:SPLIT"):
      reevaluate.reevaluate(wrong, there / "x")
  assert (there / "x/eval/test/run.trec").read_bytes() == before


@pytest.mark.parametrize(
  "change, words",
  [
    (add_to_weights, "weights"),
    (swap_tokens, "tokeniser"),
    (
      lambda x: change_config(x, layer_norm_eps=1e-3),
      "the encoder's 'layer_norm_eps': 1e-12 then, 0.001 now",
    ),
  ],
)
def test_every_use_compares_the_encoder(there, change, words):
  change(there)
  with pytest.raises(InputError, match=words):
    reevaluate.reevaluate(config(there, mode="evaluate"), there / "x")
  if change is swap_tokens:
    with pytest.raises(InputError, match=words):
      Run(there / "x").ranker()
  else:  # a finished run ranks by what lies in its folder
    assert Run(there / "x").ranker().rank("what is ice", ["ice"])
  with pytest.raises(InputError, match=words):
    export.export(there / "x", there / "exported")
  assert not (there / "exported").exists()


def test_another_best_checkpoint_is_refused(there):
  content = unseal((there / "x/run.json").read_text())
  content["best"]["checkpoints"] = "0" * 64
  (there / "x/run.json").write_text(seal(content))
  with pytest.raises(InputError, match="not the checkpoint .* ended with .000000000000 then"):
    Run(there / "x").ranker()


DOORS = {  # what reads the files of a run that decide a score or a figure
  "config.json": Run,
  "results.json": lambda run: Run(run).metrics,
  "evaluations.jsonl": lambda run: results.times_evaluated(run, "test", "files"),
  "metrics.jsonl": lambda run: runs.read([str(run)]),
  "eval/test/per_question.tsv": lambda run: run_scores.load([str(run)]),
  "eval/test/run.trec": lambda run: runs.read([str(run)]).rankings,
  "eval/test/qrels.trec": lambda run: run_scores.load([str(run), f"{run}/eval/test/run.trec"]),
}


def test_every_file_that_decides_a_figure_is_bound(there):
  run = there / "x"
  present = {str(path.relative_to(run)) for path in run.glob("eval/*/*")} | DOORS.keys()
  assert bound.read(run)["files"].keys() == present
  for name, read in DOORS.items():
    read(run)
    whole = (run / name).read_bytes()
    (run / name).write_bytes(whole.replace(b"0", b"1", 1))
    with pytest.raises(InputError, match=f"{name} is not what the run wrote.*put it back, or "):
      read(run)
    (run / name).write_bytes(whole)
  with mock.patch.object(bound.files, "write_whole", side_effect=stop_before("evaluations.jsonl")):
    with pytest.raises(KeyboardInterrupt):  # a kill after the digest, before the file
      results.note_evaluation(run, "test", (0,), "files", "evaluate")
  assert results.times_evaluated(run, "test", "files") == (1, 1)


def stop_before(name):
  def write(path, text):
    if path.name == name:
      raise KeyboardInterrupt
    write_whole(path, text)

  return write


def test_a_ranker_without_weights_is_its_training_data(there):
  assert Run(there / "idf").ranker().rank("what is ice", ["ice", "fire"])[0].text == "ice"
  write_rows(there, "train", rows(there, "train")[:-30])
  with pytest.raises(InputError, match="the questions of 'training'"):
    Run(there / "idf").ranker()
  with pytest.raises(InputError, match="the questions of 'training'"):
    reevaluate.reevaluate(lexical(there, mode="evaluate"), there / "idf")
  turn_labels(there, "test")
  with pytest.raises(InputError, match="the questions of 'test'"):
    reevaluate.reevaluate(lexical(there, mode="evaluate"), there / "idf")


def test_other_code_and_versions_go_on_with_a_line(there, monkeypatch, caplog):
  monkeypatch.setattr(record.version, "source_digest", lambda modules: "f" * 64)
  monkeypatch.setattr(results, "versions", lambda: {"as2jax": "9"})
  with caplog.at_level(logging.WARNING):
    changed = resume(there)["identity"]["changed"]
  assert any(line.startswith("code ") and "ffffffffffff" in line for line in changed)
  assert any(line.startswith("as2jax ") and line.endswith("→ 9") for line in changed)
  assert caplog.text.count("goes on with other code or versions") == 1
  again = reevaluate.reevaluate(config(there, mode="evaluate"), there / "x")
  assert again["identity"]["changed"] == changed


@pytest.mark.parametrize("damage", ["absent", "flip", "files"])
def test_a_run_without_its_identity_is_refused(there, damage):
  path = there / "x/run.json"
  content = path.read_text()
  fields = {name: part for name, part in unseal(content).items() if name != "files"}
  path.unlink()
  if damage != "absent":
    path.write_text(seal(fields) if damage == "files" else content.replace("weights", "wEights"))
  for use in (lambda: Run(there / "x").ranker(), lambda: resume(there)):
    with pytest.raises(InputError, match="run.json is (missing|not what was written).*put it back"):
      use()


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
  assert "train" not in record.read(there / "x")["data"]
  reevaluate.reevaluate(later, there / "x")
  assert record.read(there / "x")["data"]["train"]["questions"] == SIZES["train"]
  turn_labels(there, "train")
  with pytest.raises(InputError, match="the questions of 'train'"):
    reevaluate.reevaluate(later, there / "x")


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
    return record._of_data(
      types.SimpleNamespace(dataset=data, data=data, inputs=inputs, model=model), ("test",)
    )

  first = digests(pools[0], plain)
  assert digests(pools[0], plain) == first
  assert digests(pools[1], plain)["data"] != first["data"]
  assert digests(pools[0], turned)["first_stage_ranking"] != first["first_stage_ranking"]
  assert digests(pools[0], turned)["data"] == first["data"]


def test_the_order_and_the_ranks_of_a_pool_that_is_ranked_again_count(tmp_path):
  passages = tuple(Passage(str(i), text) for i, text in enumerate(("ice", "snow", "fire")))
  pool = Pool(passages, (Query("q", "what burns ?", ("2",), (1,)),))

  def digest(scores, rank):
    place = tmp_path / "eval" / "test"
    trec_files.write_run(place / "run.trec", ["q"], [["0", "1", "2"]], [np.asarray(scores)], "x")
    table = {"mrr": np.asarray([1 / rank]), "any:mrr": np.asarray([1 / rank])}
    trec_files.write_table(place / "per_question.tsv", ["q"], [3], [1], table)
    return retrieve.digest(str(tmp_path), pool, "test")

  first = digest([3.0, 2.0, 1.0], 3)
  assert digest([9.0, 5.0, 4.0], 3) == first
  assert digest([1.0, 2.0, 3.0], 1) != first and digest([3.0, 2.0, 1.0], 2) != first


def claimed(**changes):
  return ConfigDict(
    {
      "mode": "train",
      "seeds": (0, 1),
      "seeds_parallel": False,
      "optimizer": {"rate": 1e-3},
      "data": {"download": True},
      "log": {"steps": 5},
      **changes,
    }
  )


def test_claim_writes_once_and_then_compares(tmp_path):
  record.claim(
    tmp_path, claimed(optimizer={"rate": 0.5})
  )  # nothing came of it: the folder is still new
  record.claim(tmp_path, claimed())
  (tmp_path / "checkpoints" / "latest" / "0").mkdir(parents=True)
  first = (tmp_path / "config.json").read_text()
  assert json.loads(first)["seeds"] == [0, 1]
  free = {"mode": "predict", "data": {"download": False}, "log": {"steps": 9}}
  record.claim(tmp_path, claimed(**free))  # these change no number
  assert (tmp_path / "config.json").read_text() == first
  with pytest.raises(InputError, match=r"optimizer.rate: 0.001 there, 0.1 now\n.*seeds: \[0, 1\]"):
    record.claim(tmp_path, claimed(optimizer={"rate": 0.1}, seeds=(0,)))
  (tmp_path / "config.json").write_text("[1]")
  with pytest.raises(InputError, match="config.json: holds no JSON object.*give another folder"):
    record.claim(tmp_path, claimed())
  (tmp_path / "config.json").unlink()  # what the run was is then not known: no config is its own
  with pytest.raises(InputError, match="config.json: .*No such file.*put it back as it was"):
    record.claim(tmp_path, claimed(optimizer={"rate": 0.1}))


def test_seeds_are_added_to_a_single_one(tmp_path):
  record.claim(tmp_path, claimed(seeds=(3,)))
  for name in ("checkpoints/latest/7/a", "eval/test/run.trec", "results.json"):
    write_whole(tmp_path / name, "x")
  assert not record.claim(tmp_path, claimed(seeds=(3, 4)))
  record.add_seeds(tmp_path, claimed(seeds=(3, 4)))
  files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
  moved = ["checkpoints/seed-3/latest/7/a", "config.json", "eval/test/seed-3/run.trec", "run.json"]
  assert files == moved and record.claim(tmp_path, claimed(seeds=(3, 4)))


def test_seeds_are_added_to_a_run_of_several(tmp_path):
  assert record.claim(tmp_path, claimed())
  paths = ("checkpoints/seed-0/latest/7/a", "eval/test/seed-1/run.trec", "evaluations.jsonl")
  for name in (*paths, "results.json", "evaluation.json", "report.html"):
    write_whole(tmp_path / name, "x")
  files = lambda: sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
  before = files(), (tmp_path / "config.json").read_text()
  more = claimed(seeds=(0, 1, 4), log={"steps": 9})
  assert not record.claim(tmp_path, more)  # nothing is lost before all else was compared
  assert before == (files(), (tmp_path / "config.json").read_text())
  record.add_seeds(tmp_path, more)
  assert record.claim(tmp_path, more)
  assert json.loads((tmp_path / "config.json").read_text())["seeds"] == [0, 1, 4]
  assert files() == sorted([*paths, "config.json", "run.json"])
  for seeds in ((1, 0, 4, 5), (0, 4, 1), (0,)):
    with pytest.raises(InputError, match=r"seeds: \[0, 1, 4\] there.*\nOnly seeds can be added"):
      record.claim(tmp_path, claimed(seeds=seeds))
  with pytest.raises(InputError, match=r"rate: 0.001 there, 0.1 now\nOnly"):
    record.claim(tmp_path, claimed(seeds=(0, 1, 4, 5), optimizer={"rate": 0.1}))


ROWS = ["question\tcandidate\tlabel", "who sat\tthe cat sat\t1", "who sat\ta dog\t0"]


@pytest.fixture
def finished(tmp_path):
  """A config over own files, and the results of a run on them that was evaluated on test."""
  paths = {split: tmp_path / f"{split}.tsv" for split in ("train", "test")}
  for path in paths.values():
    path.write_text("\n".join(ROWS) + "\n")
  settings = {f"data__{split}": str(path) for split, path in paths.items()}
  job_config = tiny.config("triplet", data__name="files", data__holdout=0.1, **settings)
  (tmp_path / "config.json").write_text(job_config.to_json())
  whole = job_config.data.copy_and_resolve_references().unlock()
  whole.holdout = 0.0
  fingerprints = datasets_load.load(whole).fingerprints
  splits = {split: {"fingerprint": fingerprints[split]} for split in paths}
  return job_config, {"metrics": {"map[files-all/test]": {}}, "data": {"splits": splits}}


def test_a_split_that_was_not_evaluated_is_not_dropped_in_silence(finished, tmp_path):
  job_config, content = finished
  record.check_finished(tmp_path, job_config, content)  # asked for dev and test; there is no dev
  asked = job_config.copy_and_resolve_references().unlock()
  asked.evaluation.splits = ("test", "train")
  with pytest.raises(InputError, match="without results of train; as2jax evaluate .*=train"):
    record.check_finished(tmp_path, asked, content)


def test_own_files_that_have_changed_since_the_end_are_refused(finished, tmp_path, monkeypatch):
  job_config, content = finished
  path = tmp_path / "train.tsv"
  path.write_text(path.read_text().replace("\t0", "\t1"))
  with pytest.raises(InputError, match="the train questions or labels of files have changed since"):
    record.check_finished(tmp_path, job_config, content)
  with monkeypatch.context() as patch:
    patch.setattr(record, "SMALL", 10)
    record.check_finished(tmp_path, job_config, content)
  path.unlink()
  record.check_finished(tmp_path, job_config, content)


def test_a_config_with_keys_that_are_gone_opens_and_goes_on(tmp_path):
  now = tiny.config("triplet")
  old = json.loads(now.to_json())
  old["optimizer"]["average"] = 0.0
  (tmp_path / "config.json").write_text(json.dumps(old))
  opened = flatten(jobs.of_run(str(tmp_path / "config.json")))
  assert opened.keys() == flatten(now).keys()
  assert {key for key, value in flatten(now).items() if opened[key] != value} <= set(base.MACHINE)
  (tmp_path / "checkpoints" / "latest" / "0").mkdir(parents=True)
  assert record.claim(tmp_path, now)
  old["optimizer"]["average"] = 0.99
  (tmp_path / "config.json").write_text(json.dumps(old))
  with pytest.raises(InputError, match="optimizer.average: 0.99 there, 0.0 now"):
    record.claim(tmp_path, now)
