"""What is compared before a finished run's results are the answer of the command that trained it."""

import logging

import pytest
import tiny

from as2jax.config import jobs
from as2jax.data import user_files
from as2jax.data.datasets import dataset as datasets
from as2jax.data.record import fingerprint
from as2jax.runtime.errors import InputError
from as2jax.training import finished_run

ROWS = ["question\tcandidate\tlabel", "who sat\tthe cat sat\t1", "who sat\ta dog\t0"]
WIKIQA = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"


def own(folder):
  """A config over own files, and results of a run on them."""
  paths = {split: folder / f"{split}.tsv" for split in ("train", "test")}
  for path in paths.values():
    path.write_text("\n".join(ROWS) + "\n")
  settings = {f"data__{split}": str(path) for split, path in paths.items()}
  config = tiny.config("triplet", data__name="files", data__holdout=0.1, **settings)
  read = {split: user_files.read_labelled(path) for split, path in paths.items()}
  return config, finished(folder, config, {s: fingerprint(its) for s, its in read.items()})


def finished(folder, config, fingerprints):
  """The results of a run in `folder` that was evaluated on test, of data with these fingerprints."""
  (folder / "config.json").write_text(config.to_json())
  splits = {split: {"fingerprint": digest} for split, digest in fingerprints.items()}
  return {"metrics": {"map[files-all/test]": {}}, "data": {"splits": splits}}


def asking(config, *splits):
  config = config.copy_and_resolve_references().unlock()
  config.evaluation.splits = splits
  return config


def test_a_split_that_was_not_evaluated_is_not_dropped_in_silence(tmp_path):
  config, content = own(tmp_path)
  finished_run.check(tmp_path, config, content)  # asked for dev and test, and there is no dev
  with pytest.raises(
    InputError, match="are of test, not of train; as2jax evaluate .*--splits=train"
  ):
    finished_run.check(tmp_path, asking(config, "test", "train"), content)
  with pytest.raises(InputError, match="not of heldout"):
    finished_run.check(tmp_path, asking(config, "heldout"), content)


def test_own_files_that_have_changed_are_refused(tmp_path, caplog, monkeypatch):
  config, content = own(tmp_path)
  text = (tmp_path / "train.tsv").read_text()
  (tmp_path / "train.tsv").write_text(text.replace("\t0", "\t1"))
  with pytest.raises(
    InputError, match="have changed since:\n  the questions of 'train': .* then"
  ) as e:
    finished_run.check(tmp_path, config, content)
  assert "'test'" not in str(e.value) and "--data=FILE" in str(e.value)
  (tmp_path / "train.tsv").write_text("\n".join([text.splitlines()[0], "who sat"]))
  with pytest.raises(InputError, match="have changed since: .*train.tsv"):
    finished_run.check(tmp_path, config, content)
  with caplog.at_level(logging.INFO):
    (tmp_path / "train.tsv").unlink()
    finished_run.check(tmp_path, config, content)  # test is as it was
    assert not caplog.records
    (tmp_path / "test.tsv").unlink()
    finished_run.check(tmp_path, config, content)
  assert "its data are not here, and were not compared" in caplog.text
  (tmp_path / "test.tsv").write_text("other")
  monkeypatch.setattr(finished_run, "OWN", 1)
  finished_run.check(tmp_path, config, content)  # too large to be read within a second


def test_a_data_set_whose_files_have_changed_is_refused(tmp_path, monkeypatch):
  monkeypatch.setenv("AS2JAX_DATA", str(tmp_path))
  (tmp_path / "wikiqa").mkdir()
  path = tmp_path / "wikiqa" / "WikiQA-train.tsv"
  path.write_text("\n".join([WIKIQA, "Q1\twho sat\tD1\tt\tD1-0\tthe cat sat\t1"]) + "\n")
  config = jobs.load("wikiqa_triplet:minilm")
  fingerprints = datasets.load("wikiqa", check=False).fingerprints
  content = finished(tmp_path, config, fingerprints)
  asked = asking(config, "test")
  finished_run.check(tmp_path, asked, content)
  path.write_text(path.read_text().replace("cat", "dog"))
  with pytest.raises(InputError, match="the questions of 'train': "):
    finished_run.check(tmp_path, asked, content)
  path.unlink()
  finished_run.check(tmp_path, asked, content)


def test_the_embedded_sample_is_not_read(tmp_path, monkeypatch):
  monkeypatch.setattr(datasets, "load_any", None)
  config = tiny.config("triplet")
  finished_run.check(tmp_path, asking(config, "test"), finished(tmp_path, config, {"test": "0"}))
