"""The rankers of `lexical` over one pool: sparse, a question touches the sentences of its words.

Each maps a question to the float32 scores `[n]` of the pool's texts. Scores are those that `lexical`
gives where every question has all of the texts as candidates.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from as2jax.data.record import Question
from as2jax.data.text import words
from as2jax.models import lexical

PoolScorer = Callable[[str], np.ndarray]


def scorer(name: str, train: Iterable[Question], texts: Sequence[str]) -> PoolScorer:
  """The ranker `name` of `lexical.LEXICAL`, over `texts` `[n]`; equal texts have equal scores."""
  distinct = {text: i for i, text in enumerate(dict.fromkeys(texts))}
  of = np.asarray([distinct[text] for text in texts], np.int64)
  found = _bm25(list(distinct)) if name == "bm25" else _shared(list(distinct), _weight(name, train))
  return lambda question: found(question)[of]


def _weight(name: str, train: Iterable[Question]) -> Callable[[str], float]:
  return lexical.inverse_frequency(train) if name == "idf_overlap" else lambda word: 1.0


def _bm25(texts: Sequence[str]) -> PoolScorer:
  tokens = [words.plain_words(text) for text in texts]
  if not any(tokens):
    return lambda question: np.zeros(len(texts), np.float32)
  index, vocabulary = lexical.bm25_index(tokens)

  def score(question: str) -> np.ndarray:
    query = [vocabulary[word] for word in words.plain_words(question) if word in vocabulary]
    return index.get_scores_from_ids(query).astype(np.float32)

  return score


def _shared(texts: Sequence[str], weight: Callable[[str], float]) -> PoolScorer:
  holders: dict[str, list[int]] = defaultdict(list)
  for i, text in enumerate(texts):
    for word in set(words.plain_words(text)):
      holders[word].append(i)
  places = {word: np.asarray(its, np.int64) for word, its in holders.items()}

  def score(question: str) -> np.ndarray:
    total = np.zeros(len(texts), np.float64)
    for word in dict.fromkeys(words.plain_words(question)):
      if word in places:
        total[places[word]] += weight(word)
    return total.astype(np.float32)

  return score
