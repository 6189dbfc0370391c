"""Word overlap of a question and a candidate, as two features of the pair (M²S-Net section 3.3).

Words are those of the overlap baselines (`as2jax.models.lexical`), of the whole texts. How rare a
word is, is learnt from the candidates of the training split; a run remembers it.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from etils import epath

from as2jax.data import record
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.inputs import fitted as memory
from as2jax.data.record import Question
from as2jax.data.text.words import plain_words

NAME = "overlap.json"  # in a run's folder: see as2jax.data.inputs.fitted


@dataclasses.dataclass(frozen=True)
class WordRarity:
  """IDF(w) = ln(N / n_w), n_w counted as 1 where no sentence holds w; 0 where N = 0.

  Attributes:
    sentences: N, distinct candidate sentences.
    frequency: n_w, those that hold a word.
    source: fingerprint of the questions that they come from.

  """

  sentences: int
  frequency: Mapping[str, int]
  source: str

  def idf(self, word: str) -> float:
    """Inverse sentence frequency of a word."""
    return math.log(max(self.sentences, 1)) - math.log(self.frequency.get(word, 1))


def fit(questions: Sequence[Question]) -> WordRarity:
  """Counts the distinct candidate sentences of `questions` that hold each word."""
  sentences = dict.fromkeys(c.text for question in questions for c in question.candidates)
  frequency = Counter(word for text in sentences for word in set(plain_words(text)))
  return WordRarity(len(sentences), dict(sorted(frequency.items())), record.fingerprint(questions))


def remembered(
  workdir: epath.PathLike, questions: Callable[[], Sequence[Question] | None]
) -> WordRarity:
  """What the run in `workdir` remembers; where it is new, counted in `questions` and written there.

  Args:
    workdir: the run's folder; "" for none.
    questions: gives the training split, or None where the data are not loaded.

  Raises:
    InputError: see `remembered.remembered`.

  """

  def count() -> WordRarity | None:
    train = questions()
    return None if train is None else fit(train)

  return memory.remembered(WordRarity, NAME, workdir, count)


def features(question: str, candidate: str, rarity: WordRarity) -> tuple[float, float]:
  """Shared word types over the sum of both lengths in words: their number, and their summed IDF.

  0 where neither text has a word.
  """
  return _features(_words(question), _words(candidate), rarity)


def with_features(
  questions: Sequence[Question], table: ExampleTable, rarity: WordRarity
) -> ExampleTable:
  """`table`, a layout of `questions` with one candidate an example, with `features` [e, 2]."""
  split = functools.cache(_words)  # of each distinct text once
  values = np.zeros((len(table), 2), np.float32)
  for e, (q, c) in enumerate(zip(table.question.tolist(), table.candidate.tolist(), strict=True)):
    question = questions[q]
    values[e] = _features(split(question.text), split(question.candidates[c].text), rarity)
  return dataclasses.replace(table, features=values)


def _words(text: str) -> tuple[int, dict[str, None]]:
  """The number of words of a text, and its types in order."""
  found = plain_words(text)
  return len(found), dict.fromkeys(found)


def _features(question, candidate, rarity):
  (m, asked), (n, there) = question, candidate
  shared = [word for word in asked if word in there]
  length = max(m + n, 1)
  return len(shared) / length, sum(map(rarity.idf, shared)) / length
