"""What the PyTorch side of a training step reads (torch_steps.py): a batch without packing and padding."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tiny_steps
import torch

from as2jax.data.inputs.document_position import DocumentPosition
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords, WordOverlap
from as2jax.encoders.frozen_vectors import FrozenVectors

SIDES = ("question", "answer")


@dataclasses.dataclass(frozen=True)
class Inputs:
  """The content of a batch: texts `[text, …]` of lengths, and examples over them.

  `words` lists, for each text and role, (first token, tokens, frequency) of the words that count.
  `noise` has the latents' by side `[example, z]`, `vectors` frozen ones `[text, token, d]`,
  `overlap` the numbers `[example, 2]` that M²S-Net reads, `place` ln(1 + place) `[example]`.
  """

  ids: torch.Tensor
  type: torch.Tensor
  role: torch.Tensor
  length: torch.Tensor
  number: torch.Tensor
  members: torch.Tensor
  labels: torch.Tensor
  answer: torch.Tensor
  progress: float
  words: tuple[tuple[list[tuple[int, int, float]], ...], ...] = ()
  noise: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
  vectors: torch.Tensor | None = None
  overlap: torch.Tensor | None = None
  place: torch.Tensor | None = None

  @property
  def real(self) -> torch.Tensor:
    """Which tokens are of a text, `[text, token]`."""
    return torch.arange(self.ids.shape[1])[None] < self.length[:, None]


def named_inputs(batch: Any) -> dict[str, Any]:
  """What a batch has beside tokens, units and examples; None where it has it not."""
  inputs = dict(batch.inputs)
  return {
    "vectors": inputs.get(FrozenVectors.name),
    "overlap": inputs.get(WordOverlap.name),
    "place": inputs.get(DocumentPosition.name),
    "frequency": inputs.get(DocumentFrequency.name),
    "keep": None if StopWords.name not in inputs else inputs[StopWords.name] == 0,
  }


def read(case: tiny_steps.Case, number: int) -> Inputs:
  """The content of one of a case's batches."""
  batch = case.batches[number]
  batch = type(batch)(
    **{  # the only micro-batch
      f.name: _micro(getattr(batch, f.name)) for f in dataclasses.fields(batch)
    }
  )
  tokens, units, examples, more = batch.tokens, batch.units, batch.examples, named_inputs(batch)
  shards, slots = units.length.shape
  used = np.argwhere(units.length > 0)
  longest = int(units.length.max())
  at = lambda array, s, u: array[s, units.row[s, u], units.start[s, u] :][: units.length[s, u]]

  def texts(array):
    padded = np.zeros((len(used), longest, *array.shape[3:]), array.dtype)
    for n, (s, u) in enumerate(used):
      padded[n, : units.length[s, u]] = at(array, s, u)
    return torch.tensor(padded)

  place = np.full((shards, slots), -1)
  place[tuple(used.T)] = np.arange(len(used))
  shard, slot = np.nonzero(examples.mask > 0)
  of = lambda array: torch.tensor(np.asarray(array)[shard, slot])
  optional = {}
  if case.system in tiny_steps.CROSSING:
    shape = (*examples.mask.shape, case.config.model.latent_size)
    optional["noise"] = {side: of(tiny_steps.noise(side, shape)).double() for side in SIDES}
  if more["vectors"] is not None:
    optional["vectors"] = texts(np.asarray(more["vectors"])).double()
  for name in ("overlap", "place"):
    if more[name] is not None:
      optional[name] = of(more[name]).double()
  if batch.words is not None:
    optional["words"] = _words(batch, more, used)
  return Inputs(
    ids=texts(tokens.ids).long(),
    type=texts(tokens.type).long(),
    role=texts(tokens.role).long(),
    length=torch.tensor(units.length[tuple(used.T)]).long(),
    number=torch.tensor(units.id[tuple(used.T)]).long(),
    members=torch.tensor(place[shard[:, None], examples.members[shard, slot]]).long(),
    labels=of(examples.labels).long(),
    answer=of(examples.answer).long(),
    progress=case.progress[number],
    **optional,
  )


def _micro(part: Any) -> Any:
  if part is None:
    return None
  import jax

  return jax.tree.map(lambda x: np.asarray(x)[0], part)


def _words(batch: Any, more: Mapping[str, Any], used: np.ndarray) -> tuple:
  """The words of each text that stop words do not leave out, by role."""
  words, by_text = batch.words, []
  for s, u in used:
    mine = np.flatnonzero((words.unit[s] == u) & (words.length[s] > 0) & (more["keep"][s] > 0))
    roles = [[], [], [], []]
    for w in mine:
      span = int(words.start[s, w]), int(words.length[s, w]), float(more["frequency"][s, w])
      roles[words.role[s, w]].append(span)
    by_text.append(tuple(roles))
  return tuple(by_text)
