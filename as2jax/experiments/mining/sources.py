"""The questions that negatives are mined for or teachers score, and those that training must not hold."""

from collections.abc import Sequence

from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import mined, user_files
from as2jax.data.record import Question
from as2jax.data.retrieval import with_paragraph
from as2jax.runtime.errors import InputError


def to_score(data: str, folders: Sequence[str]) -> tuple[Question, ...]:
  """Training questions for a teacher: of a named data set, or of a file that may lack labels.

  `folders`, of `as2jax lab mine`, bring further candidates.

  Raises:
    InputError: no such data set, file or folder.

  """
  if data in datasets.SPECS:
    questions, _ = read(data, ())
  else:
    questions = user_files.read(data, labelled=None).questions
  return mined.added(questions, folders) if folders else questions


def read(data: str, exclude: Sequence[str]) -> tuple[tuple[Question, ...], list[Question]]:
  """Training questions, and the questions of dev and test.

  Args:
    data: the name of a data set, whose other splits are kept out, or a file of training questions. Of
      a retrieval data set the candidates are a question's paragraph and all of its right passages.
    exclude: further files of questions to keep out, or NAME:SPLIT.

  Raises:
    InputError: no such data set or file.

  """
  kept_out: list[Question] = []
  if data in datasets.SPECS:
    spec = datasets.SPECS[data]
    splits = _of_pool(data) if spec.is_pool else datasets.dataset(data).splits
    if "train" not in splits:
      raise InputError(f"{data} has no split train to mine for; it has {', '.join(splits)}")
    questions = tuple(splits["train"])
    # Other sizes of the training data, such as TrecQA's, are no questions of dev or test.
    for split in splits:
      if not split.startswith("train"):
        kept_out += splits[split]
  else:
    questions = user_files.read_labelled(epath.Path(data).expanduser())
  for address in exclude:
    for its in datasets.by_address(address).splits.values():
      kept_out += its
  return questions, kept_out


def _of_pool(name: str) -> dict[str, tuple[Question, ...]]:
  """Split -> the questions of a retrieval data set, which together have every passage of a paragraph."""
  pools = datasets.load_pool(name).splits
  return {split: with_paragraph(pools[split], every=True) for split in pools}
