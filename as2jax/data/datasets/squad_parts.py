"""SQuAD 1.1 from 44 articles of its training file and dev-v1.1, which is split by article.

Train: all of the 44 articles and 14 of dev-v1.1's 48; dev: 5 of them; test: the other 29. An
article's split is decided by a hash of its title (`part`), so that it never changes.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

from etils import epath

from as2jax.data.datasets.squad import SQUAD_44, read_paragraphs, records
from as2jax.data.record import Passage, Query

PARTED = "dev-v1.1.json"
SHARES = (("train", 1 / 3), ("dev", 1 / 6), ("test", 1 / 2))  # of the parted file's articles


def part(title: str) -> str:
  """The split of an article of dev-v1.1, by a hash of its title."""
  digest = hashlib.sha256(f"as2jax squad part {title}".encode()).digest()
  place = int.from_bytes(digest[:8], "big") / 2**64
  reached = 0.0
  for split, share in SHARES:
    reached += share
    if place < reached:
      return split
  return SHARES[-1][0]


def read_parts(path: epath.PathLike, table: str, split: str) -> Iterator[Passage | Query]:
  """The records of a table of a split: of dev-v1.1 by article, of the training file all.

  Ids of paragraphs include their file, because two files form one pool.

  Raises:
    InputError: see `squad.read_paragraphs`.

  """
  parted = epath.Path(path).name.startswith(PARTED)
  for paragraph in read_paragraphs(path):
    if not parted or part(paragraph.title) == split:
      name = f"{'dev' if parted else 'train'}-{paragraph.id}"
      yield from records(dataclasses.replace(paragraph, id=name), table)


SQUAD_PARTS = dataclasses.replace(
  SQUAD_44,
  name="squad_parts",
  reader=read_parts,
  files={"train": ("train-44-articles.json", PARTED), "dev": (PARTED,), "test": (PARTED,)},
  published={},
  documented={},
  why="",
)

SPECS = (SQUAD_PARTS,)
