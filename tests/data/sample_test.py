"""The facts of the embedded data set, read without the project's own reader."""

import collections
import importlib.resources

import pytest

SPLITS = ("train", "dev", "test")
HEADER = "QuestionID Question DocumentID DocumentTitle SentenceID Sentence Label".split()
FIELDS = "question_id question document title sentence_id sentence label"
Row = collections.namedtuple("Row", FIELDS)
FOLDER = importlib.resources.files("as2jax.data.readers.sample")


def read(split):
  """Question id -> its rows, in the order of the file."""
  text = (FOLDER / f"sample-{split}.tsv").read_bytes().decode("utf-8")
  header, *lines = text.removesuffix("\n").split("\n")
  assert header.split("\t") == HEADER
  questions = collections.OrderedDict()
  previous = None
  for line in lines:
    row = Row(*line.split("\t"))
    assert row.question_id == previous or row.question_id not in questions, "not contiguous"
    previous = row.question_id
    questions.setdefault(row.question_id, []).append(row)
  return questions


@pytest.fixture(scope="module")
def data():
  return {split: read(split) for split in SPLITS}


def rows_of(questions):
  return [row for rows in questions.values() for row in rows]


def answerable(rows):
  return any(row.label == "1" for row in rows)


@pytest.mark.parametrize("split", SPLITS)
def test_candidates_are_the_whole_passage_in_order(data, split):
  passages = {}
  for rows in data[split].values():
    assert 5 <= len(rows) <= 12
    assert len({(row.question, row.document, row.title) for row in rows}) == 1
    document = rows[0].document
    assert [row.sentence_id for row in rows] == [f"{document}-{i}" for i in range(len(rows))]
    passage = [rows[0].title] + [row.sentence for row in rows]
    assert passages.setdefault(document, passage) == passage


def test_nothing_is_shared_between_splits(data):
  for field in ("question_id", "question", "document", "title", "sentence_id", "sentence"):
    seen = [{getattr(row, field).lower() for row in rows_of(data[split])} for split in SPLITS]
    assert len(set.union(*seen)) == sum(map(len, seen)), field


def test_the_counts_in_the_readme_are_true(data):
  readme = (FOLDER / "README.md").read_text(encoding="utf-8")
  table = {}
  for line in readme.splitlines():
    name, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
    if name in (*SPLITS, "all"):
      table[name] = [int(number) for number in numbers]
  counted = {}
  for split, questions in data.items():
    rows = rows_of(questions)
    counted[split] = [
      len({row.document for row in rows}),
      len(questions),
      sum(map(answerable, questions.values())),
      len(rows),
      sum(row.label == "1" for row in rows),
    ]
  counted["all"] = [sum(column) for column in zip(*counted.values(), strict=True)]
  assert table == counted
  passages, questions, with_answer = counted["all"][:3]
  several = sum(
    sum(row.label == "1" for row in rows) > 1 for split in SPLITS for rows in data[split].values()
  )
  without = questions - with_answer
  for claim in (
    f"{questions} questions over {passages} short",
    f"{without} questions ({without / questions:.0%}".replace("%", " %") + ")",
    f"{several} questions have more than one positive",
  ):
    assert claim in readme, claim
