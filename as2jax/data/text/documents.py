"""Sentence spans of a document: prose, Markdown blocks, and scripts that end sentences with 。！？.

A list item, a heading, a quotation, a table's row and a fenced block are never joined to what stands
beside them; a row and a fenced block are never cut. Offsets are those of the text that was given.
"""

import re
from collections.abc import Iterator

from as2jax.data.text.sentences import sentence_spans

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"\s*(?:[-*+•]|(\d{1,9})[.)])\s")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_MARKER = re.compile(r"\s*(?:(?:[-*+•]|\d{1,9}[.)]|#{1,6})\s+|>\s*)")
_QUOTE = re.compile(r" {0,3}>")
# Possessive: a line of a megabyte of spaces takes no hours.
_TABLE = re.compile(  # below a table's first row
  r"\s*+\|?+\s*+:?+-++:?+\s*+(?:\|\s*+:?+-++:?+\s*+)++\|?+\s*+$"
)
_RULE = re.compile(  # an empty line, a line below a heading, a rule
  r"\s*+(?:=++|-{3,}+|\*{3,}+|_{3,}+)?+\s*+$"
)
_IDEOGRAPHIC_END = re.compile(r"[。！？｡]+[」』”’）)\]]*")
_WORD = re.compile(r"\w")


def document_spans(text: str) -> list[tuple[int, int]]:
  """Return (start, end) of each sentence in order, without space or Markdown's mark at its beginning.

  Lines without a word have none.
  """
  spans = []
  for start, end, whole in _blocks(text):
    marker = None if whole else _MARKER.match(text, start, end)
    start = marker.end() if marker else start
    block = text[start:end]
    for first, last in [(0, len(block))] if whole else sentence_spans(block):
      cuts = (
        [] if whole else [match.end() for match in _IDEOGRAPHIC_END.finditer(block, first, last)]
      )
      for cut in [*cuts, last]:
        part = block[first:cut]
        if _WORD.search(part):
          begin = start + first + len(part) - len(part.lstrip())
          spans.append((begin, begin + len(part.strip())))
        first = cut
  return spans


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
  """Yield (start, end, whether it is one sentence) of each block of lines."""
  lines = [match.span() for match in re.finditer(r"[^\n]*\n|[^\n]+$", text)]
  begun, i = -1, 0  # of the paragraph or item that goes on
  in_list = in_quote = False
  while i < len(lines):
    start, end = lines[i]
    line, until = text[start:end], i
    item, fence = _ITEM.match(line), _FENCE.match(line)
    quote = bool(_QUOTE.match(line))
    if fence:
      until = _closing(text, lines, i, fence[1])
    elif "|" in line and i + 1 < len(lines) and _TABLE.match(text[slice(*lines[i + 1])]):
      while until + 1 < len(lines) and "|" in text[slice(*lines[until + 1])]:
        until += 1
    elif line.lstrip().startswith("|"):
      pass
    elif not _HEADING.match(line):
      begins = item and (in_list or not item[1] or item[1] == "1" or begun < 0)
      empty = bool(_RULE.match(line))
      if empty or begins or quote != in_quote:
        if begun >= 0:
          yield begun, start, False
        begun, in_list = -1, bool(begins) or in_list and empty
      if not empty:
        begun = start if begun < 0 else begun
      in_quote = quote
      i += 1
      continue
    if begun >= 0:
      yield begun, start, False
    begun, in_list, in_quote = -1, False, False
    if fence:
      yield start, lines[until][1], True
    else:  # one row, or one heading, a line
      for row in lines[i : until + 1]:
        yield *row, not _HEADING.match(line)
    i = until + 1
  if begun >= 0:
    yield begun, len(text), False


def _closing(text: str, lines: list[tuple[int, int]], at: int, fence: str) -> int:
  """Return the number of the line that closes a fenced block; the last line where none does."""
  for i in range(at + 1, len(lines)):
    line = text[slice(*lines[i])].strip()
    if len(line) >= len(fence) and not line.strip(fence[0]):
      return i
  return len(lines) - 1
