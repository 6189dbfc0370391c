"""Mine negatives for training questions: passages that rank high and do not answer (`as2jax lab mine`).

A bi-encoder, BM25 or chance finds passages. One of ranks `first` to `last` becomes a negative of a question
unless it is, in this order: kept out (a question of dev or test), a candidate of the question already (or a
right one of a question in the same words), or too near to its positives: with a score above `below` of that
of its worst positive (NV-Retriever's TopK-PercPos, Moreira et al. 2024, section 3.2) by a miner.
"""

import collections
import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from as2jax.data import dataset as datasets
from as2jax.data import mined, user_files
from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.retrieval import with_paragraph
from as2jax.data.text.words import plain_form
from as2jax.evaluation import retrieve
from as2jax.inference.open import load as open_ranker
from as2jax.inference.ranker import Ranker
from as2jax.models.lexical import BM25
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import open_working, write_whole
from as2jax.runtime.version import __version__

QUESTIONS = 512  # at a time: what bounds memory beside the passages' texts
WORDS, CHANCE = "bm25", "random"


@dataclasses.dataclass(frozen=True)
class Settings:
  """What is mined.

  Attributes:
    first, last: ranks of the passages that are looked at, from 1.
    count: negatives a question, at most.
    below: of the worst positive's score s, a negative's is at most s − (1 − below)·|s|; 1e9 for any.
    seed: of chance.

  """

  first: int = 1
  last: int = 100
  count: int = 8
  below: float = 0.95
  seed: int = 0

  def limit(self, positives: np.ndarray) -> float:
    """Return the greatest score that a negative may have, from the scores of the positives."""
    if not len(positives):
      return np.inf
    score = float(positives.min())
    return score - (1 - self.below) * abs(score)


# The best passages of a question by one miner: numbers `[k]`, best first; scores `[k]`, NaN where it has
# none; and the scores `[p]` of the question's positives.
Ranking = tuple[np.ndarray, np.ndarray, np.ndarray]
Finder = Callable[[Sequence[Question], int], list[Ranking]]


def mine(
  miners: str,
  questions: Sequence[Question],
  output: epath.PathLike,
  settings: Settings = Settings(),  # noqa: B008
  *,
  passages: Sequence[str] = (),
  kept_out: Sequence[Question] = (),
  source: str = "",
  allow_code: bool = False,
) -> dict[str, Any]:
  """Mine negatives, write them and return their provenance; the same call goes on after a stop.

  Args:
    miners: bi-encoders (runs or published folders), bm25 or random, joined by commas.
    questions: training questions; passages: further texts beside their candidates.
    output: a new folder.
    kept_out: questions of dev and test.
    source: of the data, for the provenance.
    allow_code: of the bi-encoders; see `as2jax.load`.

  Raises:
    InputError: a folder that holds something else, or nothing to mine.

  """
  with open_working(output) as (folder, working):
    pool = _Pool(questions, passages, [q.text for q in kept_out])
    counts = dict.fromkeys(("asked", "in dev or test", "without positive"), 0)
    asked = []
    answers = collections.defaultdict(list)  # right ones, of the questions in the same words
    for question in questions:
      form = plain_form(question.text)
      answers[form] += [question.candidates[i].text for i in question.positives]
      if form in pool.kept_out:
        counts["in dev or test"] += 1
      elif not question.positives:
        counts["without positive"] += 1
      else:
        counts["asked"] += 1
        asked.append(question)
    if not asked or not pool.texts:
      raise InputError(f"there is nothing to mine: {counts}, {len(pool.texts)} passages")
    opened = _open_miners(miners, pool, working, settings.seed, allow_code)
    dropped, negatives = collections.Counter(), 0
    with (working / mined.FILE).open("w") as file:
      for start in range(0, len(asked), QUESTIONS):
        part = asked[start : start + QUESTIONS]
        found = {name: find(part, settings.last) for name, (_, find) in opened.items()}
        for i, question in enumerate(part):
          rankings = {name: found[name][i] for name in found}
          known = answers[plain_form(question.text)]
          lines = _negatives(question, known, rankings, pool, settings, dropped)
          negatives += len(lines)
          file.write("".join(lines))
    if not negatives:
      raise InputError(
        f"no passage is left as a negative ({dict(dropped)}): look at more ranks, allow greater "
        "scores (--below), or give more passages"
      )
    content = {
      "as2jax": __version__,
      "miners": [facts for facts, _ in opened.values()],
      "data": {"source": source, "fingerprint": fingerprint(questions)},
      "settings": dataclasses.asdict(settings),
      "passages": len(pool.texts),
      "questions": counts,
      "negatives": negatives,
      "dropped": dict(dropped),
    }
    (working / mined.FILE).replace(folder / mined.FILE)
    write_whole(folder / mined.CARD, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
  return content


class _Pool:
  """The distinct passages: candidates of the training questions, and further texts.

  Two texts with the same letters and digits in any case are one passage (the first of them), so that
  no question gets a negative that differs from its answer in punctuation alone.

  Attributes:
    texts: of the passages.
    kept_out: questions of dev and test, in `plain_form`; barred: the passages that they are.

  """

  def __init__(
    self, questions: Iterable[Question], passages: Iterable[str], kept_out: Iterable[str]
  ):
    self.texts: list[str] = []
    self._numbers: dict[str, int] = {}
    self._context: dict[int, Candidate] = {}
    for question in questions:
      for candidate in question.candidates:
        number = self._take(candidate.text)
        if candidate.previous or candidate.next or candidate.title:
          self._context.setdefault(number, candidate)
    for text in passages:
      if not text.strip():
        raise InputError("a passage is empty; give a text a line")
      self._take(text)
    self.kept_out = set(map(plain_form, kept_out))
    self.barred = {self._numbers[form] for form in self.kept_out if form in self._numbers}

  def numbers(self, texts: Iterable[str]) -> list[int]:
    """Return the passages that some texts are; texts of no passage are left out."""
    forms = map(plain_form, texts)
    return [self._numbers[form] for form in forms if form in self._numbers]

  def candidate(self, number: int) -> Candidate:
    """Return a passage as a candidate, with its context where its source has one."""
    known = self._context.get(number, Candidate("", ""))
    return dataclasses.replace(known, id=str(number), text=self.texts[number], label=0)

  def _take(self, text: str) -> int:
    number = self._numbers.setdefault(plain_form(text), len(self.texts))
    if number == len(self.texts):
      self.texts.append(text)
    return number


def _open_miners(
  named: str, pool: _Pool, folder: epath.Path, seed: int, allow_code: bool
) -> dict[str, tuple[dict[str, Any], Finder]]:
  """Return what says which ranker it is, and a finder of passages, for each miner that `named` lists."""
  miners: dict[str, tuple[dict[str, Any], Finder]] = {}
  for name in named.split(","):
    if not name or name in miners:
      raise InputError(
        f"{named!r}: name a bi-encoder (a run or a published folder), {WORDS} or {CHANCE}, or several "
        "joined by commas, each once"
      )
    if name == WORDS:
      miners[name] = {"ranker": name}, _by_words(pool)
    elif name == CHANCE:
      miners[name] = {"ranker": name}, _by_chance(pool, seed)
    else:
      ranker = open_ranker(name, allow_code=allow_code)
      if not ranker.has_vectors:
        raise InputError(
          f"{name} has no vectors to search a pool with; mine with a bi-encoder or {WORDS}"
        )
      facts = {"ranker": name, "seed": ranker.seed, "fingerprint": ranker.fingerprint}
      facts["similarity"] = ranker.similarity
      miners[name] = facts, _by_vectors(ranker, pool, folder / f"vectors-{ranker.fingerprint[:12]}")
  return miners


def _by_vectors(ranker: Ranker, pool: _Pool, folder: epath.Path) -> Finder:
  """Search exactly with a bi-encoder, whose vectors of the passages lie in memory-mapped files.

  What an interrupted call has encoded in `folder` is not encoded again. The passages are encoded when the
  first question asks, so that what is wrong is said before.
  """
  index = functools.cache(lambda: ranker.index(pool.texts, path=str(folder)))

  def find(questions: Sequence[Question], depth: int) -> list[Ranking]:
    found = index().search_many([q.text for q in questions], depth)
    scores = ranker.scores([(q.text, q.candidates[i].text) for q in questions for i in q.positives])
    rankings, end = [], 0
    for question, hits in zip(questions, found, strict=True):
      start, end = end, end + len(question.positives)
      numbers = np.asarray([hit.index for hit in hits], np.int64)
      best = np.asarray([hit.score for hit in hits], np.float64)
      rankings.append((numbers, best, scores[start:end].astype(np.float64)))
    return rankings

  return find


def _by_words(pool: _Pool) -> Finder:
  """Rank by BM25; passages that share no word with the question are not found."""
  scores_of = BM25().fit(()).over_pool(pool.texts)

  def find(questions: Sequence[Question], depth: int) -> list[Ranking]:
    rankings = []
    for question in questions:
      scores = scores_of(question.text)
      best = retrieve.best(scores, depth)
      best = best[scores[best] > 0]
      right = pool.numbers(question.candidates[i].text for i in question.positives)
      wide = scores.astype(np.float64)
      rankings.append((best, wide[best], wide[right]))
    return rankings

  return find


def _by_chance(pool: _Pool, seed: int) -> Finder:
  """Draw passages at random, each question's own draw: what mined negatives are compared with."""
  random = np.random.default_rng(seed)

  def find(questions: Sequence[Question], depth: int) -> list[Ranking]:
    depth = min(depth, len(pool.texts))
    none = np.full(depth, np.nan)
    rankings = []
    for _ in questions:
      drawn = random.choice(len(pool.texts), depth, replace=False)
      rankings.append((drawn, none, none[:0]))
    return rankings

  return find


def _negatives(
  question: Question,
  answers: Sequence[str],
  rankings: Mapping[str, Ranking],
  pool: _Pool,
  settings: Settings,
  dropped: collections.Counter,
) -> list[str]:
  """Return the lines of a question's negatives, the best ranks first; count the passages that are dropped.

  Args:
    answers: right answers of the questions in the same words.
    rankings: of each miner, by its name.
    dropped: {reason: passages}, which is added to.

  """
  own = [candidate.text for candidate in question.candidates]
  known = set(pool.numbers([question.text, *own, *answers]))
  hits: dict[int, tuple[int, str, float]] = {}
  near: dict[int, str] = {}  # passages too near to the positives, and by whom
  for name, (numbers, scores, positives) in rankings.items():
    limit = settings.limit(positives)
    for rank, (number, score) in enumerate(zip(numbers.tolist(), scores.tolist()), 1):
      if rank >= settings.first:
        hits.setdefault(number, (rank, name, score))
      if score > limit:  # never of a NaN
        near.setdefault(number, name)
  left = []
  for number, hit in hits.items():
    if number in pool.barred:
      dropped["dev or test question"] += 1
    elif number in known:
      dropped["candidate already"] += 1
    elif number in near:
      dropped[f"near a positive by {near[number]}"] += 1
    else:
      left.append((number, *hit))
  left.sort(key=lambda hit: hit[1])
  lines = []
  for number, rank, name, score in left[: settings.count]:
    provenance = {"by": name, "rank": rank}
    if not np.isnan(score):
      provenance["score"] = round(score, 6)
    lines.append(mined.line(question, pool.candidate(number), **provenance))
  return lines


def to_score(data: str, folders: Sequence[str]) -> tuple[Question, ...]:
  """Return training questions for a teacher: of a data set, or of a file that may lack labels.

  `folders`, of `as2jax lab mine`, bring further candidates.
  """
  if data in datasets.SPECS:
    questions, _ = training_questions(data, ())
  else:
    questions = user_files.read(data, labelled=None).questions
  return mined.added(questions, folders) if folders else questions


def training_questions(
  data: str, exclude: Sequence[str]
) -> tuple[tuple[Question, ...], list[Question]]:
  """Return training questions, and the questions of dev and test.

  Args:
    data: the name of a data set, whose other splits are kept out, or a file of training questions. Of
      a retrieval data set the candidates are a question's paragraph and all of its right passages.
    exclude: further files of questions to keep out, or NAME:SPLIT.

  """
  kept_out: list[Question] = []
  if data not in datasets.SPECS:
    questions = user_files.read_labelled(epath.Path(data).expanduser())
  else:
    if datasets.SPECS[data].is_pool:
      pools = datasets.load(data, pool=True).splits
      splits = {split: with_paragraph(pools[split], every=True) for split in pools}
    else:
      splits = datasets.dataset(data).splits
    if "train" not in splits:
      raise InputError(f"{data} has no split train to mine for; it has {', '.join(splits)}")
    questions = tuple(splits["train"])
    # Other sizes of the training data, such as TrecQA's, are no questions of dev or test.
    for split in splits:
      if not split.startswith("train"):
        kept_out += splits[split]
  for address in exclude:
    for its in datasets.by_address(address).splits.values():
      kept_out += its
  return questions, kept_out
