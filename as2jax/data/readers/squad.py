"""SQuAD 1.1 (Rajpurkar et al. 2016) as sentence retrieval, by ReQA's construction (Ahmad et al.
2019): the pool is every sentence of every paragraph, and the right sentences of a question are
those in which an annotator's answer begins.
"""

import dataclasses
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from etils import epath

from as2jax.data.lines import ID, decoded, is_id, opened, parsed, quoted
from as2jax.data.readers.asnq import POSITIVE, Row, make_question, together
from as2jax.data.record import Passage, Query, Question, make_query
from as2jax.data.source import PoolCounts, Spec
from as2jax.data.text.sentences import sentence_spans
from as2jax.runtime.errors import InputError

PARAGRAPHS = 3  # that give a question's candidates
# Of `squad_parts`: 44 articles of train-v1.1 and 14 of dev-v1.1's 48 train; 5 are dev, the other 29 test.
PARTED = "dev-v1.1.json"
_spans = functools.lru_cache(maxsize=64)(sentence_spans)  # of a paragraph, asked by each question
HELD_OUT = 0.09  # of the training articles: about 7,801 of 79,554 + 7,801 questions (Cross-VAE)


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
  """A question of a paragraph, with the (start, text) of every annotator's answer."""

  id: str
  text: str
  answers: tuple[tuple[int, str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Paragraph:
  """A paragraph, its number within the file (`article-paragraph`), and its questions."""

  id: str
  title: str
  text: str
  questions: tuple[Asked, ...]

  def passages(self) -> tuple[Passage, ...]:
    """Return the sentences in order; of equal sentences only the first counts."""
    texts = [self.text[start:end] for start, end in _spans(self.text)]
    title = self.title.replace("_", " ")
    around = ["", *texts, ""]
    passages: dict[str, Passage] = {}
    for i, text in enumerate(texts):
      if text not in passages:
        before, after = around[i], around[i + 2]
        passages[text] = Passage(f"{self.id}-{i}", text, title, before, after, self.text)
    return tuple(passages.values())

  def right(self, asked: Asked) -> dict[str, int]:
    """Return votes by the text of the sentence in which the answers to a question begin."""
    votes: Counter[str] = Counter()
    spans = _spans(self.text)
    for at, _ in asked.answers:
      # White space belongs to the sentence behind it: an answer may begin with it.
      start, end = next(span for span in spans if at < span[1])
      votes[self.text[start:end]] += 1
    return dict(votes)


def read_paragraphs(path: epath.PathLike) -> Iterator[Paragraph]:
  """Yield the paragraphs of a SQuAD 1.1 file, in order; the file is held whole (30 MB at most).

  Raises InputError: not such a file; names article, paragraph and question, and what is wrong.
  """
  where, seen = f"{path}", set()
  try:
    with opened(path) as file:
      content = parsed(decoded(file.read(), path))
    for i, article in enumerate(content["data"]):
      title = _text(article, "title")
      for j, paragraph in enumerate(article["paragraphs"]):
        inner = where = f"{path}: article {i + 1} ({quoted(title)}), paragraph {j + 1}"
        text, questions = _text(paragraph, "context"), []
        for k, qa in enumerate(paragraph["qas"]):
          where = f"{inner}, question {k + 1}"
          questions.append(_asked(qa, text, seen))
        yield Paragraph(f"{i}-{j}", title, text, tuple(questions))
    if not seen:
      raise ValueError("there are no questions")
  except (LookupError, TypeError, ValueError, RecursionError) as error:
    what = f"there is no field {error}" if isinstance(error, KeyError) else error
    raise InputError(f"{where}: not in SQuAD 1.1's form: {what}; get the file again") from error


def _text(record: Mapping, name: str) -> str:
  if not isinstance(record[name], str) or not record[name].strip():
    raise ValueError(f"the field {name} is {quoted(json.dumps(record[name]))}; expected a text")
  return record[name]


def _asked(qa: Mapping, text: str, seen: set[str]) -> Asked:
  id, question = _text(qa, "id"), _text(qa, "question")
  if not is_id(id) or id in seen:
    raise ValueError(f"the id {quoted(id)} was already that of another question, or is none: {ID}")
  seen.add(id)
  answers = []
  for answer in qa["answers"]:
    start, span = answer["answer_start"], _text(answer, "text")
    if type(start) is not int or start < 0 or text[start : start + len(span)] != span:
      raise ValueError(f"the answer {quoted(span)} does not stand at {start!r} of the context")
    answers.append((start, span))
  if not answers:
    raise ValueError("no answers: SQuAD 1.1 has one or more a question (2.0 does not)")
  return Asked(id, question, tuple(answers))


def _share(name: str) -> float:
  """Return a number in [0, 1) that is drawn by a hash of a name."""
  digest = hashlib.sha256(f"as2jax squad {name}".encode()).digest()
  return int.from_bytes(digest[:8], "big") / 2**64


def held_out(title: str) -> bool:
  """Tell whether an article of the training file is for development: by a hash of its title."""
  return _share(f"dev {title}") < HELD_OUT


def of_split(paragraphs: Iterable[Paragraph], split: str) -> Iterator[Paragraph]:
  """Yield the articles of a split: `train` and `dev` divide a file, `test` has all."""
  for paragraph in paragraphs:
    if split == "test" or held_out(paragraph.title) == (split == "dev"):
      yield paragraph


def read_squad(path: epath.PathLike, table: str, split: str) -> Iterator[Passage | Query]:
  """Yield the records of a table (`pool` or `queries`) of a split; errors as `read_paragraphs`."""
  for paragraph in of_split(read_paragraphs(path), split):
    yield from records(paragraph, table)


def records(paragraph: Paragraph, table: str) -> Iterator[Passage | Query]:
  """Yield a paragraph's passages (table `pool`) or its questions (`queries`)."""
  passages = paragraph.passages()
  if table == "pool":
    yield from passages
    return
  ids = {passage.text: passage.id for passage in passages}
  for asked in paragraph.questions:
    votes = {ids[text]: count for text, count in paragraph.right(asked).items()}
    yield make_query(asked.id, asked.text, votes, paragraph.title)


def part(title: str) -> str:
  """Return the split of an article of dev-v1.1, by a hash of its title."""
  place = _share(f"part {title}")
  if place < 1 / 3:
    return "train"
  return "dev" if place < 1 / 3 + 1 / 6 else "test"


def read_parts(path: epath.PathLike, table: str, split: str) -> Iterator[Passage | Query]:
  """Yield the records of a table of a split: of dev-v1.1 by article, of the training file all.

  Ids of paragraphs include their file, because two files form one pool.
  """
  parted = epath.Path(path).name.startswith(PARTED)
  for paragraph in read_paragraphs(path):
    if not parted or part(paragraph.title) == split:
      name = f"{'dev' if parted else 'train'}-{paragraph.id}"
      yield from records(dataclasses.replace(paragraph, id=name), table)


def asnq_rows(path: epath.PathLike, *, split: str = "test") -> Iterator[Row]:
  """Yield rows with ASNQ's classes, made from a SQuAD file; all rows of a question stand together.

  The question's own paragraph is the long answer. Its candidates are the sentences of that
  paragraph and of its neighbours in the article, `PARAGRAPHS` in all. Class 4: an answer begins in the
  sentence; 3: it is in the paragraph, and none does; 2 and 1: in another paragraph, with and without
  the words of an answer. Context is the sentence before and after, and the article's title. A question
  whose text occurred before is left out, because ASNQ tells questions apart by their text.
  """
  held: list[Paragraph] = []
  known: set[str] = set()
  for paragraph in of_split(read_paragraphs(path), split):
    if held and held[0].title != paragraph.title:
      yield from _article_rows(held, known)
      held = []
    held.append(paragraph)
  yield from _article_rows(held, known)


def _article_rows(article: Sequence[Paragraph], known: set[str]) -> Iterator[Row]:
  sentences = [paragraph.passages() for paragraph in article]
  for i, own in enumerate(article):
    first = max(min(i - (PARAGRAPHS - 1) // 2, len(article) - PARAGRAPHS), 0)
    for asked in own.questions:
      text = " ".join(asked.text.split())
      if text in known:
        continue
      known.add(text)
      right = own.right(asked)
      for j in range(first, min(first + PARAGRAPHS, len(article))):
        for passage in sentences[j]:
          if j == i:
            label = 3 + (passage.text in right)
          else:
            label = 1 + any(answer in passage.text for _, answer in asked.answers)
          yield Row(text, passage.text, label, passage.previous, passage.next, passage.title)


def read_rerank(path: epath.PathLike, split: str) -> Iterator[Question]:
  """Yield the questions of a split with their candidates; class 4 is positive."""
  for number, rows in enumerate(together(asnq_rows(path, split=split)), 1):
    yield make_question(f"{split}{number}", rows, positive=POSITIVE)


REQA = PoolCounts(entries=10250, sentences=10246, queries=11426, questions=10570, texts=10539)

SQUAD = Spec(
  name="squad",
  reader=read_squad,
  version="1.0.0",
  files={"train": ("train-v1.1.json",), "dev": ("train-v1.1.json",), "test": ("dev-v1.1.json",)},
  folders=("squad", ""),
  clean="pool",
  published={"test": {"pool": REQA}},
  addresses={
    name: f"https://rajpurkar.github.io/SQuAD-explorer/dataset/{name}"
    for name in ("train-v1.1.json", "dev-v1.1.json")
  },
  sha256={"dev-v1.1.json": "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9"},
  documented={"test": {"pool": PoolCounts(10273, 10269, 11425, 10570, 10539)}},
  why="ReQA splits sentences by rules of its own, ours are in sentences.py: 23 passages more in "
  "2,067 paragraphs, one (question, right sentence) pair less. About 70 of our breaks stand behind "
  "page references and notes (`.:33 `, `.[12] `), where splitters differ most",
  licence="CC BY-SA 4.0 (rajpurkar.github.io/SQuAD-explorer)",
  citation="Rajpurkar et al.: SQuAD (EMNLP 2016); Ahmad et al.: ReQA (2019)",
)

# Where only 44 articles of the training file are available.
SQUAD_44 = dataclasses.replace(
  SQUAD,
  name="squad_44",
  files={
    "train": ("train-44-articles.json",),
    "dev": ("train-44-articles.json",),
    "test": ("dev-v1.1.json",),
  },
  addresses={},
)

SQUAD_PARTS = dataclasses.replace(
  SQUAD_44,
  name="squad_parts",
  reader=read_parts,
  files={"train": ("train-44-articles.json", PARTED), "dev": (PARTED,), "test": (PARTED,)},
  published={},
  documented={},
  why="",
)

SQUAD_AS2 = dataclasses.replace(
  SQUAD,
  name="squad_as2",
  reader=read_rerank,
  by_split=True,
  clean="answerable",
  published={},
  documented={},
  why="",
)

SQUAD_44_AS2 = dataclasses.replace(
  SQUAD_AS2, name="squad_44_as2", files=SQUAD_44.files, addresses={}
)

SPECS = (SQUAD, SQUAD_44, SQUAD_PARTS, SQUAD_AS2, SQUAD_44_AS2)
