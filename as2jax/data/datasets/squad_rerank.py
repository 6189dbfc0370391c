"""SQuAD 1.1 as re-ranking data with ASNQ's classes, for transfer where ASNQ is not available.

`as2jax data squad SQUAD.json OUTPUT.tsv` writes a file in ASNQ's format.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from etils import epath

from as2jax.data import tables
from as2jax.data.datasets.asnq import POSITIVE, write_asnq
from as2jax.data.datasets.files_on_disk import Spec
from as2jax.data.datasets.grouping import Row, make_question, together
from as2jax.data.datasets.squad import SQUAD, SQUAD_44, Paragraph, of_split, read_paragraphs
from as2jax.data.record import Question
from as2jax.runtime.errors import InputError

PARAGRAPHS = 3  # that give a question's candidates


def asnq_rows(
  path: epath.PathLike, *, split: str = "test", paragraphs: int = PARAGRAPHS
) -> Iterator[Row]:
  """Rows with ASNQ's classes, made from a SQuAD file; all rows of a question stand together.

  The question's own paragraph is the long answer. Its candidates are the sentences of that
  paragraph and of its neighbours in the article. Class 4: an answer begins in the sentence; 3: it
  is in the paragraph, and none does; 2 and 1: in another paragraph, with and without the words of
  an answer. Context is the sentence before and after, and the article's title. A question
  whose text occurred before is left out, because ASNQ tells questions apart by their text.

  Args:
    split: `train` or `dev` of a training file by article, `test` for all articles.
    paragraphs: how many paragraphs, the own one included, give candidates.

  Raises:
    InputError: see `squad.read_paragraphs`.

  """
  held: list[Paragraph] = []
  known: set[str] = set()
  for paragraph in of_split(read_paragraphs(path), split):
    if held and held[0].title != paragraph.title:
      yield from _article_rows(held, paragraphs, known)
      held = []
    held.append(paragraph)
  yield from _article_rows(held, paragraphs, known)


def _article_rows(article: Sequence[Paragraph], paragraphs: int, known: set[str]) -> Iterator[Row]:
  sentences = [paragraph.passages() for paragraph in article]
  for i, own in enumerate(article):
    first = max(min(i - (paragraphs - 1) // 2, len(article) - paragraphs), 0)
    for asked in own.questions:
      text = " ".join(asked.text.split())
      if text in known:
        continue
      known.add(text)
      right = own.right(asked)
      for j in range(first, min(first + paragraphs, len(article))):
        for passage in sentences[j]:
          if j == i:
            label = 4 if passage.text in right else 3
          else:
            label = 2 if any(answer in passage.text for _, answer in asked.answers) else 1
          yield Row(0, text, passage.text, label, passage.previous, passage.next, passage.title)


def read_rerank(path: epath.PathLike, split: str) -> Iterator[Question]:
  """The questions of a split with their candidates; class 4 is positive."""
  for number, rows in enumerate(together(asnq_rows(path, split=split)), 1):
    yield make_question(f"{split}{number}", rows, positive=POSITIVE)


@dataclasses.dataclass(frozen=True)
class RerankSpec(Spec):
  """A re-ranking dataset whose splits share files: `reader(path, split)`."""

  reader: Callable[[epath.PathLike, str], Iterable[Question]]

  def records(self, table: str, split: str, paths: Iterable[epath.Path]) -> Iterator[Any]:
    """The records of a split, file after file."""
    del table
    for path in paths:
      yield from self.reader(path, split)


SQUAD_AS2, SQUAD_44_AS2 = (
  RerankSpec(
    name=f"{spec.name}_as2",
    reader=read_rerank,
    version=spec.version,
    files=spec.files,
    folders=spec.folders,
    clean="answerable",
    published={},
    addresses=spec.addresses,
    sha256=spec.sha256,
    citation=spec.citation,
    licence=spec.licence,
  )
  for spec in (SQUAD, SQUAD_44)
)

SPECS = (SQUAD_AS2, SQUAD_44_AS2)


def main(arguments: Sequence[str] | None = None) -> int:
  """Writes the file; returns the exit status: 0, or 2 (bad input)."""
  parser = argparse.ArgumentParser(prog="as2jax data squad", description=__doc__)
  parser.add_argument("input", help="a SQuAD 1.1 file")
  parser.add_argument("output", help="a file in ASNQ's format, with a header")
  parser.add_argument(
    "--split",
    choices=("train", "dev", "test"),
    default="test",
    help="only the articles of this split (default: all articles)",
  )
  parser.add_argument(
    "--paragraphs",
    type=int,
    default=PARAGRAPHS,
    help="that give a question's candidates, its own included",
  )
  parser.add_argument("--no-context", action="store_true", help="ASNQ's three columns, no header")
  flags = parser.parse_args(arguments)
  if flags.paragraphs < 1:
    parser.error(f"--paragraphs={flags.paragraphs}: the question's own is one")
  try:
    tables.check_place(flags.output, "output", source=flags.input)
    rows = asnq_rows(flags.input, split=flags.split, paragraphs=flags.paragraphs)
    count = write_asnq(flags.output, rows, context=not flags.no_context)
  except InputError as error:
    print(error, file=sys.stderr)
    return 2
  print(f"{flags.output}: {count} rows")
  return 0
