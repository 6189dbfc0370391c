"""What a ranking or a search gives."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Hit:
  """One candidate of a ranking, or one document of an index.

  Attributes:
    index: its position among what was ranked.
    score: higher is better.
    text, id: as they were given.

  """

  index: int
  score: float
  text: str
  id: str
