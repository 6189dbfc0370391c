"""Objects that say what they are: lines in a terminal, a table in a notebook."""

from html import escape
from typing import Any


class Shown:
  """An object that is shown by its facts, the first of which says what it is."""

  def about(self) -> dict[str, Any]:
    """Return what a person wants to know of the object: {heading: text}."""
    raise NotImplementedError

  def __repr__(self) -> str:
    facts = self.about()
    width = max(map(len, facts))
    return "\n".join(f"{heading:{width}}  {text}" for heading, text in facts.items())

  def _repr_html_(self) -> str:
    rows = []
    for heading, text in self.about().items():
      rows.append(f'<tr><th scope="row">{escape(heading)}</th><td>{escape(str(text))}</td></tr>')
    return f"<table>{''.join(rows)}</table>"
