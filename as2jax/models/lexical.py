"""Untrained lexical rankers: word overlap, IDF-weighted overlap, BM25.

Each entry of `LEXICAL` maps (training questions, **options) to a scorer, and a scorer maps
questions to one float32 array [candidates] of scores a question, higher is better. Ties are common.
Words are `\\w+` of the lower-cased text, a *type* is a distinct word; stop words stay in.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from as2jax.data.record import Question
from as2jax.data.text.words import plain_words

Scorer = Callable[[Sequence[Question]], list[np.ndarray]]

K1, B = 1.5, 0.75  # of BM25, where nothing else is said


def word_overlap(train: Iterable[Question] = ()) -> Scorer:
  """Scores a candidate by how many word types it shares with its question; `train` is not used.

  The word count of Yang et al. 2015 (WikiQA), who leave out stop words, which this does not.
  """
  del train
  return lambda questions: _shared(questions, lambda word: 1.0)


def idf_overlap(train: Iterable[Question]) -> Scorer:
  """Scores a candidate by the summed IDF of the word types it shares with its question.

  IDF(w) = ln(N / n_w) over the N distinct candidate sentences of `train`, n_w of which hold w (1
  where none does); 0 for every word where `train` is empty.
  """
  weight = inverse_frequency(train)
  return lambda questions: _shared(questions, weight)


def inverse_frequency(train: Iterable[Question]) -> Callable[[str], float]:
  """The IDF of a word over the distinct candidate sentences of `train`; see `idf_overlap`."""
  sentences = _sentences(train)
  frequency = Counter(word for text in sentences for word in set(plain_words(text)))
  total = np.log(max(len(sentences), 1))
  return lambda word: float(total - np.log(frequency.get(word, 1)))


def bm25(train: Iterable[Question] = (), *, k1: float = K1, b: float = B) -> Scorer:
  """Scores a candidate by BM25 (Lucene's variant: IDF is never negative); `train` is not used.

  The corpus is all distinct candidate sentences of the questions that are ranked, so that a score
  depends on the split. By bm25s rather than rank_bm25, whose Okapi IDF is negative for frequent
  words and patched by a constant; bm25s also scales to a pool of sentences.

  Args:
    train: not used.
    k1: how slowly repeated words saturate.
    b: how much long sentences are held back, 0 to 1.

  """
  del train
  return lambda questions: _bm25(questions, k1, b)


def _bm25(questions, k1, b):
  place = _sentences(questions)
  tokens = [plain_words(text) for text in place]
  if not any(tokens):  # the library cannot index a corpus without a word
    return [np.zeros(len(question.candidates), np.float32) for question in questions]
  index, vocabulary = bm25_index(tokens, k1=k1, b=b)
  scores = []
  for question in questions:
    query = [vocabulary[word] for word in plain_words(question.text) if word in vocabulary]
    every = index.get_scores_from_ids(query)
    rows = np.array([place[c.text] for c in question.candidates], np.int64)
    scores.append(every[rows].astype(np.float32))
  return scores


def bm25_index(tokens: Sequence[Sequence[str]], *, k1: float = K1, b: float = B):
  """The index of the library over a corpus of words, some text of it not empty; word -> its id."""
  import bm25s

  vocabulary = {word: i for i, word in enumerate(dict.fromkeys(w for text in tokens for w in text))}
  ids = [[vocabulary[word] for word in text] for text in tokens]
  index = bm25s.BM25(k1=k1, b=b, method="lucene")
  index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
  return index, vocabulary


def _shared(questions, weight):
  """Sums `weight` over the word types that each candidate shares with its question."""
  scores = []
  for question in questions:
    # In the order of the question, so that equal sets give equal sums.
    types = {word: weight(word) for word in plain_words(question.text)}
    rows = []
    for candidate in question.candidates:
      present = set(plain_words(candidate.text))
      rows.append(sum(value for word, value in types.items() if word in present))
    scores.append(np.array(rows, np.float32))
  return scores


def _sentences(questions) -> dict[str, int]:
  """Returns the distinct candidate sentences, numbered in order of first occurrence."""
  distinct = dict.fromkeys(c.text for question in questions for c in question.candidates)
  return {text: i for i, text in enumerate(distinct)}


LEXICAL: dict[str, Callable[..., Scorer]] = {
  "word_overlap": word_overlap,
  "idf_overlap": idf_overlap,
  "bm25": bm25,
}
