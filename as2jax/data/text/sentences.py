"""Sentence splitting by rules: no model, no download, the same on every machine.

Made for edited prose (Wikipedia paragraphs). A break stands after `.`, `!` or `?` (with the closing
quotes, brackets and reference marks that follow) and white space, where what follows can open a
sentence and what precedes is not an abbreviation that expects more. An empty line always breaks, a
line break alone is white space like any other (Wikipedia's formulas are full of them).

In a document (`document_spans`) a list item, a heading, a quotation, a table's row and a fenced block are never
joined to what stands beside them; a row and a fenced block are never cut; and 。！？ end sentences, too. Offsets
are those of the text that was given.
"""

import re
from collections.abc import Iterator

# A possible end: the marks, what closes behind them (page references such as `:12–14, 20`, too),
# space, and what opens the next sentence. Possessive, and from the first mark on: the time is linear.
_END = re.compile(
  r"(?<![.!?])(?P<mark>[.!?]++)(?P<close>(?:['\"”’»)\]]|\[[^\]\n]{1,40}\]|:\d++(?:(?:[:–-]|, ?)\d++)*+)*+)"
  r"(?P<space>\s++)(?P<open>[\"'“‘«(\[]*+)(?=(?P<first>\S))"
)
_PARAGRAPH = re.compile(r"\n[^\S\n]*+\n\s*+")
_WORD_BEFORE = re.compile(r"[^\s(\[\"'“‘–—/-]*$")
_WORD_AFTER = re.compile(r"[^\s.,;:!?)\]\"'”’]*")
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?|[^\W\d_]")  # "U.S", "J", "e.g"

# Followed by a name, a number or the rest of a phrase, never by a new sentence.
_OPENS = frozenset(
  "mr mrs ms messrs dr prof rev fr hon st ste mt ft gen col lt maj capt cpl sgt adm cmdr gov sen "
  "rep pres supt pvt vs viz cf ca max min approx e.g i.e fig figs eq ed eds trans vol vols nos pp "
  "mme mlle".split()
)
# Words of their own, too: "No." and "art." go on only where a number follows.
_BEFORE_NUMBERS = frozenset("no p art ch sec ps op".split())
# May end a sentence: only a following word that usually opens one makes it an end.
_EITHER = frozenset(
  "jr sr inc ltd co corp bros etc al est dept univ assn dist ave blvd rd mts jan feb mar apr jun "
  "jul aug sep sept oct nov dec a.m p.m b.c a.d b.c.e c.e ph.d m.d b.a m.a d.c u.s u.k u.n e.u "
  "u.s.a u.s.s.r".split()
)
_OPENERS = frozenset(
  "a after although among an and another as at because before both but by despite during each "
  "even every few following for from he her his how however if in instead it its later many more "
  "most no not of on one only other others our over several she similarly since so some such that "
  "the their then there therefore these they this those though through thus to today two under "
  "until upon we what when where whereas whether which while who with within you".split()
)


def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
  """Return (start, end) of each sentence of `text`, in order, without space at its ends.
  Nothing but space lies between two; a text of nothing but space has none.
  """
  breaks = [match.span() for match in _PARAGRAPH.finditer(text)]
  breaks += [match.span("space") for match in _END.finditer(text) if _ends(text, match)]
  spans, start = [], 0
  for end, resume in [*sorted(breaks), (len(text), len(text))]:
    if end < start:
      continue  # within the space of the break before it
    sentence = text[start:end]
    first = start + len(sentence) - len(sentence.lstrip())
    last = start + len(sentence.rstrip())
    if first < last:
      spans.append((first, last))
    start = resume
  return tuple(spans)


def _ends(text: str, match: re.Match) -> bool:
  """Tell whether a possible end is one."""
  first, opened = match["first"], match["open"]
  after = _WORD_AFTER.match(text, match.start("first")).group()
  if first.islower() and not after[1:2].isupper():
    return False  # "iPod" opens a sentence, "pod" does not
  if not (first.isalnum() or opened or first in "$£€#<&"):
    return False
  if "!" in match["mark"] or "?" in match["mark"] or match["close"]:
    return True
  if len(match["mark"]) > 1:
    return first.isupper()  # an ellipsis
  before = _WORD_BEFORE.search(text, max(0, match.start() - 40), match.start()).group()
  return _stop_ends(before, after, first)


def _stop_ends(before: str, after: str, first: str) -> bool:
  """Tell whether a full stop between the words `before` and `after` ends a sentence."""
  word = before.lower()
  if word in _OPENS or word in _BEFORE_NUMBERS and first.isdigit():
    return False
  if word in _EITHER or _INITIALS.fullmatch(before):
    return not first.isdigit() and after.lower() in _OPENERS
  return True


# Blocks of Markdown.
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
