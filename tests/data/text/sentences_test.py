import pytest
from hypothesis import given
from hypothesis import strategies as st

from as2jax.data.text.sentences import sentence_spans


def split(text: str) -> list[str]:
  return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
  "sentences",
  [
    ["He left.", "She stayed.", "Why?", "Nobody knows!"],
    ["It rose to 3.5 million in 1999.", "14th-century walls stood."],
    ["Dr. Smith met Mr. J. P. Morgan in St. Louis.", "They spoke."],
    ["He moved to the U.S. Army base.", "It closed."],
    ["She lived in the U.S.", "The move was hard."],
    ["It began at 9:00 a.m. Eastern Time.", "It ended at 6 p.m.", "The crowd left."],
    ["It reached No. 1 in the UK and No. 2 in Australia.", "This was new."],
    ["Is it so?", "The answer was no.", "Stated otherwise, yes."],
    ['He said "I agree."', "They left.", '"Why?" asked Ann.'],
    ["The end (so it is called).", "(It was not.)", "He wrote on."],
    ["It was never found.:309", "He tried again.[12]", "And again.[citation needed]", "Done."],
    ["They hit the iron (e.g. Fe, i.e. ferrum) with c. 40 blows, cf. Fig. 3.", "It broke."],
    ["He bought an iPod.", "iPods sold well."],
    ["Oxygen is O\n2 and water H\n2O.", "Both are needed."],
    ["Conrad, Jr. and Bean flew.", "They landed."],
    ["He went to Washington, D.C. in 1995.", "Really?!", "It ended... or did it?"],
    ["See http://a.b/c.d?e=f.", "“Quoted,” she said.", "No. 5 is alive!"],
    ["The end of St. Louis vs. Chicago.", "日本語の文。次の文。 p. 34, pp. 5-6.", "Etc. etc."],
  ],
)
def test_known_sentences(sentences):
  assert split(" ".join(sentences)) == sentences


def test_an_empty_line_breaks():
  assert split("A title\n\nA sentence that\ngoes on. \n \n more") == [
    "A title",
    "A sentence that\ngoes on.",
    "more",
  ]


@given(st.text(st.sampled_from("aB .!?\"')[]\n1:é’"), max_size=60))
def test_every_character_but_space_is_in_one_sentence(text):
  spans = sentence_spans(text)
  at = 0
  for start, end in spans:
    assert not text[at:start].strip() and start < end
    assert text[start:end] == text[start:end].strip()
    at = end
  assert not text[at:].strip()
