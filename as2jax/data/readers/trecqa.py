"""TrecQA (Wang et al. 2007), as the jacana release (Yao et al. 2013) and TANDA (Garg et al. 2020) have it."""

import dataclasses
import logging
import re
from collections.abc import Iterator

from etils import epath

from as2jax.data import user_files
from as2jax.data.lines import ID, Lines, is_id, quoted
from as2jax.data.record import Candidate, Question
from as2jax.data.source import Counts, Spec

log = logging.getLogger(__name__)

START = re.compile(r"<QApairs id='([^']*)'>")
END = "</QApairs>"
QUESTION, LABELS = "<question>", {"<positive>": 1, "<negative>": 0}
MARK = re.compile(rf"</?(question|positive|negative)>|{END}|{START.pattern}")


def iterate_trecqa(path: epath.PathLike) -> Iterator[Question]:
  """Yield the questions of a file of the jacana release: TRAIN, TRAIN-ALL, DEV or TEST.

  It looks like XML and is none: `&` and `<` stand for themselves. A block holds one line of tokens
  (tab-separated, in the Penn Treebank's spelling: see the rule `ptb`) and below it lines of
  annotation, which are not read. The text is the tokens joined by spaces. Questions without
  candidates are kept. A candidate's id is the question's with its place in the file.

  A candidate without text is skipped, with a warning: in the public TRAIN-ALL, answers longer
  than 60 tokens lost theirs. InputError, with file and line, for anything but such a file.
  """
  lines = Lines(path)
  skipped: list[int] = []  # lines at which such candidates begin
  seen: set[str] = set()
  question_id, text, candidates = "", "", []  # of the question that is open
  kind, first, inside = "", 0, []  # of the block that is open
  for number, line in lines:
    mark = line.strip()
    if kind and mark == kind.replace("<", "</"):
      tokens = " ".join("".join(inside[:1]).split())
      if (kind == QUESTION) == bool(text) or not (text or tokens):  # its text comes first, and once
        raise lines.error(f"question {quoted(question_id)} has no text first, or two", first)
      if kind == QUESTION:
        text = tokens
      else:
        candidates.append(Candidate(f"{question_id}-{len(candidates)}", tokens, LABELS[kind]))
        if not tokens:
          skipped.append(first)
      kind = ""
    elif kind and MARK.fullmatch(mark):
      raise lines.error(f"{mark} inside the {kind} of line {first}; end it first")
    elif kind:
      inside.append(line)
    elif text and mark == END:
      series = question_id.rpartition(".")[0]  # of dev and test: 32.1 and 32.2 ask about one thing
      yield Question(question_id, text, tuple(c for c in candidates if c.text), series)
      question_id, text, candidates = "", "", []
    elif question_id and mark in (QUESTION, *LABELS):
      kind, first, inside = mark, number, []
    elif not question_id and (start := START.fullmatch(mark)):
      question_id = start[1]
      if not is_id(question_id):
        raise lines.error(f"the id of <QApairs> is {quoted(question_id)}; {ID}")
      if question_id in seen:
        raise lines.error(f"question {quoted(question_id)} was already there; give it its own id")
      seen.add(question_id)
    elif mark:
      expected = f"{QUESTION}, {', '.join(LABELS)} or {END}" if question_id else "<QApairs id='1'>"
      raise lines.error(f"{quoted(line)} where {expected} should begin")
  if question_id or not seen:
    raise lines.error("the file ends inside a <QApairs>, or holds none; get it again")
  if skipped:
    told = "%s: skipped %d candidates without text (the first on line %d)"
    log.warning(told, path, len(skipped), skipped[0])


DEV = {"all": Counts(82, 1148, 222), "both": Counts(65, 1117)}
TEST = {"all": Counts(100, 1517, 284), "both": Counts(68, 1442)}

TRECQA = Spec(
  name="trecqa",
  reader=iterate_trecqa,
  version="1.0.0",
  files={"train": ("train.xml",), "dev": ("dev.xml",), "test": ("test.xml",)},
  folders=("trecqa/jacana", "trecqa", "", "jacana"),
  clean="both",
  official="both",
  published={"train": {"all": Counts(94, 4718, 348)}, "dev": DEV, "test": TEST},
  url="http://cs.jhu.edu/~xuchen/packages/jacana-qa-naacl2013-data-results.tar.bz2",
  sha256={
    "train.xml": "8c36007a23b754807344f08b52bc1baeaa6fa5dc85b8ad49f340cc8acc438b66",
    "dev.xml": "87f6ed5818fcb885dc8e8206c83cce658d7187118d1e093d841629a08d9291bc",
    "test.xml": "fb96ee795015c98299fe78f1e697eb9e74789b1db6b1bbc0203416dedc0c467f",
  },
  citation="Wang, Smith and Mitamura: What is the Jeopardy Model? (EMNLP 2007), as released with "
  "Yao et al.: Answer Extraction as Sequence Tagging with Tree Edit Distance (NAACL 2013)",
)

TRECQA_ALL = dataclasses.replace(
  TRECQA,
  name="trecqa_all",
  files=TRECQA.files | {"train": ("train2393.cleanup.xml",)},
  published={"train": {"all": Counts(1229, 53417, 6403)}, "dev": DEV, "test": TEST},
)

# TANDA's form of the clean edition; its training part is TRAIN-ALL in some copies and not in
# others, so that no counts of it are claimed. Its development questions are not jacana's: 69 of
# them have a positive and a negative, against jacana's 65.
TRECQA_JSON = dataclasses.replace(
  TRECQA,
  name="trecqa_json",
  reader=user_files.read_published,  # a question a line, with `candidates`
  version="1.0.1",  # context sentences have labels
  files={split: (f"{split}.jsonl",) for split in ("train", "dev", "test")},
  folders=("trecqa/json", "trecqa_json"),
  other_names={f"{split}.jsonl": (f"{split}-filtered.jsonl",) for split in ("dev", "test")},
  published={"dev": {"both": Counts(69, 1343, 243)}, "test": {"both": Counts(68, 1442, 248)}},
  url="",
)

SPECS = (TRECQA, TRECQA_ALL, TRECQA_JSON)
