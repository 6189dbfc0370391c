"""SemEval-2015, 2016 and 2017 Task 3, subtask A: rank the comments on a forum question."""

import dataclasses
import functools
import logging
import xml.etree.ElementTree as ET
from collections import namedtuple
from collections.abc import Iterator

from etils import epath

from as2jax.data.lines import ID, is_id, opened, quoted
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts, Spec
from as2jax.runtime.errors import InputError

log = logging.getLogger(__name__)

SKIP = "SubtaskA_Skip_Because_Same_As_RelQuestion_ID"


# The elements and attributes of one of the two XML forms: `question` is "" where the record itself is
# the question; of the `texts` in a comment the first that is not empty counts; `labels` are the values
# of the attribute `gold`, 1 for a good answer.
Form = namedtuple("Form", "question subject body comment texts question_id comment_id gold labels")
FORMS = {  # by the record's element
  "Question": Form(
    "", "QSubject", "QBody", "Comment", ("CBody", "CSubject"), "QID", "CID", "CGOLD",
    {"Good": 1, "Potential": 0, "Bad": 0, "Dialogue": 0, "Not English": 0, "Other": 0},
  ),
  "Thread": Form(
    "RelQuestion", "RelQSubject", "RelQBody", "RelComment", ("RelCText",), "RELQ_ID", "RELC_ID",
    "RELC_RELEVANCE2RELQ", {"Good": 1, "PotentiallyUseful": 0, "Bad": 0},
  ),
}  # fmt: skip


def iterate_semeval(path: epath.PathLike, *, repeated: bool = False) -> Iterator[Question]:
  """Yield the questions of a file in the form of 2015, or of 2016 and 2017.

  A question's text is its subject, a space and its body (CETE's code), runs of white space as one
  space. `Good` comments are positive, all others negative. A 2015 comment without a body is its
  subject; a comment without any text is skipped, with a warning.

  Args:
    path: the file.
    repeated: keeps the related questions that repeat one of another original question, which may
      stand in another file: the organisers mark them, and leave them out of subtask A.

  Raises InputError: anything but such a file with its gold labels; names the file, and the line
  or the question.

  """
  skipped: list[str] = []  # ids of comments
  seen: set[str] = set()
  for record in _records(path):
    try:
      question = _question(record, FORMS[record.tag], skipped)
      if question.id in seen:
        raise ValueError("has the id of an earlier question")
    except ValueError as error:
      name = record.get("QID") or record.get("THREAD_SEQUENCE", "")
      raise InputError(
        f"{path}: question {quoted(name)} {error}; get the official file, with gold labels"
      ) from error
    seen.add(question.id)
    if repeated or SKIP not in record.attrib:
      yield question
  if not seen:
    raise InputError(f"{path} holds no {' or '.join(FORMS)}: it is another file or another format")
  if skipped:
    log.warning(
      "%s: skipped %d comments without text (the first is %s)", path, len(skipped), skipped[0]
    )


def _records(path: epath.PathLike) -> Iterator[ET.Element]:
  """Yield the elements that hold a question each, one at a time."""
  with opened(path) as file:
    try:
      for _, element in ET.iterparse(file):
        if element.tag in FORMS:
          yield element
          element.clear()
    except (ET.ParseError, LookupError, ValueError) as error:  # or an encoding that nobody knows
      raise InputError(f"{path} is no well-formed XML ({error}); get it again") from error


def _question(record: ET.Element, form: Form, skipped: list[str]) -> Question:
  holder = _only(record, form.question) if form.question else record
  question_id = _attribute(holder, form.question_id)
  text = f"{_text(holder, form.subject)} {_text(holder, form.body)}".strip()
  if not text:
    raise ValueError("has no text")
  candidates: dict[str, Candidate] = {}
  for element in record.findall(form.comment):
    gold, comment_id = _attribute(element, form.gold), _attribute(element, form.comment_id)
    if gold not in form.labels:
      raise ValueError(f"has {form.gold} {quoted(gold)}; expected {', '.join(form.labels)}")
    if comment_id in candidates:
      raise ValueError(f"has {form.comment_id} {quoted(comment_id)} twice")
    comment = ""
    for tag in form.texts:
      comment = comment or _text(element, tag)
    candidates[comment_id] = Candidate(comment_id, comment, form.labels[gold])
    if not comment:
      skipped.append(comment_id)
  original = question_id.rpartition("_")[0] if form.question else ""  # of several related ones
  return Question(question_id, text, tuple(c for c in candidates.values() if c.text), original)


def _only(element: ET.Element, tag: str) -> ET.Element:
  children = element.findall(tag)
  if len(children) != 1:
    raise ValueError(f"has {len(children)} elements {tag} in {element.tag}; expected one")
  return children[0]


def _text(element: ET.Element, tag: str) -> str:
  """Return the characters directly in the only child `tag`, runs of white space as one space."""
  child = _only(element, tag)
  pieces = [child.text or "", *(inner.tail or "" for inner in child)]
  return " ".join("".join(pieces).split())


def _attribute(element: ET.Element, name: str) -> str:
  value = element.get(name, "")
  if name.endswith("ID") and not is_id(value):
    raise ValueError(f"has {name} {quoted(value)} in {element.tag}; {ID}")
  return value


TRAIN_2015 = "SemEval2015-CQA-QL-train.xml"
DEVEL_2015 = "SemEval2015-CQA-QL-devel.xml"
TEST_2015 = "SemEval2015-CQA-QL-test.xml"
PART1_2016, PART2_2016, DEV_2016, TEST_2016 = (
  f"SemEval2016-Task3-CQA-QL-{part}.xml" for part in ("train-part1", "train-part2", "dev", "test")
)
TEST_2017 = "SemEval2017-task3-English-test.xml"
# The organisers' edition of 2015 for the later years, without the questions that they use again:
# what CETE adds to both parts of 2016 (its Table 2: 4,879 questions, 36,198 comments).
AGAIN_2015 = tuple(
  f"SemEval2015-Task3-CQA-QL-{part}-reformatted-excluding-2016-questions-cleansed.xml"
  for part in ("train", "dev", "test")
)

SEMEVAL2015 = Spec(
  name="semeval2015",
  reader=iterate_semeval,
  version="1.0.0",
  files={"train": (TRAIN_2015,), "dev": (DEVEL_2015,), "test": (TEST_2015,)},
  folders=("semeval",),
  anywhere=True,
  other_names={TRAIN_2015: ("CQA-QL-train.xml",), DEVEL_2015: ("CQA-QL-devel.xml",)},
  clean="answerable",
  published={
    "train": {"all": Counts(2600, 16541)},
    "dev": {"all": Counts(300, 1645, 875)},
    "test": {"all": Counts(329, 1976, 997)},
  },
  licence="free for general research use (the README of its distribution)",
  citation="Nakov et al.: SemEval-2015 Task 3: Answer Selection in Community Question Answering",
)

# For who has no training file of 2015: the development file takes its place, and selection is by
# the development file of 2016, which shares 2 questions with it and 1 with the test file.
SEMEVAL2015_DEVEL = dataclasses.replace(
  SEMEVAL2015,
  name="semeval2015_devel",
  files={"train": (DEVEL_2015,), "dev": (DEV_2016,), "test": (TEST_2015,)},
  published={
    "train": SEMEVAL2015.published["dev"],
    "dev": {"all": Counts(244, 2440, 818)},
    "test": SEMEVAL2015.published["test"],
  },
)

SEMEVAL2016 = dataclasses.replace(
  SEMEVAL2015,
  name="semeval2016",
  files={"train": (PART1_2016, PART2_2016, *AGAIN_2015), "dev": (DEV_2016,), "test": (TEST_2016,)},
  published={
    "train": {"all": Counts(4879, 36198)},
    "dev": {"all": Counts(244, 2440, 818)},
    "test": {"all": Counts(327, 3270)},
  },
  licence="",
  citation="Nakov et al.: SemEval-2016 Task 3: Community Question Answering",
  official="all",
  average_recall=True,
)

# For who has no more of 2016. No test split: 2015's shares 4 questions with this training file.
SEMEVAL2016_PART2 = dataclasses.replace(
  SEMEVAL2016,
  name="semeval2016_part2",
  files={"train": (PART2_2016,), "dev": (DEV_2016,)},
  published={"dev": SEMEVAL2016.published["dev"]},
)

# The files as they are, repeated related questions kept: what the organisers count.
SEMEVAL2016_THREADS = dataclasses.replace(
  SEMEVAL2016_PART2,
  name="semeval2016_threads",
  reader=functools.partial(iterate_semeval, repeated=True),
  published={"train": {"all": Counts(670, 6700)}, "dev": {"all": Counts(500, 5000)}},
)

SEMEVAL2017 = dataclasses.replace(
  SEMEVAL2016,
  name="semeval2017",
  files=SEMEVAL2016.files | {"test": (TEST_2017,)},
  published=SEMEVAL2016.published | {"test": {"all": Counts(293, 2930)}},
  citation="Nakov et al.: SemEval-2017 Task 3: Community Question Answering",
)

SPECS = (
  SEMEVAL2015,
  SEMEVAL2015_DEVEL,
  SEMEVAL2016,
  SEMEVAL2016_PART2,
  SEMEVAL2016_THREADS,
  SEMEVAL2017,
)
