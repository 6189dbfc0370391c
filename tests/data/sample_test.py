"""The facts of the embedded data set, read without the project's own reader."""

import csv
import importlib.resources

SPLITS = ("train", "dev", "test")
FOLDER = importlib.resources.files("as2jax.data.readers.sample")
OWN = ("QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence")


def read(split):
  """The questions of a split, each as its rows in the order of the file."""
  lines = (FOLDER / f"sample-{split}.tsv").read_text(encoding="utf-8").splitlines()
  questions, previous = {}, None
  for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
    name = row["QuestionID"]
    assert name == previous or name not in questions, "not contiguous"
    previous = name
    questions.setdefault(name, []).append(row)
  return list(questions.values())


def test_candidates_are_the_whole_passage_in_order_and_in_one_split():
  passages, seen = {}, {name: set() for name in OWN}
  for split in SPLITS:
    here = {name: set() for name in OWN}
    for rows in read(split):
      assert 5 <= len(rows) <= 12
      document = rows[0]["DocumentID"]
      assert [row["SentenceID"] for row in rows] == [f"{document}-{i}" for i in range(len(rows))]
      passage = [rows[0]["DocumentTitle"]] + [row["Sentence"] for row in rows]
      assert passages.setdefault(document, passage) == passage
      for row in rows:
        assert row["Question"] == rows[0]["Question"] and row["Label"] in "01"
        for name in OWN:
          here[name].add(row[name].lower())
    for name in OWN:
      assert not here[name] & seen[name], (split, name)
      seen[name] |= here[name]


def test_the_counts_in_the_readme_are_true():
  readme = (FOLDER / "README.md").read_text(encoding="utf-8")
  table = {}
  for line in readme.splitlines():
    name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
    if name in (*SPLITS, "all"):
      table[name] = [int(number) for number in numbers]
  counted = {}
  for split in SPLITS:
    right = [sum(int(row["Label"]) for row in rows) for rows in read(split)]
    documents = {rows[0]["DocumentID"] for rows in read(split)}
    pairs = sum(map(len, read(split)))
    counted[split] = [len(documents), len(right), sum(map(bool, right)), pairs, sum(right)]
  counted["all"] = [sum(column) for column in zip(*counted.values(), strict=True)]
  assert table == counted
