"""What a trained run sees in a question and its candidate, word by word.

A model that compares words itself (`similarity_grids`, M²S-Net) shows its own grids, one a mode, and
one that aligns them (`align`, CASSIE) a transport plan a sentence. Of others it is the cosine of token
vectors (CETE, 5.1): what the model's `token_vectors(batch)` gives, `[shard, row, token, d]`; a word's
vector is the mean of its tokens'. A bi-encoder reads the two texts alone, a cross-encoder together.

`as2jax explain` draws it as CETE's figures 2 and 3 (x.png, .svg or .pdf) and writes each matrix as text: x.tsv,
of a model with several x.mode-1.tsv, x.candidate.tsv ….
"""

import dataclasses
import logging
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from as2jax.data import load, tables
from as2jax.data.inputs import rankings
from as2jax.data.record import Candidate, Question
from as2jax.data.text import normalise
from as2jax.data.text.input_templates import ROLES
from as2jax.data.text.words import words
from as2jax.inference.ranker import Ranker
from as2jax.inference.run import Run
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

FORMS = (".png", ".svg", ".pdf")
log = logging.getLogger(__name__)
CELL = 0.3  # inches
MARGIN = 2.3  # around the cells: labels, title, colour bar


@dataclasses.dataclass(frozen=True)
class Similarity:
  """How similar each word of a question is to each word of a sentence.

  Attributes:
    question, candidate: the words as they are written, without those that own no token.
    values: `[question words, candidate words]`, float64; of cosines 0 where a vector is zero.
    score: what the model ranks the candidate by (of a plan, its cost); score_name: its name.
    what: the values are: `cosine`, `plan`, or the model's own `similarity`.
    mode: names one of several matrices, such as `mode 1` or the sentence `previous`.

  """

  question: tuple[str, ...]
  candidate: tuple[str, ...]
  values: np.ndarray
  score: float
  score_name: str
  what: str = "cosine"
  mode: str = ""


class Words:
  """The words of one question and its candidate (a joint run: its K), as a run reads them."""

  def __init__(self, run: Run, question: Question):
    if not registry.has_parameters(run.config.model.name):
      raise InputError(
        f"{run.folder} is a run of {run.config.model.name}, which has no token vectors"
      )
    self.question, self.components = question, run.components
    layout = run.predictor.layout
    self.batcher = run.predictor.batcher((question,), layout, request=True)
    self.table = self.batcher.units
    if not self.table.word_offsets[-1]:
      options = {"cache": False, "judged": False, "words": True}
      self.table = self.components.tables((question,), layout, **options).units

  def similarities(self, ranker: Ranker) -> list[Similarity]:
    """Returns what a ranker of the run makes of the texts: one matrix, or one a mode or sentence."""
    model = self.components.model
    if hasattr(model, "align"):
      return [plan for plan in self.alignment(ranker)[0] if plan.candidate]
    name, scores = next(iter(ranker.all_scores((self.question,)).items()))
    score = {"score": float(scores[0][0]), "score_name": name}
    question_unit, question, rows = self._side("question")
    candidate_unit, candidate, columns = self._side("candidate")
    if not hasattr(model, "similarity_grids"):
      vectors = self._vectors(ranker)
      q = np.stack([vectors[question_unit][span].mean(0) for span in rows])
      c = np.stack([vectors[candidate_unit][span].mean(0) for span in columns])
      return [Similarity(question, candidate, cosine(q, c), **score)]
    batch = next(self._batches())
    grids = jax.jit(model.similarity_grids)(_first(ranker.variables), batch)
    (s,), (e,) = np.nonzero(batch.examples.mask > 0)
    grids = np.asarray(grids, np.float64)[s, e]  # [modes, question tokens, candidate tokens]
    rows = [span for span in rows if span.start < grids.shape[1]]
    columns = [span for span in columns if span.start < grids.shape[2]]
    shown = question[: len(rows)], candidate[: len(columns)]
    similarities = []
    for n, grid in enumerate(grids, 1):
      values = np.zeros((len(rows), len(columns)))
      for i, row in enumerate(rows):
        for j, column in enumerate(columns):
          values[i, j] = grid[row, column].mean()
      mode = f"mode {n}" if len(grids) > 1 else ""
      similarities.append(Similarity(*shown, values, **score, what="similarity", mode=mode))
    return similarities

  def alignment(self, ranker: Ranker) -> tuple[list[Similarity], np.ndarray | None]:
    """Returns a transport plan for each sentence beside the question, and the weights of the graph.

    Returns:
      Plans π (without words where a sentence is absent), scored by the cost d = Σ D·π; and α
      `[K, K]`, what sentence j sends to sentence i, or None without graph convolutions.

    """
    model = self.components.model
    batch = next(self._batches())
    alignment = jax.tree.map(np.asarray, _applied(model, "align", ranker, batch))
    (s,), (e,) = np.nonzero(batch.examples.mask > 0)
    unit = int(batch.examples.members[s, e, 0])
    forms = [self.table.forms[form] for form in batch.words.form[s]]
    named = lambda text, numbers: as_written(text, [forms[n] for n in numbers])
    of = jax.tree.map(lambda x: x[s, unit], alignment.units)
    rows = np.flatnonzero(of.question >= 0)
    question_words = named(self.question.text, of.question[rows])
    plans = []
    for k, (name, text) in enumerate(_sentences(model.template, self.question, len(of.distance))):
      columns = np.flatnonzero(of.sentence[k] >= 0)
      plan = of.plan[k][np.ix_(rows, columns)].astype(np.float64)
      found = named(text, of.sentence[k, columns])
      cost = float(of.distance[k])
      plans.append(Similarity(question_words, found, plan, cost, "cost", "plan", name))
    _require_words("question", question_words)
    _require_words("candidate", plans[0].candidate)
    if not model.graph_layers:
      return plans, None
    return plans, alignment.edges[s, e].astype(np.float64)

  def _side(self, role: str) -> tuple[int, tuple[str, ...], list[slice]]:
    """Returns the unit of the question or the candidate, its words, and the tokens of each."""
    template, prompts = self.components.model.template, self.components.prompts
    if role == "question":
      unit, text, prompt = 0, self.question.text, prompts.question
    else:
      unit, text, prompt = 0, self.question.candidates[0].text, ""
      if template == "single":
        unit, prompt = 1, prompts.candidate
    part = self.table.unit(unit)
    chosen = np.arange(len(part.word_start))
    if template != "single":
      chosen = np.flatnonzero(part.word_role == ROLES[role])
    chosen = chosen[len(words(prompt + text)) - len(words(text)) :]  # not the prompt's words
    _require_words(role, chosen)
    spans = [slice(s, s + n) for s, n in zip(part.word_start[chosen], part.word_length[chosen])]
    return unit, as_written(text, [self.table.forms[f] for f in part.word_form[chosen]]), spans

  def _batches(self):
    plan = self.batcher.plan(self.batcher.sampler.blocks(), 0, 0)
    for i in range(len(plan)):
      yield _first(self.batcher.batch(plan, i))

  def _vectors(self, ranker: Ranker) -> dict[int, np.ndarray]:
    """Returns token vectors `[tokens, d]` float64 of each unit."""
    vectors = {}
    for batch in self._batches():
      hidden = _applied(self.components.model, "token_vectors", ranker, batch)
      hidden, units = np.asarray(hidden, np.float64), batch.units
      for s, slot in zip(*np.nonzero(units.length)):
        row, at, length = units.row[s, slot], units.start[s, slot], units.length[s, slot]
        vectors[int(units.id[s, slot])] = hidden[s, row, at : at + length]
    return vectors


def _applied(model: Any, method: str, ranker: Ranker, batch: Any) -> Any:
  return jax.jit(lambda v, b: model.apply(v, b, method=method))(_first(ranker.variables), batch)


def _first(tree: Any) -> Any:
  return jax.tree.map(lambda x: x[0], tree)


def _require_words(role: str, found: Sequence) -> None:
  if not len(found):
    raise InputError(f"the {role} has no word that the encoder knows: give another text")


def _sentences(template: str, question: Question, count: int) -> list[tuple[str, str]]:
  """Returns (name, text) of each sentence beside the question, in the order of roles 1 … `count`."""
  if template == "joint":
    texts = [candidate.text for candidate in question.candidates]
    texts += [""] * (count - len(texts))
    return [(f"candidate {n}", text) for n, text in enumerate(texts, 1)]
  one = question.candidates[0]
  return [("candidate", one.text), ("previous", one.previous), ("next", one.next)][:count]


def as_written(text: str, forms: Sequence[str]) -> tuple[str, ...]:
  """Returns the words of `text` whose lower-cased forms are `forms`, in order; others may lie between."""
  spelling, spelled = [], iter(words(text))
  for form in forms:
    start, end = next((start, end) for other, start, end in spelled if other == form)
    spelling.append(text[start:end])
  return tuple(spelling)


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
  """Returns the cosine of each row of `a` `[n, d]` with each of `b` `[m, d]`; 0 with a zero vector."""
  lengths = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
  return np.divide(a @ b.T, lengths, out=np.zeros_like(lengths), where=lengths > 0)


def from_texts(
  config: Any, question: str, candidates: Sequence[str], *, previous: str = "", following: str = ""
) -> Question:
  """Returns the question with its candidate and context (a joint run: candidates), under its rules."""
  template = config.model.get("template", "")
  if (previous or following) and template != "context":
    raise InputError("--previous and --next: the run reads no context; leave them out")
  most = config.data.ranking_size if template == "joint" else 1
  if len(candidates) > most:
    raise InputError(
      f"--text-candidate was given {len(candidates)} times; the run reads {most} at once"
    )
  in_context = []
  for n, text in enumerate(candidates, 1):
    in_context.append(Candidate(f"C{n}", text, previous=previous, next=following))
  asked = Question("Q", question, tuple(in_context))
  if not question.strip() or not all(text.strip() for text in candidates):
    raise InputError("--text-question or --text-candidate is empty: give a text")
  return normalise.apply([asked], config.data.rules)[0]


def from_data(config: Any, question_id: str, split: str) -> Question:
  """Returns a question of the run's data with its first right candidate (else the first).

  A joint run has the candidates that it ranks.
  """
  data = load.load(config.data, config.evaluation.task)
  load.require(data, (split,))
  question = next((one for one in data.splits[split] if one.id == question_id), None)
  if question is None or not question.candidates:
    raise InputError(
      f"--question-id={question_id}: {data.name} has no such question with candidates in its split "
      f"{split!r} (the first is {data.splits[split][0].id}); name another --split?"
    )
  order = [*question.positives, 0][:1]
  if config.model.get("template") == "joint":
    ranking = rankings.load(config.data.ranking, data.splits, split.split("+"))
    order = ranking.order(question)[: config.data.ranking_size]
  return Question(question.id, question.text, tuple(question.candidates[at] for at in order))


def make(
  run: epath.PathLike,
  output: epath.PathLike,
  *,
  question: str = "",
  candidates: Sequence[str] = (),
  previous: str = "",
  following: str = "",
  question_id: str = "",
  split: str = "test",
  seed: int | None = None,
  allow_code: bool = False,
  excel: bool = False,
) -> list[Similarity]:
  """Writes the picture and the matrices; returns the matrices.

  Args:
    question, candidates, previous, following: texts; of candidates one, in a joint run up to K.
    question_id: one of the run's `split` in place of texts (`from_data`).
    seed: which of the run's; the best where None.
    allow_code: see `as2jax.load`.
    excel: whether the matrices are for Excel, see `tables.write`.

  """
  output = epath.Path(output)
  tables.check_target(str(output), forms=FORMS)
  opened = Run(run, allow_code=allow_code)
  config, seed = opened.config, opened.check_seed(seed)
  if question_id and not (question or candidates or previous or following):
    asked = from_data(config, question_id, split)
  elif question and candidates and not question_id:
    asked = from_texts(config, question, candidates, previous=previous, following=following)
  else:
    raise InputError(
      "give --text-question and --text-candidate (with --previous and --next, where the run reads "
      "context), or --question-id"
    )
  panels = Words(opened, asked).similarities(opened.ranker(seed))
  try:
    draw(panels, output, opened.folder.name)
    for panel in panels:
      mode = f".{panel.mode.replace(' ', '-')}" if panel.mode else ""
      write_whole(output.with_suffix(f"{mode}.tsv"), table(panel, excel))
  except OSError as error:
    raise InputError(f"--output={output} cannot be written: {error}") from error
  return panels


def draw(panels: Sequence[Similarity], output: epath.Path, name: str) -> None:
  """Draws matrices of a run's `name` one below the other; PDF and SVG keep text and shapes."""
  import matplotlib
  from matplotlib.figure import Figure

  widest = max(len(panel.candidate) for panel in panels)
  tall = [len(panel.question) * CELL + MARGIN for panel in panels]
  size = (max(widest * CELL + MARGIN, 5.0) + 0.8, sum(tall))
  figure = Figure(figsize=size, layout="constrained")
  axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=tall).ravel()
  values = np.concatenate([panel.values.ravel() for panel in panels])
  lowest, highest = min(values.min(), 0.0), values.max()
  if panels[0].what == "cosine":
    highest = 1.0
  for axis, panel in zip(axes, panels, strict=True):
    rows, columns = panel.values.shape
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    image = axis.pcolormesh(*edges, panel.values, cmap="viridis", vmin=lowest, vmax=highest)
    axis.set_ylim(rows - 0.5, -0.5)
    turned = {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    axis.set_xticks(range(columns), labels=panel.candidate, parse_math=False, **turned)
    axis.set_yticks(range(rows), labels=panel.question, parse_math=False)
    axis.set_ylabel("question")
    title = f"{name} {panel.mode}: {panel.score_name} {panel.score:.3f}"
    title = textwrap.fill(title, max(int(size[0] * 9), 30))
    axis.set_title(title, fontsize=10, parse_math=False)
  bar = figure.colorbar(image, ax=list(axes), label=panels[0].what, shrink=0.9)
  bar.solids.set_rasterized(False)
  with (
    matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}),
    output.open("wb") as file,
    warnings.catch_warnings(record=True) as caught,
  ):
    warnings.simplefilter("always")
    figure.savefig(file, format=output.suffix.lower()[1:])
  lacking = [one for one in caught if "missing from font" in str(one.message)]
  if lacking and output.suffix.lower() != ".svg":
    log.warning(
      "%s shows boxes for characters that its font lacks: name a .svg, whose viewer draws them, or read the .tsv",
      output,
    )


def table(similarity: Similarity, excel: bool = False) -> str:
  """Returns the matrix as tab-separated text: candidate words across, question words down."""
  across, down = list(similarity.candidate), list(similarity.question)
  if excel:
    across, down = [list(map(tables.neutral, words)) for words in (across, down)]
  lines = [tables.MARK * excel + "\t".join(["", *across])]
  for word, values in zip(down, similarity.values, strict=True):
    lines.append("\t".join([word, *(f"{value:.6f}" for value in values)]))
  return "\n".join(lines) + "\n"
