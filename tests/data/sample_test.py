"""The facts of the embedded data set, read without the project's own reader."""

import csv
import importlib.resources

import pandas

SPLITS = ("train", "dev", "test")
FOLDER = importlib.resources.files("as2jax.data.readers.sample")
OWN = ("QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence")


def read(split):
  """The rows of a split."""
  how = {"sep": "\t", "quoting": csv.QUOTE_NONE, "keep_default_na": False}
  return pandas.read_csv(str(FOLDER / f"sample-{split}.tsv"), **how)


def test_candidates_are_the_whole_passage_in_order_and_in_one_split():
  passages, seen = {}, {name: set() for name in OWN}
  for split in SPLITS:
    table = read(split)
    begins = table["QuestionID"] != table["QuestionID"].shift()
    assert begins.sum() == table["QuestionID"].nunique(), "not contiguous"
    assert set(table["Label"]) == {0, 1}
    for _, rows in table.groupby("QuestionID"):
      document, title = rows["DocumentID"].iloc[0], rows["DocumentTitle"].iloc[0]
      assert 5 <= len(rows) <= 12 and rows["Question"].nunique() == 1
      assert rows["SentenceID"].tolist() == [f"{document}-{i}" for i in range(len(rows))]
      passage = [title, *rows["Sentence"]]
      assert passages.setdefault(document, passage) == passage
    for name in OWN:
      here = set(table[name].str.lower())
      assert not here & seen[name], (split, name)
      seen[name] |= here


def test_the_counts_in_the_readme_are_true():
  readme = (FOLDER / "README.md").read_text(encoding="utf-8")
  table = {}
  for line in readme.splitlines():
    name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
    if name in (*SPLITS, "all"):
      table[name] = [int(number) for number in numbers]
  counted = {}
  for split in SPLITS:
    rows, right = read(split), read(split).groupby("QuestionID")["Label"].sum()
    questions = len(right), (right > 0).sum()
    counted[split] = [rows["DocumentID"].nunique(), *questions, len(rows), right.sum()]
  counted["all"] = [sum(column) for column in zip(*counted.values(), strict=True)]
  assert table == counted
