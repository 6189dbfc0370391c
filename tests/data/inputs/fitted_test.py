"""What inputs fit is kept by the run: fitted once, found again, refused where it was changed."""

import json

import pytest

from as2jax.data.inputs import protocol as fitted
from as2jax.data.inputs.protocol import declared
from as2jax.data.inputs.word_overlap import DocumentFrequency, WordOverlap
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.runtime.errors import InputError

TRAIN = (Question("Q", "who sat", (Candidate("a", "the cat sat", 1), Candidate("b", "no", 0))),)
ENTRIES = (WordOverlap(), DocumentFrequency())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_it_is_fitted_once(entry, tmp_path):
  first = fitted.recall(entry, tmp_path, lambda: TRAIN)
  content = json.loads((tmp_path / "inputs" / f"{entry.name}.json").read_text())
  assert content["source"] == fingerprint(TRAIN) and content["values"] == first
  again = fitted.recall(entry, tmp_path, lambda: pytest.fail("the data are not asked for"))
  assert again == first == entry.fit(TRAIN) == fitted.recall(entry, "", lambda: TRAIN)
  with pytest.raises(InputError, match=f"train.*inputs/{entry.name}.json.*train first"):
    fitted.recall(entry, tmp_path / "empty", lambda: None)
  fitted.forget(tmp_path)
  assert not (tmp_path / "inputs").exists()


@pytest.mark.parametrize(
  "change",
  [
    lambda c: {**c, "values": {**c["values"], "sentences": 5}},
    lambda c: {**c, "version": 0},
    lambda c: [],
  ],
)
def test_a_changed_file_is_refused(change, tmp_path):
  entry = WordOverlap()
  fitted.recall(entry, tmp_path, lambda: TRAIN)
  path = tmp_path / "inputs" / f"{entry.name}.json"
  path.write_text(json.dumps(change(json.loads(path.read_text()))))
  with pytest.raises(InputError, match=f"{entry.name}.json.*train again"):
    fitted.recall(entry, tmp_path, lambda: TRAIN)
  for text in ('{"version": 1', "[" * 100_000):
    path.write_text(text)
    with pytest.raises(InputError, match=f"{entry.name}.json: not valid JSON.*train again"):
      fitted.recall(entry, tmp_path, lambda: TRAIN)


def test_names_of_inputs_are_their_own():
  class Model:
    inputs = (WordOverlap(), WordOverlap())

  with pytest.raises(InputError, match="give each a name of its own"):
    declared(Model())
  assert declared(object()) == ()
