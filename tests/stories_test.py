"""Four people with the installed wheel: an engineer, the keeper of a FAQ, a student, an impatient one."""

import csv
import json
import os
import pathlib
import re
import signal
import time

import pytest
import tiny

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parent.parent
README, SAMPLE = ROOT / "README.md", ROOT / "as2jax/data/readers/sample/sample-train.tsv"
GUIDE = ROOT / "as2jax/models/README.md"
SETTINGS, SHIPPING, CARD = (
  'Open the "settings",\nchoose security, and reset the password.',
  "We ship within three days.",
  "You may pay by card.",
)
FAQ = [
  ("how do I reset my password", SETTINGS, "yes", "web"),
  ("how do I reset my password", SHIPPING, "no", "ops"),
  ("when will my parcel arrive", SHIPPING, "yes", "ops"),
  ("when will my parcel arrive", CARD, "no", "pay"),
  ("can I pay by card", CARD, "yes", "pay"),
  ("can I pay by card", SETTINGS, "no", "web"),
]
JSON = "--format=json"
MAPPED = "--columns=question=ask,candidate=reply,label=good"
TINY = "encoder.pretrained={}"
LONGEST = 280.0  # seconds for one command; most take a few


@pytest.fixture
def faq(installed):
  """The FAQ as a spreadsheet writes it: semicolons, quotation marks, a byte-order mark."""
  with open(installed.folder / "faq.csv", "w", newline="", encoding="utf-8-sig") as file:
    writer = csv.writer(file, delimiter=";")
    writer.writerows([("ask", "reply", "good", "team"), *FAQ])
  return installed.folder


def lines(text):
  return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_an_engineers_faq(installed, faq):
  """Check, train, rank, compare, index, search: most of it by the base install; notebooks serve."""
  command = installed.script
  (card,) = lines(installed(command, "data", "check", "faq.csv", MAPPED, JSON, base=True))
  assert card["splits"]["faq"]["question_filters"]["all"]["positives"] == 3
  files = ["--train=faq.csv", "--dev=faq.csv", MAPPED, JSON]
  small = ["--set", "epochs=1", "--set", TINY.format(tiny.encoder_folder())]
  metrics = lines(installed(command, "train", "--recipe=triplet", *files, "-o", "runs/faq", *small))
  assert metrics[0]["metric"] == "map[files-clean/dev]"
  installed(command, "train", "--recipe=bm25", *files, "-o", "runs/bm25", base=True)
  rows = lines(installed(command, "compare", "runs/bm25", "runs/faq", "--split=dev", JSON))
  assert {row["system"] for row in rows} == {"runs/bm25", "runs/faq"}
  evaluated = lines(installed(command, "evaluate", "runs/faq", "--data=faq.csv", MAPPED, JSON))
  of_dev = {row["metric"]: row["mean"] for row in metrics}
  assert evaluated[0]["mean"] == pytest.approx(of_dev["map[files-clean/dev]"], abs=1e-6)

  installed(command, "rank", "runs/faq", "faq.csv", MAPPED, "-o", "ranked.csv", base=True)
  with open(faq / "ranked.csv", newline="") as file:
    ranked = list(csv.DictReader(file))
  actual = {(row["question"], row["candidate"], row["good"], row["team"]) for row in ranked}
  assert actual == set(FAQ)

  installed(command, "index", "runs/faq", "faq.csv", "--columns=text=reply", "-o", "all", base=True)
  answers = dict.fromkeys(reply for _, reply, _, _ in FAQ)
  (faq / "answers.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in answers))
  installed(command, "index", "runs/faq", "answers.jsonl", "-o", "faq.index", base=True)
  hits = lines(installed(command, "search", "faq.index", FAQ[0][0], "--top=3", JSON, base=True))
  of_pair = {(row["question"], row["candidate"]): float(row["score"]) for row in ranked}
  for hit in hits:
    if (FAQ[0][0], hit["text"]) in of_pair:
      assert hit["score"] == pytest.approx(of_pair[FAQ[0][0], hit["text"]], abs=1e-5)
  assert {hit["text"] for hit in hits} == set(answers)


def test_a_plain_faq_without_one_failure(installed):
  """Questions and answers as a spreadsheet has them, and the README's line: no labels, no settings."""
  folder, command = installed.folder / "faq", installed.script
  folder.mkdir()
  right = [line.split("\t") for line in SAMPLE.read_text().splitlines() if line.endswith("\t1")]
  pairs = [(cells[1], cells[5]) for cells in right][:20]
  pairs += [
    ("Wie geht das?", "Öffnen; dann\n„zurück“ 🙂"),
    ('who said "no"?', '"Ann", he said'),
    pairs[3],
  ]
  with open(folder / "faq.csv", "w", newline="", encoding="utf-8-sig") as file:
    csv.writer(file, delimiter=";").writerows([("Question", "Answer"), *pairs])
  (card,) = lines(installed(command, "data", "check", "faq/faq.csv", JSON, base=True))
  assert card["splits"]["faq"]["rows"]["repeated"] == [25]
  line = re.search(r"as2jax (train --recipe=fast --train=)faq.csv -o (\S+)", README.read_text())
  assert line and line[2] == "runs/faq"
  log = folder / "train.log"
  process = installed.start(
    command, *line[1].split()[:-1], "--train=faq/faq.csv", "-o", "faq/run", log=log
  )
  assert process.wait(2 * LONGEST) == 0, log.read_text()
  told = log.read_text()
  first = told.splitlines()[0]
  assert "biencoder, trained by in_batch_softmax" in first and "one pool of answers" in first
  count = len({question for question, _ in pairs})
  assert f"faq/faq.csv: pairs of question and right answer, {count} questions" in told
  assert told.index("\ncompiling") < told.index("after 0 epochs") < told.index("after 3 epochs")
  record = json.loads((folder / "run/results.json").read_text())
  assert record["data"]["splits"]["train"]["form"] == "pairs of question and right answer"
  assert record["metrics"]["mrr[files-gold/heldout]"]["questions"] == round(count / 10)
  config = json.loads((folder / "run/config.json").read_text())
  assert config["loss"]["name"] == "in_batch_softmax"
  (advised,) = re.findall(r"as2jax (index \S+) FILE -o", told)
  installed(command, *advised.split(), "faq/faq.csv", "-o", "faq/index", base=True)
  asked = "search", "faq/index", "Wie geht das", "--top=1", JSON
  hits = lines(installed(command, *asked, base=True))
  assert hits[0]["text"] == pairs[20][1]
  of_run = ["evaluate", "faq/run", "--data=faq/faq.csv", JSON]
  assert lines(installed(command, *of_run))[0]["metric"] == "mrr[faq-gold/test]"


def test_a_students_system(installed):
  """A system of her own, named module:Class, trained and used; a notebook compares one with others."""
  folder, command = installed.folder, installed.script
  (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
  (folder / "my_ranker.py").write_text(code)
  small = ["--set", "epochs=1", "--set", TINY.format(tiny.encoder_folder())]
  small += ["--set", "data.train_fraction=0.1", JSON]
  metrics = lines(installed(command, "train", "my_ranker.py:sample", "-o", "runs/mine", *small))
  assert any(row["metric"] == "map[sample-clean/test]" for row in metrics)
  config = json.loads((folder / "runs/mine/config.json").read_text())
  assert config["model"]["name"] == "my_ranker:LengthRanker"
  (folder / "asked.jsonl").write_text(
    '{"query": "what is ice", "candidates": ["water", "a stone"]}\n'
  )
  asked = "rank", "runs/mine", "asked.jsonl", "--allow-code"
  assert len(lines(installed(command, *asked, JSON))) == 2


def test_a_person_who_stops_and_goes_on(installed):
  """Ctrl-C while training and indexing; that the end is the same to the bit is in faults/stops.py."""
  folder, command = installed.folder, installed.script
  small = ["--set", TINY.format(tiny.encoder_folder()), "--set", "data.train_fraction=0.3"]
  train = ["train", "wikiqa_triplet:sample", *small, "--set", "epochs=8", "--set", "log.steps=1"]
  train += ["--set", "checkpoint.steps=1", JSON]
  whole = lines(installed(command, *train, "-o", "runs/whole"))
  text = _stopped(installed, [*train, "-o", "runs/x"], "after 1 epoch")
  assert "stopped by SIGINT" in text and "Traceback" not in text
  assert not (folder / "runs/x/results.json").exists()
  assert lines(installed(command, *train, "-o", "runs/x")) == whole

  documents = [f"document {i} about {i % 97}" for i in range(9000)]
  (folder / "documents.txt").write_text("\n".join(documents) + "\n")
  index = ["index", "runs/x", "documents.txt", "-o", "documents.index"]
  text = _stopped(installed, index, "encoded 4096 of 9000")
  assert "stopped by SIGINT" in text and "Traceback" not in text
  part = folder / "documents.index/part-000000"
  before = {path.name: path.stat().st_mtime_ns for path in part.iterdir()}
  installed(command, *index)
  assert {path.name: path.stat().st_mtime_ns for path in part.iterdir()} == before
  installed(command, *index[:-1], "whole.index")
  results = [
    lines(installed(command, "search", name, documents[4321], JSON))
    for name in ("documents.index", "whole.index")
  ]
  assert results[0] == results[1] and len(results[0]) == 10


def _stopped(installed, arguments, after):
  """What a command prints that is told to end, as by Ctrl-C at a terminal, once it printed `after`."""
  log = installed.folder / "stopped.log"
  process = installed.start(installed.script, *arguments, log=log)
  end = time.monotonic() + LONGEST
  try:
    while after not in log.read_text():
      assert process.poll() is None and time.monotonic() < end, log.read_text()
      time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    process.wait(LONGEST)
  finally:
    if process.poll() is None:
      os.killpg(process.pid, signal.SIGKILL)
  text = log.read_text()
  assert process.returncode == 130, text
  return text
