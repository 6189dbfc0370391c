"""Text rules: named steps that change texts, listed in the config and applied in that order.

config.data.rules = ("ptb", "lowercase", "alphanumeric")
"""

import dataclasses
import difflib
import functools
import html
import re
from collections.abc import Callable, Iterable, Sequence

from absl import logging

from as2jax.data.record import Question
from as2jax.runtime.errors import InputError

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
CONTEXT = ("previous", "next", "title")


def lowercase(text: str) -> str:
  """Lower case."""
  return text.lower()


def alphanumeric(text: str) -> str:
  """Runs of anything but ASCII letters and digits become one space (CETE's code).

  CETE's rule for TrecQA, `[^a-z0-9]+` on lower-cased text, is ("lowercase", "alphanumeric").
  """
  return _OTHER.sub(" ", text).strip()


def mask_numbers(text: str) -> str:
  """Return each number (1,200.50 and 12/7 are one) becomes `<num>`, as in TrecQA's first release."""
  return _NUMBER.sub("<num>", text)


def ptb(text: str) -> str:
  r"""Undoes the Penn Treebank's spelling, for tokenisers that saw ordinary text.

  Brackets (`-LRB-`) and quotes (` `` `, `''`) become themselves again, `\/` becomes `/`, and
  n't, 's, 're, 've, 'm, 'd, 'll go back to the word before them, where that ends in a letter, a
  digit or a full stop. Left alone, because undoing them may be wrong: a single ' (the genitive of
  plurals, or a closing quote), "can not", "gon na", and the spaces around punctuation.
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
  """Resolves HTML's character references (`&amp;`, `&#39;`, `&nbsp;`); white space is one space."""
  return " ".join(html.unescape(text).split())


RULES: dict[str, Callable[[str], str]] = {
  "lowercase": lowercase,
  "alphanumeric": alphanumeric,
  "mask_numbers": mask_numbers,
  "ptb": ptb,
  "html": unescape_html,
}


def check(names: Sequence[str]) -> None:
  """Raises InputError unless `names` are rules, each at most once."""
  if isinstance(names, str):
    raise InputError(f"data.rules = {names!r} is a text; give a tuple such as ({names!r},)")
  for i, name in enumerate(names):
    if name not in RULES:
      near = difflib.get_close_matches(str(name), RULES, 1)
      hint = f"did you mean {near[0]!r}?" if near else f"use some of {', '.join(RULES)}"
      raise InputError(f"data.rules holds {name!r}, which is no rule; {hint}")
    if name in names[:i]:
      raise InputError(f"data.rules holds {name!r} twice; list each rule once")


def apply(
  questions: Iterable[Question], names: Sequence[str], *, kept: list[str] | None = None
) -> tuple[Question, ...]:
  """Return the questions with the rules `names` applied to every text, in that order.

  Ids, labels, order and counts do not change. A question or a candidate that a rule would leave
  without any text (`:-)` under `alphanumeric`) stays as it was before that rule, and the number of
  such texts is logged; a context sentence or a title may become empty, which means that there is
  none.

  Args:
    questions: to change.
    names: keys of `RULES`.
    kept: takes the ids of the questions and candidates that a rule would have left without text.

  Raises:
    InputError: an unknown name, or one that occurs twice.

  """
  check(names)
  if not names:
    return tuple(questions)
  rules = [RULES[name] for name in names]

  @functools.cache
  def filled(text: str) -> tuple[str, bool]:
    """Return the text, never empty, and whether no rule was left out for that."""
    whole = True
    for rule in rules:
      after = rule(text)
      if after.strip():
        text = after
      else:
        whole = False
    return text, whole

  @functools.cache
  def loose(text: str) -> str:
    """Return the text, "" where the rules leave nothing."""
    for rule in rules:
      text = rule(text)
    return text if text.strip() else ""

  changed, without = [], []
  for question in questions:
    candidates = []
    for candidate in question.candidates:
      text, whole = filled(candidate.text)
      if not whole:
        without.append(candidate.id)
      context = {name: loose(getattr(candidate, name)) for name in CONTEXT}
      candidates.append(dataclasses.replace(candidate, text=text, **context))
    text, whole = filled(question.text)
    if not whole:
      without.append(question.id)
    changed.append(Question(question.id, text, tuple(candidates)))
  if without:
    logging.warning(
      "the rules %s would leave %d questions and candidates without text (first %s); "
      "these keep the text they had before",
      ", ".join(names),
      len(without),
      without[0],
    )
  if kept is not None:
    kept.extend(without)
  return tuple(changed)
