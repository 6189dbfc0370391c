"""How similar each word of a question is to each of a candidate, for a trained run (CETE, 5.1).

A model that compares words itself (`similarity_grids`, M²S-Net) shows its own grids, one a mode. Of
others it is the cosine of token vectors. A model's token vectors are what its method `token_vectors(batch)` gives, where it has one, else the
output of its encoder, `[shard, row, token, d]`. A bi-encoder reads the two texts alone, a
cross-encoder in one sequence. A word's vector is the mean of its tokens'.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from as2jax.data.batches.batcher import Batcher
from as2jax.data.record import Question
from as2jax.data.text.tokenise import ROLES, UnitTable, build_units, unit_parts, words
from as2jax.inference.ranker import Ranker
from as2jax.inference.run import Run
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.training.build import Components


@dataclasses.dataclass(frozen=True)
class Similarity:
  """How similar each word of a question is to each word of a candidate.

  Attributes:
    question, candidate: the words as they are written, those that own no token left out.
    values: `[question words, candidate words]`, float64; of cosines 0 where a vector is zero.
    score: what the model ranks the candidate by; score_name: its name.
    what: the values are: `cosine`, or the model's own `similarity`.
    mode: of a model with several grids, such as `mode 1`.

  """

  question: tuple[str, ...]
  candidate: tuple[str, ...]
  values: np.ndarray
  score: float
  score_name: str
  what: str = "cosine"
  mode: str = ""


class Words:
  """The words of one question and its one candidate, for the weights that a run has had.

  Raises:
    InputError: a model without tokens, a text without words.

  """

  def __init__(self, run: Run, question: Question):
    if not registry.has_parameters(run.config.model.name):
      raise InputError(
        f"{run.folder} is a run of {run.config.model.name}, which has no token vectors"
      )
    self.run, self.question, self.questions = run, question, (question,)
    self.components = run.components
    model = self.components.model
    self.batcher = run.predictor.batcher(
      self.questions, "sentences" if model.encodes else model.layout, request=True
    )
    self.table = word_table(self.components, question, self.batcher)

  def similarities(self, ranker: Ranker) -> list[Similarity]:
    """What the weights of a ranker of the run make of the two texts: one matrix, or one a mode."""
    name, scores = next(iter(ranker.all_scores(self.questions).items()))
    ours = {"score": float(scores[0][0]), "score_name": name}
    (unit_q, question, q), (unit_c, candidate, c) = map(self._side, ("question", "candidate"))
    if not hasattr(self.components.model, "similarity_grids"):
      vectors = self._vectors(ranker)
      means = lambda unit, spans: np.stack([vectors[unit][span].mean(0) for span in spans])
      return [Similarity(question, candidate, cosine(means(unit_q, q), means(unit_c, c)), **ours)]
    grids = self._grids(ranker)
    rows, columns = (
      [s for s in side if s.start < size] for side, size in zip((q, c), grids.shape[1:])
    )
    similarities = []
    for n, grid in enumerate(grids, 1):
      values = np.array([[grid[a, b].mean() for b in columns] for a in rows], np.float64)
      mode = f"mode {n}" if len(grids) > 1 else ""
      words = question[: len(rows)], candidate[: len(columns)]
      similarities.append(Similarity(*words, values, **ours, what="similarity", mode=mode))
    return similarities

  def _side(self, role: str) -> tuple[int, tuple[str, ...], list[slice]]:
    """The unit of the question or the candidate, its words, and the tokens of each."""
    unit, text = place(self.components.model.template, self.question, role)
    part = self.table.unit(unit)
    chosen = np.arange(len(part.word_start))
    if self.components.model.template != "single":
      chosen = np.flatnonzero(part.word_role == ROLES[role])
    chosen = chosen[self._prompt_words(role, text) :]
    if not len(chosen):
      raise InputError(f"the {role} {text!r} has no word that the encoder knows: give another text")
    spans = [slice(s, s + n) for s, n in zip(part.word_start[chosen], part.word_length[chosen])]
    forms = [self.table.forms[f] for f in part.word_form[chosen]]
    return unit, as_written(text, forms), spans

  def _prompt_words(self, role: str, text: str) -> int:
    """How many words stand before a text, which are no part of its picture."""
    prompts = self.components.prompts
    template = self.components.model.template
    before = prompts.candidate if role == "candidate" and template == "single" else ""
    if role == "question":
      before = prompts.question
    return len(words(before + text)) - len(words(text))

  def batches(self):
    """The batches that hold the question, `[accumulate, shard, …]`."""
    plan = self.batcher.plan(self.batcher.sampler.blocks(), 0, 0)
    return (self.batcher.batch(plan, i) for i in range(len(plan)))

  def _grids(self, ranker: Ranker) -> np.ndarray:
    """The model's own similarities of the example, `[modes, question tokens, candidate tokens]`."""
    first = lambda tree: jax.tree.map(lambda x: x[0], tree)
    batch = first(next(iter(self.batches())))
    grids = jax.jit(self.components.model.similarity_grids)(first(ranker.variables), batch)
    (s,), (e,) = np.nonzero(batch.examples.mask > 0)
    return np.asarray(grids, np.float64)[s, e]

  def _vectors(self, ranker: Ranker) -> dict[int, np.ndarray]:
    """Token vectors `[tokens, d]` float64 of each unit."""
    model = self.components.model
    first = lambda tree: jax.tree.map(lambda x: x[0], tree)
    apply = jax.jit(lambda v, b: model.apply(v, b, method="token_vectors"))
    variables = first(ranker.variables)
    vectors = {}
    for batch in map(first, self.batches()):
      hidden = np.asarray(apply(variables, batch), np.float64)
      units = batch.units
      for s, slot in zip(*np.nonzero(units.length)):
        at = units.start[s, slot]
        vectors[int(units.id[s, slot])] = hidden[
          s, units.row[s, slot], at : at + units.length[s, slot]
        ]
    return vectors


def place(template: str, question: Question, role: str) -> tuple[int, str]:
  """The number of the unit in which a text stands, and the text."""
  texts = {"question": question.text, "candidate": question.candidates[0].text}
  return int(template == "single" and role == "candidate"), texts[role]


def word_table(components: Components, question: Question, batcher: Batcher) -> UnitTable:
  """The batcher's units with their words; InputError where a text is cut into other tokens there."""
  units = batcher.units
  if units.word_offsets[-1]:
    return units
  template, roles, candidate = components.model.template, None, question.candidates[0]
  texts = [unit_parts(template, question.text, candidate)]
  if template == "single":
    texts = [(question.text,), (candidate.text,)]
    roles = [ROLES["question"], ROLES["candidate"]]
  texts = components.prompts.before(texts, roles)
  tokenizer = components.source.tokenizer
  if components.source.open_vocabulary:
    tokenizer, _ = components.source.open_vocabulary(text for unit in texts for text in unit)
  rebuilt = build_units(
    texts,
    tokenizer,
    template=template,
    roles=roles,
    words=True,
    max_length=components.config.data.max_length,
  )
  if not (
    np.array_equal(rebuilt.ids, units.ids) and np.array_equal(rebuilt.offsets, units.offsets)
  ):
    raise InputError(
      f"model.name = {components.config.model.name!r}: its tokens are not those of "
      "the tokeniser, so that no word can be given its own"
    )
  return rebuilt


def as_written(text: str, forms: Sequence[str]) -> tuple[str, ...]:
  """The words of `text` whose lower-cased forms are `forms`, in that order; other words may lie
  between.
  """
  spelling, spelled = [], iter(words(text))
  for form in forms:
    start, end = next((start, end) for other, start, end in spelled if other == form)
    spelling.append(text[start:end])
  return tuple(spelling)


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Cosine of each row of `a` `[n, d]` with each of `b` `[m, d]`; 0 with a zero vector."""
  unit = lambda x: x / np.where((norm := np.linalg.norm(x, axis=1, keepdims=True)) > 0, norm, 1.0)
  return unit(a) @ unit(b).T
