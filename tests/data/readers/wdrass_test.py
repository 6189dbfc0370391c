import json

from as2jax.data.dataset import load
from as2jax.data.record import UNKNOWN


def test_prepared_from_json_lines(tmp_path):
  (tmp_path / "wdrass").mkdir()
  rows = [
    {"question": "who ?", "sentence": "Ann .", "label": 1, "next": "Ben ."},
    {"question": "why ?", "sentence": "So .", "label": 0},
    {"question": "who ?", "sentence": "Ben .", "label": 0, "previous": "Ann ."},
  ]
  for split in ("train", "dev", "test"):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / f"wdrass/{split}.jsonl").write_text(text)
  data = load("wdrass", root=str(tmp_path), cache=str(tmp_path / "cache"), download=False)
  who, why = data.splits["dev"]
  assert [(c.text, c.label, c.previous_label, c.next_label) for c in who.candidates] == [
    ("Ann .", 1, UNKNOWN, 0),
    ("Ben .", 0, 1, UNKNOWN),
  ]
  assert data.statistics["dev"]["question_filters"]["answerable"] == {
    "questions": 1,
    "pairs": 2,
    "positives": 1,
  }
  assert data.overlap == {"train+dev": 2, "train+test": 2, "dev+test": 2} and why.id == "q2"
