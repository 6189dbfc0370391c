"""Why a sentence came first: what each run sees in a question and its candidates.

Token similarity is the cosine of every word of the question with every word of the candidate, by the
run's token vectors. Of models that compare words themselves it is what they compute: M²S-Net's grids
of similarities, one a mode, and CASSIE's transport plan beside the graph of its sentences.
Bi-encoders also show the questions of the split whose vectors are nearest.
"""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from as2jax.data.record import Candidate, Question
from as2jax.data.retrieval import Retrieval
from as2jax.inference import explain as explaining
from as2jax.inference.explain import Similarity, Words
from as2jax.inference.run import Run
from as2jax.report import markup, pictures
from as2jax.report.drawing import Drawing
from as2jax.report.questions import Row
from as2jax.report.runs import Ranking, Runs, System
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)
EDGES = (
  "weights of the graph's edges: what a sentence sends to another, and in its circle to itself"
)
GREY = 0.5 / pictures.SHADES  # of the greatest value, from which a value below 0 is seen
NEAREST = 3
NEIGHBOURS = 5000  # questions among which neighbours are looked for


class Shown(NamedTuple):
  """One picture of a system, or why there is none."""

  system: str
  drawing: Drawing | None
  said: str


class Explained(NamedTuple):
  """A question: (candidate, its pictures) of each pair, and neighbours as (system, texts)."""

  number: int
  question: Question
  pairs: tuple[tuple[Candidate, tuple[Shown, ...]], ...]
  neighbours: tuple[tuple[str, tuple[str, ...]], ...]


def chosen(rows: Sequence[Row], count: int, ids: Sequence[str]) -> list[tuple[int, Row]]:
  """The rows to explain, with their places: those that differ most, then those asked for.

  Raises:
    InputError: no such question.

  """
  known = {row.id: n for n, row in enumerate(rows)}
  for id in ids:
    if id not in known:
      raise InputError(f"--question={id}: the page has no such question")
  counted = [n for n, row in enumerate(rows) if row.values][:count]
  places = dict.fromkeys([*counted, *(known[id] for id in ids)])
  return [(n, rows[n]) for n in places]


def explain(runs: Runs, asked: Sequence[tuple[int, Row]]) -> list[Explained]:
  """The explanations of some questions by every run that has parameters."""
  by_id = {question.id: question for question in runs.questions}
  opened = [_Opened(n, system, runs) for n, system in enumerate(runs.systems) if _has(system)]
  if not opened or not by_id:
    return []
  rankings = [system.rankings(runs.split) for system in runs.systems]
  explained = []
  for number, row in asked:
    question = by_id[row.id]
    log.info("explaining %s", row.id)
    pairs = tuple(
      (candidate, tuple(shown for one in opened for shown in one.pictures(question, candidate)))
      for candidate in candidates(question, rankings)
    )
    near = tuple((one.system.label, texts) for one in opened if (texts := one.neighbours(question)))
    explained.append(Explained(number, question, pairs, near))
  return explained


def candidates(question: Question, rankings: Sequence[Sequence[Ranking]]) -> list[Candidate]:
  """The first right candidate, and a wrong one that some system ranks first; [] where none are."""
  if not question.candidates:
    return []
  right = [question.candidates[n] for n in question.positives[:1]]
  for seeds in rankings:
    for ranking in seeds[:1]:
      scores = ranking.get(question.id, {})
      best = max(question.candidates, key=lambda c: scores.get(c.id, -np.inf))
      if best.label != 1:
        return [*right, best]
  return right or list(question.candidates[:1])


def _has(system: System) -> bool:
  """Whether the system is a run of a model that was trained; a fused run has none."""
  return bool(system.config) and registry.has_parameters(system.config["model"]["name"])


class _Opened:
  """A run with its best seed's parameters, opened when the first picture is asked for."""

  def __init__(self, number: int, system: System, runs: Runs):
    self.number, self.system, self.runs = number, system, runs
    self.run = Run(system.name)
    self._ranker: Any = None
    self._vectors: np.ndarray | None = None

  @property
  def ranker(self) -> Any:
    """The ranker of the best seed."""
    self._ranker = self._ranker or self.run.ranker()
    return self._ranker

  def pictures(self, question: Question, candidate: Candidate) -> list[Shown]:
    """What the run sees in the pair; why not, where it cannot be seen."""
    label = self.system.label
    try:
      name = self.run.config.model.name
      if hasattr(registry.find(registry.MODELS, name, "model.name"), "align"):
        return self._alignment(question, candidate)
      pair = Question(question.id, question.text, (candidate,))
      return [
        self._similarity(similarity)
        for similarity in Words(self.run, pair).similarities(self.ranker)
      ]
    except (InputError, NotImplementedError, AttributeError) as error:
      return [Shown(label, None, " ".join(str(error).split()))]

  def _similarity(self, similarity: Similarity) -> Shown:
    label = self.system.label
    mode = f", {similarity.mode}" if similarity.mode else ""
    title = f"{label}{mode}: {similarity.score_name} {similarity.score:.3f}"
    drawn = pictures.grid(
      title, similarity.question, similarity.candidate, similarity.values, self.number
    )
    what = {"cosine": "cosine of the words' vectors"}.get(
      similarity.what, f"the model's own {similarity.what}"
    )
    return Shown(label, drawn, _said(what, similarity.candidate, similarity.values))

  def _alignment(self, question: Question, candidate: Candidate) -> list[Shown]:
    config, label = self.run.config, self.system.label
    one, place = Question(question.id, question.text, (candidate,)), 0
    if config.model.template == "joint":
      one = explaining.from_data(config, question.id, None, self.runs.split)
      together = [other.id for other in one.candidates]
      if candidate.id not in together:
        said = f"this sentence is not among the {len(together)} candidates that it reads together"
        return [Shown(label, None, said)]
      place = together.index(candidate.id)
    view = Words(self.run, one).alignment(self.ranker)
    sentence = view.sentences[place]
    title = f"{label}: transport plan, cost {sentence.distance:.3f}"
    drawn = pictures.grid(title, view.words, sentence.words, sentence.plan, self.number)
    said = _said("plan between the words", sentence.words, sentence.plan)
    shown = [Shown(label, drawn, said)]
    if view.edges is not None:
      names = [sentence.name for sentence in view.sentences]
      shown.append(
        Shown(label, pictures.graph(f"{label}: graph", names, view.edges, self.number), EDGES)
      )
    return shown

  def neighbours(self, question: Question) -> tuple[str, ...]:
    """The questions of the split whose vectors are nearest, with their cosines."""
    try:
      if not self.ranker.has_vectors:
        return ()
    except InputError:  # without checkpoints; `pictures` says so
      return ()
    others = self.runs.questions[:NEIGHBOURS]
    if self._vectors is None:
      vectors = np.asarray(self.ranker.encode_query([q.text for q in others]), np.float64)
      lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
      self._vectors = vectors / np.where(lengths > 0, lengths, 1.0)
    at = next((n for n, other in enumerate(others) if other.id == question.id), None)
    if at is None:
      return ()
    near = self._vectors @ self._vectors[at]
    near[at] = -np.inf
    best = np.argsort(-near, kind="stable")[:NEAREST].tolist()
    return tuple(f"{others[n].text} ({near[n]:.3f})" for n in best if np.isfinite(near[n]))


def _said(what: str, words: Sequence[str], values: np.ndarray) -> str:
  """The caption of a picture: what its cells are, and how much the strongest is."""
  most, count = pictures.WORDS, len(words)
  cut = f"; the first {most} of {count} words" if count > most else ""
  grey = (
    "; grey: below 0" if values.min(initial=0.0) < -GREY * np.abs(values).max(initial=0.0) else ""
  )
  return f"{what}; the strongest is {float(values.max(initial=0.0)):.2f}{grey}{cut}"


def section(explained: Sequence[Explained]) -> tuple[str, dict[str, Drawing]]:
  """The section and its figures."""
  parts, figures = [], {}
  for one in explained:
    inner = [] if one.pairs else [markup.note("The question has no candidates to explain.")]
    for n, (candidate, shown) in enumerate(one.pairs):
      mark = "right" if candidate.label == 1 else "wrong"
      inner.append(f"<p><strong>{mark}</strong> {markup.text(candidate.text)}</p>")
      drawn = []
      for k, picture in enumerate(shown):
        if picture.drawing is None:
          inner.append(markup.note(f"{picture.system} is not explained: {picture.said}"))
          continue
        name = f"explained-{one.number}-{n}-{k}"
        figures[name] = picture.drawing
        drawn.append(markup.figure(picture.drawing.svg(), picture.said, name))
      inner.append(f'<div class="beside">{"".join(drawn)}</div>')
    for label, texts in one.neighbours:
      inner.append(f"<h4>Nearest questions by {markup.text(label)}</h4>{markup.items(texts)}")
    opened = markup.details(one.question.text, "".join(inner), opened=one is explained[0])
    parts.append(f'<div id="explained-{one.number}">{opened}</div>')
  lead = "Of the questions that differ most, or were asked for: a right candidate, and a wrong one on top."
  return markup.section("explanations", "Explanations", *parts, lead=lead), figures


def projections(runs: Runs) -> tuple[str, dict[str, Drawing]]:
  """Of a retrieval: the questions of the answer that most ask for, in two dimensions, each run's.

  As figure 2 of the Cross-VAE's paper: unit vectors along their first two singular directions.
  """
  if not isinstance(runs.dataset, Retrieval):
    return "", {}
  opened, absent = [], []
  for number, system in enumerate(runs.systems):
    try:
      if _has(system) and (ranker := Run(system.name).ranker()).has_vectors:
        opened.append((number, ranker, system))
    except InputError as error:
      absent.append(markup.note(f"{system.label} is not shown: {' '.join(str(error).split())}"))
  if not opened:
    return markup.section("retrieval", "Questions of one answer", *absent), {}
  try:
    passage, asked = explaining.questions_of(runs.dataset.pools[runs.split], "most")
  except InputError:
    said = markup.note("No answer of the pool is asked for by two questions.")
    return markup.section("retrieval", "Questions of one answer", said), {}
  figures = {}
  for number, ranker, system in opened:
    vectors = np.asarray(ranker.encode_query(asked))
    title = f"{system.label}: mean squared distance {explaining.closeness(vectors):.4f}"
    figures[f"projection-{number}"] = pictures.scatter(title, explaining.projected(vectors), number)
  shown = "".join(markup.figure(figure.svg(), name=name) for name, figure in figures.items())
  texts = "".join(f"<li>{markup.text(text)}</li>" for text in asked)
  parts = (f'<div class="grid">{shown}</div>', *absent, f"<ol>{texts}</ol>")
  lead = f"The questions whose answer is: {passage}"
  return markup.section("retrieval", "Questions of one answer", *parts, lead=lead), figures
