import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.record import Candidate, Question
from as2jax.data.text import normalise
from as2jax.runtime.errors import InputError


@pytest.mark.parametrize(
  "name, text, result",
  [
    ("lowercase", "Who Sold ICE?", "who sold ice?"),
    ("alphanumeric", " U.S. ice-trade: caf\u00e9 (1806)!", "U S ice trade caf 1806"),
    ("mask_numbers", "1,200.50 tons on 12/7, 9:30, 4th", "<num> tons on <num>, <num>, <num>th"),
    ("html", "AT&amp;T &#39;s&nbsp;&lt;b&gt; & co", "AT&T 's <b> & co"),
    ("ptb", "-LRB- a -RRB- -LSB- b -RSB- -LCB- c -RCB- -lrb-", "( a ) [ b ] { c } ("),
    ("ptb", "`` Ice '' , he said , ` cold '", "\" Ice \" , he said , ' cold '"),
    ("ptb", "DO N'T , U.S. 's , the 1980 's , we 're", "DON'T , U.S.'s , the 1980's , we're"),
    ("ptb", "'s first , '' 's , the workers ' rights", "'s first , \" 's , the workers ' rights"),
    ("ptb", "rock 'n roll , the 'mad dog", "rock 'n roll , the 'mad dog"),
    ("ptb", "1\\/2 \\* and\\or", "1/2 * and\\or"),
  ],
)
def test_a_rule(name, text, result):
  assert normalise.RULES[name](text) == result


def question(*texts, **context) -> Question:
  candidates = tuple(Candidate(f"q-{i}", text, i % 2, **context) for i, text in enumerate(texts))
  return Question("q", "Who sold 'ice' in 1806?", candidates)


def test_rules_apply_in_the_order_given_to_every_text():
  original = question(
    "Tudor -LRB- 1806 -RRB-", previous="A B", next="C", title="Ice &amp; Trade", previous_label=1
  )
  (actual,) = normalise.apply(
    (original,), ("ptb", "html", "mask_numbers", "lowercase", "alphanumeric")
  )
  assert actual.text == "who sold ice in num"
  (candidate,) = actual.candidates
  assert candidate.text == "tudor num"
  assert (candidate.previous, candidate.next, candidate.title) == ("a b", "c", "ice trade")
  assert (candidate.id, candidate.label, candidate.previous_label) == ("q-0", 0, 1)
  (other,) = normalise.apply((original,), ("alphanumeric", "mask_numbers"))
  assert other.candidates[0].text == "Tudor LRB <num> RRB"


def test_a_text_is_never_lost_and_what_stays_is_reported(caplog):
  originals = (question("YES", "\u00c4 :-)", previous="***", title="!"), question("\u00c4 :-)"))
  first, second = normalise.apply(originals, ("lowercase", "alphanumeric"))
  assert [c.text for c in first.candidates] == ["yes", "\u00e4 :-)"]  # the rule before it counts
  assert second.candidates[0].text == "\u00e4 :-)"
  assert (first.candidates[0].previous, first.candidates[0].title) == ("", "")
  assert "2 questions and candidates without text (first q-1)" in caplog.text


@pytest.mark.parametrize("names", [("xyz",), ("ptb", "ptb"), "ptb"])
def test_names_that_are_no_rules(names):
  with pytest.raises(InputError, match="data.rules = .* some of lowercase, .* at most once"):
    normalise.apply((question("a"),), names)


@given(
  texts=st.lists(st.text(min_size=1, max_size=8).filter(str.strip), max_size=2),
  names=st.lists(st.sampled_from(sorted(normalise.RULES)), unique=True),
)
def test_no_rule_empties_or_drops_a_candidate(texts, names):
  (actual,) = normalise.apply((question(*texts),), names)
  assert len(actual.candidates) == len(texts) and actual.text.strip()
  assert all(candidate.text.strip() for candidate in actual.candidates)
