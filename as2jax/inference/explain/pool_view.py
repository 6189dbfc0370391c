"""What runs find in a pool, side by side (`as2jax lab pool`).

For a question, the best passages of the pool, a column a run (ASBERT, table 5; Cross-VAE, figure
2c); + stands before a right one where the question is of the pool. For an answer (a passage's id, or
`most`: the passage that most questions ask for), its questions: how close each run's vectors of them
lie (SSE), and a picture of them in two dimensions, beside it x.tsv (Cross-VAE, figures 2a and 2b).
The pool is that of the first run's data set; a re-ranking data set's is all of its candidates.
"""

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from etils import epath

from as2jax.data.datasets import load
from as2jax.data.datasets.pool import Pool
from as2jax.inference.explain import picture
from as2jax.inference.hit import Hit
from as2jax.inference.run import Run
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import write_whole

WIDTH = 100  # of a text, in columns
GAP = "  "


@dataclasses.dataclass(frozen=True)
class Retriever:
  """A run as a tool over one pool.

  Attributes:
    name: of its folder.
    search: question, k → the best passages.
    embed: questions → vectors `[n, d]`, None where the run has none.

  """

  name: str
  search: Callable[[str, int], list[Hit]]
  embed: Callable[[Sequence[str]], np.ndarray] | None


def open_pool(run: epath.PathLike, split: str) -> Pool:
  """The pool of a split of a run's data set."""
  config = Run(run).config
  data = load.load(config.data, "retrieve")
  load.require(data, (split,))
  return data.pools[split]


def open_run(folder: epath.PathLike, pool: Pool, seed: int | None = None) -> Retriever:
  """A run over a pool: one that encodes sentences, by its best checkpoint, or one of words.

  Args:
    seed: which of the run's; the best where None.

  Raises:
    InputError: no run, no such seed, a model that does not encode sentences.

  """
  run = Run(folder)
  ranker = run.ranker(run.check_seed(seed))
  try:
    index = ranker.index([p.text for p in pool.passages], ids=[p.id for p in pool.passages])
  except TypeError as error:
    raise InputError(
      f"{folder} cannot search a pool: {error}; give one, or a ranker of words"
    ) from error
  embed = ranker.encode_query if ranker.has_vectors else None
  return Retriever(run.folder.name, index.search, embed)


def side_by_side(question: str, retrievers: Sequence[Retriever], pool: Pool, *, top: int) -> str:
  """The best passages of each run for a question, a column a run."""
  right: set[str] = set()
  for query in pool.queries:
    if query.text == question:
      place = pool.place()
      right |= {pool.passages[place[answer]].text for answer in query.answers}
  columns = []
  for retriever in retrievers:
    lines = [retriever.name, ""]
    for rank, hit in enumerate(retriever.search(question, top), 1):
      mark = "+" if hit.text in right else " "
      head = f"{mark} {rank}. {hit.score:.3f} "
      lines += textwrap.wrap(
        f"{head}{hit.text}",
        WIDTH // len(retrievers),
        subsequent_indent=" " * 5,
        drop_whitespace=True,
      )
    columns.append(lines)
  height = max(map(len, columns))
  widths = [max(map(len, lines)) for lines in columns]
  rows = [
    GAP.join(
      f"{lines[i] if i < len(lines) else '':{width}}"
      for lines, width in zip(columns, widths, strict=True)
    ).rstrip()
    for i in range(height)
  ]
  known = f" ({len(right)} right)" if right else ""
  return "\n".join([f"question: {question}{known}", "", *rows])


def questions_of(pool: Pool, answer: str) -> tuple[str, list[str]]:
  """The passage `answer` (an id, or `most`) and the questions whose gold passage it is.

  Raises:
    InputError: no such passage, or fewer than two questions.

  """
  count = Counter(query.answers[0] for query in pool.queries)
  if answer == "most" and count:
    answer = count.most_common(1)[0][0]
  place = pool.place()
  if answer not in place:
    raise InputError(
      f"--answer={answer}: the pool has no such passage (the first is "
      f"{pool.passages[0].id}); `most` is the one that most questions ask for"
    )
  asked = [query.text for query in pool.queries if query.answers[0] == answer]
  if len(asked) < 2:
    raise InputError(
      f"--answer={answer}: {len(asked)} questions have it as their answer; the "
      "distances between them need two"
    )
  return pool.passages[place[answer]].text, asked


def projected(vectors: np.ndarray) -> np.ndarray:
  """Vectors `[n, d]`, brought to length 1, along their first two singular directions, `[n, 2]`.

  They are not centred, as in Cross-VAE (figure 2), so that what is close to one direction stays so;
  signs are such that each coordinate's largest value is positive.
  """
  lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
  unit = vectors / np.where(lengths > 0, lengths, 1.0)
  _, _, directions = np.linalg.svd(unit, full_matrices=False)
  points = unit @ directions[:2].T
  points = np.concatenate([points, np.zeros((len(points), 2 - points.shape[1]))], 1)
  largest = points[np.abs(points).argmax(0), np.arange(2)]
  return points * np.where(largest < 0, -1.0, 1.0)


def closeness(vectors: np.ndarray) -> float:
  """The mean squared distance between the rows `[n, d]`, brought to length 1 (SSE)."""
  lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
  unit = vectors / np.where(lengths > 0, lengths, 1.0)
  first, second = np.triu_indices(len(unit), 1)
  return float(np.square(unit[first] - unit[second]).sum(1).mean())


def draw(panels: Sequence[tuple[str, np.ndarray]], form: str = ".png") -> bytes:
  """A picture of the questions' points `[n, 2]`, numbered, a panel a run, in one scale."""
  from matplotlib.figure import Figure

  figure = Figure(figsize=(5 * len(panels), 5), layout="constrained")
  axes = figure.subplots(1, len(panels), squeeze=False)[0]
  every = np.concatenate([points for _, points in panels])
  low, high = every.min(0), every.max(0)
  room = 0.08 * np.maximum(high - low, 1e-6)
  for axis, (title, points) in zip(axes, panels, strict=True):
    axis.scatter(points[:, 0], points[:, 1], s=18)
    for number, (x, y) in enumerate(points, 1):
      axis.annotate(str(number), (x, y), textcoords="offset points", xytext=(4, 3), fontsize=8)
    axis.set_xlim(low[0] - room[0], high[0] + room[0])
    axis.set_ylim(low[1] - room[1], high[1] + room[1])
    axis.set_title(title, fontsize=10, parse_math=False)
  return picture.written(figure, form)


def picture_of(
  answer: str, retrievers: Sequence[Retriever], pool: Pool, output: epath.PathLike | None
) -> str:
  """The questions of one answer by each run's vectors: SSE as text; points as a picture and TSV."""
  without = [retriever.name for retriever in retrievers if retriever.embed is None]
  if without:
    raise InputError(f"--answer: {without[0]} has no vectors of questions; give runs of encoders")
  form = "" if output is None else picture.check(output)
  passage, asked = questions_of(pool, answer)
  vectors = [retriever.embed(asked) for retriever in retrievers]
  panels = [
    (f"{retriever.name}: SSE {closeness(x):.4f}", projected(x))
    for retriever, x in zip(retrievers, vectors, strict=True)
  ]
  lines = [f"answer: {passage}", *(f"{title} ({len(asked)} questions)" for title, _ in panels)]
  lines += [f"{number:3d}  {text}" for number, text in enumerate(asked, 1)]
  if output is not None:
    head = [f"{retriever.name} {axis}" for retriever in retrievers for axis in "xy"]
    table = ["\t".join(["number", "question", *head])]
    for i, text in enumerate(asked):
      values = [f"{value:.6f}" for _, points in panels for value in points[i]]
      table.append("\t".join([str(i + 1), " ".join(text.split()), *values]))
    output = epath.Path(output)
    try:
      output.parent.mkdir(parents=True, exist_ok=True)
      output.write_bytes(draw(panels, form))
      write_whole(output.with_suffix(".tsv"), "\n".join(table) + "\n")
    except OSError as error:
      raise InputError(f"--output={output} cannot be written: {error}") from error
    lines.append(f"written: {output}, {output.with_suffix('.tsv').name}")
  return "\n".join(lines)
