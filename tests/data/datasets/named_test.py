"""`as2jax.dataset`: a data set by name or path, its questions under a filter, labels, pairs."""

import pytest

import as2jax
from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets import named
from as2jax.data.datasets.statistics import KEEPS
from as2jax.runtime.errors import InputError

ROWS = ("question\tcandidate\tlabel", "who\tme\t1", "who\tyou\t0", "why\tso\t0")


def test_questions_under_a_filter():
  whole = datasets.load("sample")
  data = as2jax.dataset("sample", "dev")
  assert tuple(data.splits) == ("dev",) and data.splits["dev"] == whole.splits["dev"]
  assert data.questions == whole.splits["dev"]  # the sample has no official filter
  for rule in KEEPS:
    kept = as2jax.dataset("sample", "dev", filter=rule)
    assert kept.questions == tuple(filter(KEEPS[rule], whole.splits["dev"]))
    assert kept.splits["dev"] == whole.splits["dev"]
  clean = as2jax.dataset("sample", filter="clean").questions
  assert len(clean) == sum(bool(q.positives) for its in whole.splits.values() for q in its)
  assert as2jax.dataset("sample", "dev+test").reported == ("dev+test",)


def test_a_file_gives_labels_and_pairs(tmp_path):
  path = tmp_path / "faq.tsv"
  path.write_text("\n".join(ROWS) + "\n")
  data = as2jax.dataset(path)
  assert (data.name, tuple(data.splits)) == ("faq", ("test",))
  assert data.pairs() == [("who", "me", 1), ("who", "you", 0), ("why", "so", 0)]
  assert data.qrels == {"q1": {"q1-0": 1, "q1-1": 0}, "q2": {"q2-0": 0}}
  assert [q.text for q in as2jax.dataset(path, "train", filter="both").questions] == ["who"]


def test_labels_by_question_need_ids_that_differ_between_splits(tmp_path):
  """Each file of YahooCQA numbers its questions from q1."""
  folder = tmp_path / "yahoocqa_built"
  folder.mkdir()
  for split in ("train", "dev", "test"):
    rows = [f"how is {split}\tanswer {i}\t{int(i == 1)}\n" for i in range(5)]
    (folder / f"{split}.tsv").write_text("".join(rows))
  data = datasets.load("yahoocqa_built", root=str(tmp_path))
  assert len(data.questions) == 3
  with pytest.raises(InputError, match="yahoocqa_built: train.dev.test .* have the id 'q1'; open"):
    data.qrels  # noqa: B018
  with pytest.raises(InputError, match="yahoocqa_built-all/train.dev.test .* have the id 'q1'"):
    as2jax.evaluate(lambda questions: [range(5)] * len(questions), data)


@pytest.mark.parametrize("file, name", [("sample.csv", "sample.csv"), ("sample", "files")])
def test_a_file_is_not_called_as_a_data_set(tmp_path, file, name):
  path = tmp_path / file
  path.write_text("question,candidate,label\nwho,me,1\n")
  assert as2jax.dataset(path).name == name


def test_a_frame_holds_every_candidate():
  pytest.importorskip("pandas", reason="pandas is not installed")
  data = as2jax.dataset("sample", "test")
  frame = data.to_pandas()
  assert list(zip(frame["question"], frame["candidate"], frame["label"])) == data.pairs()


def test_what_is_wrong_is_named(tmp_path):
  with pytest.raises(InputError, match="did you mean 'sample'"):
    as2jax.dataset("sampel")
  with pytest.raises(InputError, match="no split 'tset'; it has train, dev, test"):
    as2jax.dataset("sample", "tset")
  with pytest.raises(InputError, match="filter = 'gold': use one of official, clean, all"):
    as2jax.dataset("sample", filter="gold")
  for how, what in (
    ({"columns": "label=good"}, "columns = 'label=good' are"),
    ({"drop": True}, "drop = True is"),
  ):
    for opened in (as2jax.dataset, named.by_address):
      with pytest.raises(
        InputError, match=f"{what} for your own files; leave it out for .* sample"
      ):
        opened("sample", **how)
  with pytest.raises(InputError, match="nothing.tsv"):
    as2jax.dataset(str(tmp_path / "nothing.tsv"))
