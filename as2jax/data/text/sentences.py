"""Sentence splitting by rules: no model, no download, the same on every machine.

Made for edited prose (Wikipedia paragraphs). A break stands after `.`, `!` or `?` (with the closing
quotes, brackets and reference marks that follow) and white space, where what follows can open a
sentence and what precedes is not an abbreviation that expects more. An empty line always breaks, a
line break alone is white space like any other (Wikipedia's formulas are full of them).
"""

import re

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
