"""Text rules: named steps that change texts, listed in the config and applied in that order.

config.data.rules = ("ptb", "lowercase", "alphanumeric")
"""

import dataclasses
import functools
import html
import logging
import re
from collections.abc import Callable, Iterable, Sequence

from as2jax.data.record import CONTEXT, Candidate, Question
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)

_OTHER = re.compile(r"[^A-Za-z0-9]+")
_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
BRACKETS_AND_QUOTES = {
  "-lrb-": "(",
  "-rrb-": ")",
  "-lsb-": "[",
  "-rsb-": "]",
  "-lcb-": "{",
  "-rcb-": "}",
  "``": '"',
  "''": '"',
  "`": "'",
}
CLITICS = {"n't", "'s", "'re", "'ve", "'m", "'d", "'ll"}
_ESCAPED = re.compile(r"\\([/*])")


def alphanumeric(text: str) -> str:
  """Make one space of each run of anything but ASCII letters and digits (CETE's code).
  CETE's rule for TrecQA, `[^a-z0-9]+` on lower-cased text, is ("lowercase", "alphanumeric").
  """
  return _OTHER.sub(" ", text).strip()


def ptb(text: str) -> str:
  r"""Undo the Penn Treebank's spelling, for tokenisers that saw ordinary text.
  Brackets (`-LRB-`) and quotes (` `` `, `''`) become themselves again, `\/` becomes `/`, and n't,
  's, 're, 've, 'm, 'd, 'll go back to the word before them, where that ends in a letter, a digit or
  a full stop. What may be meant so stays: a single ', "can not", spaces around punctuation.
  """
  words: list[str] = []
  for token in text.split():
    lower = token.lower()
    if lower in CLITICS and words and (words[-1][-1].isalnum() or words[-1][-1] == "."):
      words[-1] += token
    else:
      words.append(BRACKETS_AND_QUOTES.get(lower, token))
  return _ESCAPED.sub(r"\1", " ".join(words))


def unescape_html(text: str) -> str:
  """Resolve HTML's character references (`&amp;`, `&#39;`, `&nbsp;`); white space is one space."""
  return " ".join(html.unescape(text).split())


RULES: dict[str, Callable[[str], str]] = {
  "lowercase": str.lower,
  "alphanumeric": alphanumeric,
  # Each number (1,200.50 and 12/7 are one) becomes <num>, as in TrecQA's first release.
  "mask_numbers": functools.partial(_NUMBER.sub, "<num>"),
  "ptb": ptb,
  "html": unescape_html,
}


def check(names: Sequence[str]) -> None:
  """Raise InputError unless `names` are rules, each at most once."""
  if isinstance(names, str) or len(set(names)) < len(names) or set(names) - set(RULES):
    raise InputError(
      f"data.rules = {names!r}: give a tuple with some of {', '.join(RULES)}, each at most once"
    )


def apply(questions: Iterable[Question], names: Sequence[str]) -> tuple[Question, ...]:
  """Return the questions with the rules `names` applied to every text, in that order.
  A question or a candidate that a rule would leave without text (`:-)` under `alphanumeric`) stays
  as it was before that rule; their number is logged. A context sentence or a title may become empty:
  there is none then. Raises InputError as `check`.
  """
  if not names:
    return tuple(questions)
  check(names)
  rules = [RULES[name] for name in names]

  without, result = [], []

  @functools.cache
  def changed(text: str) -> str:
    for rule in rules:
      text = rule(text)
    return text if text.strip() else ""

  def filled(entry: Question | Candidate) -> str:
    text = changed(entry.text)
    if not text:
      without.append(entry.id)
      text = entry.text
      for rule in rules:
        text = rule(text) if rule(text).strip() else text
    return text

  for question in questions:
    candidates = []
    for candidate in question.candidates:
      context = {name: changed(getattr(candidate, name)) for name in CONTEXT}
      candidates.append(dataclasses.replace(candidate, text=filled(candidate), **context))
    result.append(Question(question.id, filled(question), tuple(candidates), question.group))
  if without:
    log.warning(
      "the rules %s would leave %d questions and candidates without text (first %s); "
      "these keep the text they had before",
      ", ".join(names),
      len(without),
      without[0],
    )
  return tuple(result)
