"""English stop words: the closed classes, and what contractions make of them.

Forms are those of `as2jax.data.text.words.words`: lower case, straight apostrophes, a contraction whole
(`don't`). Text that was split as the Penn Treebank splits it leaves `s`, `n't`, `ll` and the like.
Left out on purpose, as lower case makes them one with words that answer: `us` (the US), `may` (the
month), `one`.
"""

_PRONOUNS = """i me my mine myself we our ours ourselves you your yours yourself yourselves he him
  his himself she her hers herself it its itself they them their theirs themselves oneself"""
_POINTING = "this that these those here there"
_ASKING = "what which who whom whose when where why how whether"
_ARTICLES = "a an the"
_QUANTITIES = """all any both each either neither every few more most much many other others another
  some such no none same own several enough"""
_AUXILIARIES = """am is are was were be been being have has had having do does did doing done can
  could will would shall should might must ought"""
_PREPOSITIONS = """of at by for with without about against between among amongst into onto upon
  through throughout during before after above below to from up down in out on off over under within
  toward towards along across around behind beside besides beyond near since until till per via"""
_CONJUNCTIONS = "and but if or nor because as while than though although unless whereas so yet"
_ADVERBS = """again further then once not only too very just now also even ever still rather quite
  thus hence therefore however"""
_PIECES = "s t d ll m o re ve y n't ain ma cannot"  # that splitting at apostrophes leaves behind

_NEGATED = """is are was were have has had do does did can could would should might must need ought
  may dare"""  # and irregular: won't, shan't, ain't
_SHORTENED = {
  "'s": "he she it that this there here what which who when where why how one let",
  "'re": "we you they there these those what who how",
  "'ll": "i we you he she it they that this there what who how",
  "'d": "i we you he she it they that there what who how",
  "'ve": "i we you they there who could would should might must may",
}


def _stop_words() -> frozenset[str]:
  groups = (
    _PRONOUNS,
    _POINTING,
    _ASKING,
    _ARTICLES,
    _QUANTITIES,
    _AUXILIARIES,
    _PREPOSITIONS,
    _CONJUNCTIONS,
    _ADVERBS,
    _PIECES,
  )
  stop_words = {word for group in groups for word in group.split()}
  negated = {f"{word}n" for word in _NEGATED.split() if word != "can"} | {"won", "shan"}
  stop_words |= {f"{word}'t" for word in negated | {"can", "ain"}} | negated
  stop_words |= {word + end for end, words in _SHORTENED.items() for word in words.split()}
  return frozenset(stop_words | {"i'm", "y'all", "o'clock"})


STOP_WORDS = _stop_words()


def is_kept(form: str) -> bool:
  """Whether a word is neither a stop word nor punctuation (no letter and no digit)."""
  return form not in STOP_WORDS and any(character.isalnum() for character in form)
