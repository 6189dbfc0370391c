"""What a run remembers: kept, found again, refused where it was changed."""

import json

import pytest

from as2jax.data.inputs import document_frequency, fitted, word_overlap
from as2jax.data.record import Candidate, Question
from as2jax.runtime.errors import InputError

TRAIN = (Question("Q", "who sat", (Candidate("a", "the cat sat", 1), Candidate("b", "no", 0))),)
KINDS = (
  (word_overlap.fit, word_overlap.WordRarity),
  (document_frequency.count, document_frequency.WordFrequencies),
)


@pytest.mark.parametrize("make, kind", KINDS)
def test_it_is_counted_once(make, kind, tmp_path):
  first = fitted.remembered(kind, "x.json", tmp_path, lambda: make(TRAIN))
  assert (tmp_path / "encoder" / "x.json").exists()
  again = fitted.remembered(kind, "x.json", tmp_path, lambda: pytest.fail("counted again"))
  assert again == first == make(TRAIN)
  assert fitted.remembered(kind, "x.json", "", lambda: first) is first
  with pytest.raises(InputError, match="does not hold the word frequencies.*x.json.*train first"):
    fitted.remembered(kind, "x.json", tmp_path / "empty", lambda: None)


@pytest.mark.parametrize("make, kind", KINDS)
@pytest.mark.parametrize(
  "change",
  [
    lambda c: {**c, "sentences": 5},
    lambda c: {**c, "version": 0},
    lambda c: {k: v for k, v in c.items() if k != "source"},
    lambda c: [],
    lambda c: {**c, "x": 1},
  ],
)
def test_a_changed_file_is_refused(change, make, kind, tmp_path):
  path = tmp_path / "x.json"
  fitted.save(make(TRAIN), path)
  assert fitted.load(kind, path) == make(TRAIN)
  path.write_text(json.dumps(change(json.loads(path.read_text()))))
  with pytest.raises(InputError, match="x.json.*train again"):
    fitted.load(kind, path)


def test_a_broken_or_absent_file_is_refused(tmp_path):
  path = tmp_path / "x.json"
  with pytest.raises(InputError, match="x.json cannot be read"):
    fitted.load(word_overlap.WordRarity, path)
  path.write_text('{"version": 1')
  with pytest.raises(InputError, match="x.json cannot be read"):
    fitted.load(word_overlap.WordRarity, path)


def test_files_of_earlier_versions_stay_readable(tmp_path):
  """The digest of word rarities, as it was before this module wrote them."""
  path = tmp_path / "x.json"
  fitted.save(word_overlap.WordRarity(2, {"b": 1, "a": 2}, "source"), path)
  assert json.loads(path.read_text())["sha256"] == (
    "c20b6ed26859d4a8cc50c072a6b329aa37cd058c61294420f218f54a135f3c42"
  )
