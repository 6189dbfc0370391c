"""SemEval-2015, 2016 and 2017 Task 3, subtask A: rank the comments on a forum question."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from absl import logging
from etils import epath

from as2jax.data.lines import ID, is_id, quoted
from as2jax.data.readers.xml_records import Element, XmlRecords
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts, Spec

SKIP = "SubtaskA_Skip_Because_Same_As_RelQuestion_ID"


@dataclasses.dataclass(frozen=True)
class Form:
  """The names of one of the two XML forms.

  Attributes:
    question, comment: the elements; `question` "" where the record itself is the question.
    subject, body: inside a question.
    texts: inside a comment, the first that is not empty counts.
    question_id, comment_id, gold: attributes.
    labels: the values of `gold`, 1 for a good answer.

  """

  question: str
  subject: str
  body: str
  comment: str
  texts: tuple[str, ...]
  question_id: str
  comment_id: str
  gold: str
  labels: Mapping[str, int]


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


def iterate_semeval(
  path: epath.PathLike, *, repeated: bool = False, skipped: list[int] | None = None
) -> Iterator[Question]:
  """Yield the questions of one file: the 2015 form, or that of 2016 and 2017 (full task, or subtask A alone).

  A question's text is its subject, a space and its body (CETE's code), runs of white space as one
  space. `Good` comments are positive, all others negative. A 2015 comment without a body is its
  subject; a comment without any text is skipped, with a warning.

  Args:
    path: the file.
    repeated: keeps the related questions that repeat one of another original question, which may
      stand in another file: the organisers mark them, and leave them out of subtask A.
    skipped: takes the lines of the skipped comments.

  Raises:
    InputError: anything but such a file with its gold labels; names file and line.

  """
  records = XmlRecords(path, FORMS)
  skipped = [] if skipped is None else skipped
  first_line: dict[str, int] = {}  # of each question
  for record in records:
    question = _question(record, FORMS[record.tag], records, skipped)
    if question.id in first_line:
      raise records.error(
        f"question {quoted(question.id)} was already on line "
        f"{first_line[question.id]}; give each question its own id",
        record.line,
      )
    first_line[question.id] = record.line
    if repeated or SKIP not in record.attributes:
      yield question
  if skipped:
    logging.warning(
      "%s: skipped %d comments without text (the first on line %d)", path, len(skipped), skipped[0]
    )


def _question(record: Element, form: Form, records: XmlRecords, skipped: list[int]) -> Question:
  holder = _only(record, form.question, records) if form.question else record
  question_id = _attribute(holder, form.question_id, records)
  subject, body = (_only(holder, tag, records).text for tag in (form.subject, form.body))
  text = f"{subject} {body}".strip()
  if not text:
    raise records.error(f"question {quoted(question_id)} has no text", holder.line)
  candidates: dict[str, Candidate] = {}
  for element in record.all(form.comment):
    comment = _comment(element, form, records)
    if comment.id in candidates:
      raise records.error(
        f"{form.comment_id} {quoted(comment.id)} occurs twice in question {quoted(question_id)}",
        element.line,
      )
    candidates[comment.id] = comment
    if not comment.text:
      skipped.append(element.line)
  return Question(question_id, text, tuple(c for c in candidates.values() if c.text))


def _comment(element: Element, form: Form, records: XmlRecords) -> Candidate:
  gold = _attribute(element, form.gold, records)
  if gold not in form.labels:
    raise records.error(
      f"{form.gold} is {quoted(gold)}; expected {', '.join(form.labels)} (a file without gold labels "
      "cannot be read)",
      element.line,
    )
  text = ""
  for tag in form.texts:
    text = text or _only(element, tag, records).text
  return Candidate(_attribute(element, form.comment_id, records), text, form.labels[gold])


def _only(element: Element, tag: str, records: XmlRecords) -> Element:
  children = element.all(tag)
  if len(children) != 1:
    problem = f"{len(children)} elements {tag} in {element.tag}; expected one"
    raise records.error(problem, element.line)
  return children[0]


def _attribute(element: Element, name: str, records: XmlRecords) -> str:
  value = element.attributes.get(name)
  if value is None:
    raise records.error(f"{element.tag} lacks the attribute {name}", element.line)
  if name.endswith("ID") and not is_id(value):
    raise records.error(f"{name} is {quoted(value)}; {ID}", element.line)
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
