"""The one batch layout: encode once, index many.

Every array is `[shard, ...]`. The number of shards is configuration, never the number of devices: a
device holds one or more. All indices are local to their shard. What a model reads beside token ids
(`as2jax.data.inputs`) lies in `inputs` of the part whose rows it describes, by name.
"""

from flax import struct
from jaxtyping import Array, Float, Int

from as2jax.runtime.errors import InputError


@struct.dataclass
class Tokens:
  """Rows of fixed length into which units (sentences or joined sequences) are packed.

  `segment` is 0 for padding, else 1 + the unit's number within its row; attention stays within it.
  `position` is that within the unit, from 0; `type` the encoder's token type (0 or 1; XLNet's 2 for
  `<cls>`); `role` the part of the template (`as2jax.data.text.input_templates.ROLES`; in `joint` 0
  is the question, k the k-th candidate). `inputs`: levels `token` and `vocabulary`, `[s, r, l, …]`.
  All are 0 in padding.
  """

  ids: Int[Array, "s r l"]
  segment: Int[Array, "s r l"]
  position: Int[Array, "s r l"]
  type: Int[Array, "s r l"]
  role: Int[Array, "s r l"]
  inputs: dict[str, Array] = struct.field(default_factory=dict)


@struct.dataclass
class Units:
  """Where each unit lies in the rows; `length` 0 marks an unused slot.
  `id` is the unit's number in the table that the batch was cut from (-1 in an unused slot): units
  with equal ids, in one shard or in two, are the same text. `inputs`: level `unit`, `[s, u, …]`.
  """

  row: Int[Array, "s u"]
  start: Int[Array, "s u"]
  length: Int[Array, "s u"]
  id: Int[Array, "s u"]
  inputs: dict[str, Array] = struct.field(default_factory=dict)


@struct.dataclass
class Words:
  """Word spans within units (start in tokens from the unit's first); `length` 0 is an unused slot.
  `form` is the number of the lower-cased form in the table's list. `inputs`: level `word`, `[s, w,
  …]`.
  """

  unit: Int[Array, "s w"]
  start: Int[Array, "s w"]
  length: Int[Array, "s w"]
  role: Int[Array, "s w"]
  form: Int[Array, "s w"]
  inputs: dict[str, Array] = struct.field(default_factory=dict)


@struct.dataclass
class Examples:
  """What the loss sees: tuples of unit indices, local to the shard.

  `members` holds, by layout: `triplets` (anchor, positive, negative); `pairs` (question, answer);
  `single` and `joint` (one joined sequence); 0 in padding. `labels` are one a judged
  member, under a template with context those of (candidate, previous, next) sentence, `UNKNOWN`
  (-1) where unjudged or padded. `mask` is 1 for a real example; `question` and `answer` number the
  question in its split and the answer's text, -1 for padding. `inputs`: level `example`, `[s, e,
  …]`.
  """

  members: Int[Array, "s e k"]
  labels: Int[Array, "s e j"]
  mask: Float[Array, "s e"]
  question: Int[Array, "s e"]
  answer: Int[Array, "s e"]
  inputs: dict[str, Array] = struct.field(default_factory=dict)


@struct.dataclass
class Batch:
  """One (micro-)batch: tokens, spans, examples; `words` is None where no input is of level `word`."""

  tokens: Tokens
  units: Units
  examples: Examples
  words: Words | None = None

  @property
  def inputs(self) -> dict[str, Array]:
    """Return all inputs by name; `InputError` for a name that the batch does not have."""
    parts = (self.tokens, self.units, self.examples, *(() if self.words is None else (self.words,)))
    return _Inputs({name: values for part in parts for name, values in part.inputs.items()})


class _Inputs(dict):
  def __missing__(self, name: str) -> Array:
    raise InputError(
      f"this batch has no input {name!r} (it has: {', '.join(sorted(self)) or 'none'}): name it in "
      "the model's `inputs`, from which `as2jax.training.build` makes it"
    )
