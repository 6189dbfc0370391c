"""Retrieval datasets for training and evaluation: training questions, and pools to be searched."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from as2jax.data import mined
from as2jax.data.dataset import Dataset, Splits
from as2jax.data.record import Candidate, Passage, Pool, Query, Question, make_query
from as2jax.data.text import normalise
from as2jax.data.user_files import PAIRS, WITH_NEGATIVES
from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Retrieval(Dataset):
  """As `Dataset`; a question's candidates are its gold passage and what `data.negatives` adds.

  Attributes:
    pools: split -> its passages and one query a question text (`one_per_text`).

  """

  pools: Mapping[str, Pool] = dataclasses.field(kw_only=True)


def retrieval(dataset: Dataset, *, negatives: str, text_rules: Sequence[str]) -> Retrieval:
  """Build the questions and the pool of every split of a data set of pools, with text rules applied.

  The split `train` keeps questions of one text apart, as each has annotators of its own; the others
  have one query a text, as the rules leave it. `negatives`: `none`, or those of the `paragraph` (see
  `with_paragraph`).
  """
  make = with_paragraph if negatives == "paragraph" else aligned

  def pool(split: str) -> Pool:
    whole = ruled(dataset.splits[split], text_rules)
    return whole if split == "train" else Pool(whole.passages, one_per_text(whole.queries))

  pools = Splits(dataset.splits, pool)
  return _over(dataset, Splits(dataset.splits, lambda split: make(pools[split])), pools)


def pooled(dataset: Dataset, *, negatives: str, beside: Mapping[str, str] = {}) -> Retrieval:  # noqa: B006
  """Turn a re-ranking dataset into a retrieval dataset: one pool of all candidates per split.

  Passages are the distinct sentences (none that was mined), queries the questions that have a positive
  one. The pool of a split that `beside` names has the sentences of another split behind its own. The
  training questions keep their own candidates where `negatives` are of the `paragraph`, else the gold
  one and what was mined for them.
  """

  def pool(split: str) -> Pool:
    asked = mined.without(dataset.splits[split])
    whole = pool_of(asked, merge=split != "train")
    if split not in beside:
      return whole
    every = pool_of((*asked, *mined.without(dataset.splits[beside[split]])), merge=False)
    return dataclasses.replace(whole, passages=every.passages)

  pools = Splits(dataset.splits, pool)

  def questions(split: str) -> tuple[Question, ...]:
    if split != "train":
      return aligned(pools[split])
    if negatives == "paragraph":
      return dataset.splits[split]
    return mined.carried(aligned(pools[split]), dataset.splits[split])

  return _over(dataset, Splits(dataset.splits, questions), pools)


def of_pairs(dataset: Dataset) -> bool:
  """Tell whether a user's files hold pairs of question and right answer, with or without wrong ones."""
  return any(form in (PAIRS, WITH_NEGATIVES) for form in dataset.forms.values())


def _over(dataset: Dataset, splits: Splits, pools: Splits) -> Retrieval:
  """Return the data set with other splits and with pools; its official filter is for its candidates."""
  others = {"official": "", "average_recall": False, "splits": splits, "pools": pools}
  return Retrieval(**{**vars(dataset), **others})


def pool_of(questions: Sequence[Question], *, merge: bool) -> Pool:
  """Return all candidates as a pool; `merge`: one query a question text.

  A passage's id is those of its first question and candidate, joined by a colon.

  Raises InputError: two passages get one id, such as where ids hold colons.
  """
  passages: dict[str, Passage] = {}
  taken: set[str] = set()
  queries = []
  for question in questions:
    votes = {}
    for candidate in question.candidates:
      if candidate.text not in passages:
        id = f"{question.id}:{candidate.id}"
        if id in taken:
          raise InputError(
            f"two candidates, one of question {question.id!r}, would be the passage {id!r} of a pool: "
            "give questions and candidates ids without colons"
          )
        taken.add(id)
        passages[candidate.text] = Passage(
          id, candidate.text, candidate.title, candidate.previous, candidate.next
        )
      passage = passages[candidate.text]
      if candidate.label == 1:
        votes[passage.id] = 1
    if votes:
      queries.append(make_query(question.id, question.text, votes, question.group))
  return Pool(tuple(passages.values()), one_per_text(queries) if merge else tuple(queries))


def with_paragraph(pool: Pool, *, every: bool = False) -> tuple[Question, ...]:
  """Return each query with its gold passage (label 1) and, as negatives, the rest of its paragraph.

  Passages that another annotator chose, or with the text of a right one, are left out; with `every`
  those that were chosen are right candidates, too. Candidates are in the order of the paragraph.
  """
  together: dict[tuple[str, str], list[Passage]] = defaultdict(list)
  for passage in pool.passages:
    together[passage.title, passage.paragraph].append(passage)
  place = pool.place()
  questions = []
  for query in pool.queries:
    right = [pool.passages[place[answer]] for answer in query.answers]
    texts = {passage.text for passage in right}
    gold = right[0]
    chosen = {passage.id for passage in (right if every else right[:1])}
    its = [p for p in together[gold.title, gold.paragraph] if p.id in chosen or p.text not in texts]
    questions.append(Question(query.id, query.text, _candidates(its, chosen), query.group))
  return tuple(questions)


def with_candidates(pool: Pool, candidates: Iterable[Iterable[int]]) -> tuple[Question, ...]:
  """Return each query with the passages at given positions of the pool; right ones (any) are positive."""
  questions = []
  for query, chosen in zip(pool.queries, candidates, strict=True):
    its = [pool.passages[i] for i in chosen]
    positives = set(query.answers)
    questions.append(Question(query.id, query.text, _candidates(its, positives), query.group))
  return tuple(questions)


def ruled(pool: Pool, names: Sequence[str]) -> Pool:
  """Return the pool with text rules applied to passages and queries (`normalise.apply`)."""
  if not names:
    return pool
  asked = normalise.apply([Question(query.id, query.text, ()) for query in pool.queries], names)
  (whole,) = normalise.apply([Question("pool", "pool", _candidates(pool.passages, ()))], names)
  passages, queries = [], []
  for passage, c in zip(pool.passages, whole.candidates, strict=True):
    texts = {"text": c.text, "previous": c.previous, "next": c.next, "title": c.title}
    passages.append(dataclasses.replace(passage, **texts))
  for query, question in zip(pool.queries, asked, strict=True):
    queries.append(dataclasses.replace(query, text=question.text))
  return Pool(tuple(passages), tuple(queries))


def _candidates(passages: Iterable[Passage], right: Collection[str]) -> tuple[Candidate, ...]:
  """Return the passages as candidates, of which those with ids in `right` are positive."""
  return tuple(
    Candidate(p.id, p.text, int(p.id in right), p.previous, p.next, title=p.title) for p in passages
  )


def one_per_text(queries: Sequence[Query]) -> tuple[Query, ...]:
  """Return one query for each distinct question text: the form of Cross-VAE (SPEC.md 5).

  The votes of questions with one text are added up; `answers[0]` is the gold sentence (most
  annotators, ties by first named), all of `answers` are what `any gold` accepts. The id is that of
  the text's first question.
  """
  groups: dict[str, list[Query]] = defaultdict(list)
  for query in queries:
    groups[query.text].append(query)
  merged = []
  for text, group in groups.items():
    votes: Counter[str] = Counter()
    for query in group:
      votes.update(dict(zip(query.answers, query.votes)))
    merged.append(make_query(group[0].id, text, votes, group[0].group))
  return tuple(merged)


def aligned(pool: Pool) -> tuple[Question, ...]:
  """Return each query as a question with its gold passage as the only candidate."""
  place = pool.place()
  return with_candidates(pool, [[place[query.answers[0]]] for query in pool.queries])
