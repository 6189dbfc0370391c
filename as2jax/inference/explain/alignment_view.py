"""What a trained CASSIE makes of one question: plans, relevant context, edge weights, by words."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from as2jax.data.datasets import load
from as2jax.data.inputs import first_stage_ranking as rankings
from as2jax.data.record import Candidate, Question
from as2jax.data.text import normalise
from as2jax.inference.explain.token_similarity import Words, as_written
from as2jax.inference.ranker import Ranker
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

CONTEXT = ("candidate", "previous", "next")


@dataclasses.dataclass(frozen=True)
class Sentence:
  """One sentence beside the question.

  Attributes:
    name: `candidate`, `previous`, `next`; in a joint run `candidate 1` … `candidate K`.
    text: as it is written, "" where there is none.
    words: those that were aligned (no stop words, where the run leaves them out), as written.
    plan, cost: π and D, `[question words, words]`, float64.
    relevant: whether a word is of the relevant context, `[words]`.
    distance: d = Σ D·π.
    logit: of p, where the sentence is scored.

  """

  name: str
  text: str
  words: tuple[str, ...]
  plan: np.ndarray
  cost: np.ndarray
  relevant: np.ndarray
  distance: float
  logit: float | None


@dataclasses.dataclass(frozen=True)
class View:
  """The question, its sentences (candidate and context, or K candidates) and their graph.

  Attributes:
    question: its text; words: those that were aligned, as written.
    edges: α `[K, K]`, what sentence j sends to sentence i, 0 where either is absent; None where the
      run has no graph convolutions, which nothing is sent through.
    transported: whether the plan is one of transport; else that of independent words, under which
      every word is relevant (`model.alignment = 'mean'`).

  """

  question: str
  words: tuple[str, ...]
  sentences: tuple[Sentence, ...]
  edges: np.ndarray | None
  transported: bool


class Alignments(Words):
  """How a run aligns one question with its candidate (a joint run: with K), for its weights."""

  def view(self, ranker: Ranker) -> View:
    """What a ranker's weights make of them; InputError where question or candidate has no word."""
    model, first = self.components.model, lambda tree: jax.tree.map(lambda x: x[0], tree)
    batch = first(next(iter(self.batches())))
    apply = jax.jit(lambda v, b: model.apply(v, b, method="align"))
    alignment = jax.tree.map(np.asarray, apply(first(ranker.variables), batch))
    (s,), (e,) = np.nonzero(batch.examples.mask > 0)
    unit = int(batch.examples.members[s, e, 0])
    forms = [self.table.forms[form] for form in batch.words.form[s]]
    named = lambda text, numbers: as_written(text, [forms[n] for n in numbers])
    of = jax.tree.map(lambda x: x[s, unit], alignment.units)
    rows = np.flatnonzero(of.question >= 0)
    words = named(self.question.text, of.question[rows])
    logits = np.atleast_1d(alignment.scores[s, e])
    sentences = []
    for k, (name, text) in enumerate(texts(model.template, self.question, len(of.distance))):
      columns = np.flatnonzero(of.sentence[k] >= 0)
      cells = np.ix_(rows, columns)
      scored = k < len(logits) and bool(of.present[k])
      sentences.append(
        Sentence(
          name,
          text,
          named(text, of.sentence[k, columns]),
          of.plan[k][cells].astype(np.float64),
          of.cost[k][cells].astype(np.float64),
          of.selected[k, columns],
          float(of.distance[k]),
          float(logits[k]) if scored else None,
        )
      )
    for role, its in (("question", words), ("candidate", sentences[0].words)):
      if not its:
        raise InputError(f"the {role} has no word that the encoder knows: give another text")
    edges = alignment.edges[s, e].astype(np.float64) if model.graph_layers else None
    return View(self.question.text, words, tuple(sentences), edges, model.alignment != "mean")


def texts(template: str, question: Question, count: int) -> list[tuple[str, str]]:
  """(name, text) of each sentence beside the question, in the order of roles 1 … `count`."""
  if template == "joint":
    named = [(f"candidate {n}", c.text) for n, c in enumerate(question.candidates, 1)]
    return named + [(f"candidate {n}", "") for n in range(len(named) + 1, count + 1)]
  candidate = question.candidates[0]
  return [
    (name, getattr(candidate, "text" if name == "candidate" else name)) for name in CONTEXT[:count]
  ]


def check(config: Any, run: epath.PathLike) -> None:
  """Raises InputError where the model of a run has no alignment."""
  name = config.model.name
  if not hasattr(registry.find(registry.MODELS, name, "model.name"), "align"):
    raise InputError(f"{run} is a run of {name}, which aligns no words; name a run of cassie")


def from_texts(
  config: Any, question: str, candidates: Sequence[str], *, previous: str = "", following: str = ""
) -> Question:
  """The question with its candidate and context, or a joint run's candidates, under its text rules.

  Raises:
    InputError: context, or several candidates, for a run that does not read them.

  """
  template, size = config.model.template, config.data.ranking_size
  if (previous or following) and template != "context":
    raise InputError(
      f"--previous and --next: the run reads no context (model.template = "
      f"{template!r}); leave them out"
    )
  most = size if template == "joint" else 1
  if len(candidates) > most:
    raise InputError(
      f"--text-candidate was given {len(candidates)} times; the run reads {most} at once "
      f"(model.template = {template!r})"
    )
  with_context = tuple(
    Candidate(f"C{n}", text, previous=previous, next=following)
    for n, text in enumerate(candidates, 1)
  )
  for name, text in (
    ("--text-question", question),
    *(("--text-candidate", text) for text in candidates),
  ):
    if not text.strip():
      raise InputError(f"{name} is empty: give a text")
  return normalise.apply([Question("Q", question, with_context)], config.data.rules)[0]


def from_data(config: Any, question_id: str, candidate_id: str | None, split: str) -> Question:
  """A question of the run's data with the one candidate, or with those that a joint run ranks.

  Where no candidate is named, it is the first right one, else the first.

  Raises:
    InputError: no such split, question or candidate; a candidate for a joint run.

  """
  data = load.load(config.data)
  load.require(data, (split,))
  questions = data.splits[split]
  chosen = next((q for q in questions if q.id == question_id), None)
  if chosen is None:
    raise InputError(
      f"--question-id={question_id}: {data.name} has no such question in its split "
      f"{split!r} (the first is {questions[0].id}); name another --split?"
    )
  if not chosen.candidates:
    raise InputError(f"--question-id={question_id} has no candidates: name another")
  if config.model.template == "joint":
    if candidate_id is not None:
      raise InputError(
        f"--candidate-id={candidate_id}: a joint run reads the best "
        f"{config.data.ranking_size} candidates together; leave it out"
      )
    ranking = rankings.load(config.data.ranking, data.splits, split.split("+"))
    order = ranking.order(chosen)
    best = [chosen.candidates[at] for at in order[: config.data.ranking_size]]
    return Question(chosen.id, chosen.text, tuple(best))
  if candidate_id is None:
    right = chosen.positives
    return Question(chosen.id, chosen.text, (chosen.candidates[right[0] if right else 0],))
  for one in chosen.candidates:
    if one.id == candidate_id:
      return Question(chosen.id, chosen.text, (one,))
  raise InputError(
    f"--candidate-id={candidate_id}: question {question_id} has "
    f"{', '.join(c.id for c in chosen.candidates[:5])} …"
  )
