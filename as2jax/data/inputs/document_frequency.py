"""How often a word occurs and whether it counts: what `Words.frequency` and `Words.keep` hold.

CASSIE section 3.2: freq(w) of a question's word is the number of training questions that hold it.
The paper does not say what a sentence's is: here that of training sentences that hold it. Stop words
and punctuation are left out.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from etils import epath
from jaxtyping import Bool, Float32, Int64

from as2jax.data import record
from as2jax.data.inputs import fitted
from as2jax.data.record import Question
from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.stop_words import is_kept
from as2jax.data.text.token_table import UnitTable
from as2jax.data.text.words import words

NAME = "words.json"  # in a run's folder: see as2jax.data.inputs.fitted


@dataclasses.dataclass(frozen=True)
class WordFrequencies:
  """In how many texts of the training data a word occurs, at least once.

  Attributes:
    questions: lower-cased form -> training questions, each counted once whatever its text.
    sentences: lower-cased form -> distinct candidate sentences of the training questions; the
      sentences around them count where they are candidates themselves.
    source: fingerprint of the training questions.

  """

  questions: Mapping[str, int]
  sentences: Mapping[str, int]
  source: str


def count(questions: Sequence[Question]) -> WordFrequencies:
  """Counts the words of the questions that a run trains on and of their candidates."""
  sentences = dict.fromkeys(c.text for question in questions for c in question.candidates)
  return WordFrequencies(
    _texts_with(question.text for question in questions),
    _texts_with(sentences),
    record.fingerprint(questions),
  )


def _texts_with(texts: Iterable[str]) -> dict[str, int]:
  found = Counter(form for text in texts for form in {form for form, _, _ in words(text)})
  return dict(sorted(found.items()))


def known(
  workdir: epath.PathLike, questions: Callable[[], Sequence[Question] | None]
) -> WordFrequencies:
  """Those that the run in `workdir` remembers, or new ones of `questions`, which it then does.

  Args:
    workdir: the run's folder; "" for none.
    questions: gives those that the run trains on, or None where the data are not loaded.

  Raises:
    InputError: see `remembered.remembered`.

  """

  def fresh() -> WordFrequencies | None:
    train = questions()
    return None if train is None else count(train)

  return fitted.remembered(WordFrequencies, NAME, workdir, fresh)


def weigh(
  units: UnitTable, frequencies: WordFrequencies
) -> tuple[Float32[np.ndarray, "w"], Bool[np.ndarray, "w"]]:
  """Frequency and keep of each word of a table.

  A word that the training data do not hold has frequency 1. Where a text (one part of one unit, as
  far as truncation left it) has no word to keep, it keeps all.
  """
  if not len(units.word_form):
    return np.empty(0, np.float32), np.empty(0, bool)
  look_up = lambda table: np.asarray([table.get(form, 1) for form in units.forms], np.float32)
  asked = np.asarray(units.word_role) == ROLES["question"]
  frequency = np.where(
    asked,
    look_up(frequencies.questions)[units.word_form],
    look_up(frequencies.sentences)[units.word_form],
  )
  keep = np.asarray([is_kept(form) for form in units.forms])[units.word_form]
  unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
  text = unit * (int(units.word_role.max()) + 1) + units.word_role
  kept = np.bincount(text, weights=keep)
  return frequency, keep | (kept[text] == 0)


def most_words(units: UnitTable, keep: Bool[np.ndarray, "w"]) -> dict[str, int]:
  """The most words, and the most kept words, that a text of a role has.

  Returns:
    {`question`, `sentence`, `question_kept`, `sentence_kept`: words}.

  """
  found = {}
  for name, weights in (("", None), ("_kept", keep)):
    counts = _counts(units, weights)
    found["question" + name] = int(counts[:, :1].max(initial=0))
    found["sentence" + name] = int(counts[:, 1:].max(initial=0))
  return found


def words_beyond(
  units: UnitTable, keep: Bool[np.ndarray, "w"], *, question_words: int, sentence_words: int
) -> dict[str, int]:
  """What a model that takes only so many words of a text leaves out.

  Args:
    keep: the words that the model would take.
    question_words, sentence_words: the most of a question and of a sentence.

  Returns:
    {`questions`, `sentences`: texts with more; `question_words`, `sentence_words`: words left out}.
    A text counts once in each unit that it is a part of.

  """
  counts = _counts(units, keep)
  beyond = {
    "question": np.maximum(counts[:, :1] - question_words, 0),
    "sentence": np.maximum(counts[:, 1:] - sentence_words, 0),
  }
  return {f"{name}s": int((found > 0).sum()) for name, found in beyond.items()} | {
    f"{name}_words": int(found.sum()) for name, found in beyond.items()
  }


def _counts(
  units: UnitTable, keep: Bool[np.ndarray, "w"] | None = None
) -> Int64[np.ndarray, "u roles"]:
  """The words, or kept words, of each role of each unit."""
  unit = np.repeat(np.arange(len(units)), np.diff(units.word_offsets))
  roles = int(units.word_role.max(initial=0)) + 1
  text = unit * roles + units.word_role
  counts = np.bincount(text, keep, minlength=len(units) * roles)
  return counts.astype(np.int64).reshape(-1, roles)
