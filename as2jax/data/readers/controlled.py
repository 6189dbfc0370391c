"""Generated data sets, each of which only one mechanism can answer.

Words are made up, so that no pretraining knows them, and every text is drawn anew from the seed in
`controlled.json`, which also holds the numbers of questions. In each of them the labels are
independent of what simpler systems see; the functions below say why.
"""

import functools
import json
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from etils import epath

from as2jax.data.record import Candidate, Question
from as2jax.data.source import Spec

RECIPE = "controlled.json"
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aiou"
SYLLABLES = [consonant + vowel for consonant in CONSONANTS for vowel in VOWELS]
TOPICS, FILLERS, PAIRS, PLAIN = 4, 40, 24, 200
# Of the answers of `questions`, and questions an answer.
SLOTS, VALUES, SYNONYMS, ASKED = 4, 6, 2, 8
# Of `scales`: a run's words, those between two runs, around them in a question and in a candidate.
RUN, GAP, OTHERS, PLACES = 4, 2, 10, 24
# The sets of words, one after the other: no two share a word.
SIZES = {
  "topic": TOPICS,
  "filler": FILLERS,
  "asked": PAIRS,
  "said": PAIRS,
  "plain": PLAIN,
  "value": SLOTS * VALUES,
  "synonym": SLOTS * VALUES * SYNONYMS,
}


def words(kind: str) -> list[str]:
  """Return the made-up words of a set of `SIZES`: three syllables each."""
  kinds = list(SIZES)
  first = sum(SIZES[before] for before in kinds[: kinds.index(kind)])
  numbers = range(first, first + SIZES[kind])
  # 1,201 has no divisor in common with the number of words, so that neighbours share no beginning.
  total = len(SYLLABLES) ** 3
  return ["".join(_syllables(n * 1201 % total)) for n in numbers]


def _syllables(number: int) -> Iterator[str]:
  for _ in range(3):
    number, place = divmod(number, len(SYLLABLES))
    yield SYLLABLES[place]


def vocabulary() -> list[str]:
  """Return all words of all tasks."""
  return [word for kind in SIZES for word in words(kind)]


def context(rng: np.random.Generator, split: str) -> list[tuple[str, list[Candidate]]]:
  """Draw a question that the previous sentence decides: it names the topic, the next one another.

  Of a wrong candidate it is the other way round. All candidates of a question have the same two
  topics around them, and their own texts are random words: question and candidate alone say nothing,
  and neither does the bag of all words.
  """
  topics, fillers = words("topic"), words("filler")
  drawn = lambda: " ".join(rng.choice(fillers, 3))
  mine, other = rng.choice(topics, 2, replace=False)
  right, candidates = rng.integers(4), []
  for i in range(4):
    before, after = (mine, other) if i == right else (other, mine)
    around = [f"{topic} {rng.choice(fillers)}" for topic in (before, after)]
    candidates.append(Candidate(str(i), drawn(), int(i == right), *around))
  return [(f"{mine} {' '.join(rng.choice(fillers, 2))}", candidates)]


def paraphrase(rng: np.random.Generator, split: str) -> list[tuple[str, list[Candidate]]]:
  """Draw a question whose three words each have a partner in the right candidate, by a table of pairs.

  A wrong candidate has one partner three times, the right one another word three times; both have
  six words of four kinds, and three of them are partners. So the mean similarity of all pairs of
  words is the same, and only an alignment, by which each word is used up, tells them apart. No
  question shares a word with a candidate. In train, two more candidates have no partner at all,
  from which the table can be learnt.
  """
  asked, said = words("asked"), words("said")
  chosen = rng.choice(PAIRS, 6, replace=False)
  question, others = chosen[:3], chosen[3:]
  kinds = ["right", "wrong", "wrong", "wrong"] + ["far", "far"] * (split == "train")
  rng.shuffle(kinds)
  candidates = []
  for i, kind in enumerate(kinds):
    mine, others = rng.permutation(question), rng.permutation(others)
    numbers = {
      "right": [*mine, *[others[0]] * 3],
      "wrong": [*[mine[0]] * 3, *others],
      "far": [*[others[0]] * 3, *rng.choice(np.setdiff1d(np.arange(PAIRS), chosen), 3)],
    }[kind]
    text = " ".join(said[n] for n in rng.permutation(numbers))
    candidates.append(Candidate(str(i), text, int(kind == "right")))
  return [(" ".join(asked[n] for n in rng.permutation(question)), candidates)]


def scales(rng: np.random.Generator, split: str) -> list[tuple[str, list[Candidate]]]:
  """Draw a question of which the right candidate has two runs of four words, as far apart as there.

  Of a wrong candidate the runs are exchanged, or nearer, or farther apart. All candidates have the
  same words and the same neighbours in common with the question. Only what sees both runs at once,
  at whatever place, tells them apart.
  """
  sizes = (RUN, RUN, GAP + OTHERS, PLACES)
  drawn = rng.choice(words("plain"), sum(sizes), replace=False)
  first, second, others, rest = np.split(drawn, np.cumsum(sizes)[:-1])

  def text(before: np.ndarray, after: np.ndarray, between: int, around: np.ndarray) -> str:
    at = int(rng.integers(len(around) - between + 1))
    parts = (around[:at], before, around[at : at + between], after, around[at + between :])
    return " ".join(np.concatenate(parts))

  kinds = [(first, second, GAP), (second, first, GAP), (first, second, 0), (first, second, 3 * GAP)]
  candidates = []
  for i, kind in enumerate(rng.permutation(len(kinds))):
    its = text(*kinds[kind], rng.permutation(rest))
    candidates.append(Candidate(str(i), its, int(kind == 0)))
  return [(text(first, second, GAP, others), candidates)]


def questions(rng: np.random.Generator, split: str) -> list[tuple[str, list[Candidate]]]:
  """Draw one answer and the questions that ask for it, in words that the answer does not hold.

  An answer names a value of each of four slots, a question three of these by one of two synonyms
  each. Answers of dev and test are combinations that train does not have, and in their pools three
  slots determine the answer. Each question has its answer and three others, which differ from it in
  two or more slots.
  """
  values = np.reshape(words("value"), (SLOTS, VALUES))
  synonyms = np.reshape(words("synonym"), (SLOTS, VALUES, SYNONYMS))
  fillers = words("filler")
  answer = _combination(rng, split)
  text = " ".join(values[np.arange(SLOTS), answer])
  generated = []
  for _ in range(ASKED):
    slots = rng.choice(SLOTS, SLOTS - 1, replace=False)
    asked = [synonyms[slot, answer[slot], rng.integers(SYNONYMS)] for slot in slots]
    candidates = [Candidate("0", text, 1)]
    while len(candidates) < 4:
      other = _combination(rng, split)
      if (other != answer).sum() >= 2:
        wrong = " ".join(values[np.arange(SLOTS), other])
        candidates.append(Candidate(str(len(candidates)), wrong, 0))
    generated.append((" ".join(rng.permutation([*asked, rng.choice(fillers)])), candidates))
  return generated


def _combination(rng: np.random.Generator, split: str) -> np.ndarray:
  """Return the values of an answer; their sum, modulo their number, says in which split it is."""
  while True:
    drawn = rng.integers(VALUES, size=SLOTS)
    if {VALUES - 2: "dev", VALUES - 1: "test"}.get(int(drawn.sum()) % VALUES, "train") == split:
      return drawn


TASKS: dict[str, Callable[[np.random.Generator, str], list[tuple[str, list[Candidate]]]]] = {
  "controlled_context": context,
  "controlled_paraphrase": paraphrase,
  "controlled_questions": questions,
  "controlled_scales": scales,
}


def generate(task: str, split: str, count: int, seed: int) -> Iterator[Question]:
  """Yield `count` questions of a split of a task; the same for the same arguments.

  No two questions of a split have the same text.
  """
  rng = np.random.default_rng([seed, zlib.crc32(f"{task} {split}".encode())])
  texts: set[str] = set()
  while len(texts) < count:
    for text, candidates in TASKS[task](rng, split):
      if text not in texts and len(texts) < count:
        texts.add(text)
        yield Question(f"{split}-{len(texts)}", text, tuple(candidates))


def _read(task: str, path: epath.PathLike, split: str) -> Iterator[Question]:
  recipe = json.loads(epath.Path(path).read_text())
  return generate(task, split, recipe[task][split], recipe["seed"])


SPECS = tuple(
  Spec(
    name=task,
    reader=functools.partial(_read, task),
    by_split=True,
    version="1.0.0",
    files={split: (RECIPE,) for split in ("train", "dev", "test")},
    folders=("data/readers",),
    clean="answerable",
    published={},
    embedded=True,
    citation="generated by this project",
  )
  for task in TASKS
)
