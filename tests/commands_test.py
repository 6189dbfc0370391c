"""The `as2jax` command: its verbs, what they print where, mistakes in one line, files of a person's own."""

import csv
import errno
import io
import json
import logging
import os
import pathlib
import re
import subprocess
import sys

import advice_test
import pytest

from as2jax import main
from as2jax.commands import app, documents, process, train
from as2jax.config import jobs, overrides, words
from as2jax.data import tables, user_files
from as2jax.inference import reevaluate
from as2jax.runtime import files
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTIONS = [
  {"question": "who sat on the mat", "candidate": "a dog came"},
  {"question": "who sat on the mat", "candidate": "the cat sat on the mat"},
  {"question": "what is ice", "candidate": "frozen\twater\nis ice"},
]


@pytest.fixture
def questions(tmp_path):
  """A file of questions."""
  path = tmp_path / "questions.jsonl"
  path.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
  return str(path)


def seconds(*arguments):
  """The CPU seconds of a process: other work on the machine does not count."""
  before = os.times()
  subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, capture_output=True)
  after = os.times()
  return after.children_user + after.children_system - before.children_user - before.children_system


def test_help_and_import_are_fast_and_need_no_jax():
  assert min(seconds("-m", "as2jax", "--help") for _ in range(3)) <= 0.4
  assert min(seconds("-c", "import as2jax") for _ in range(3)) <= 0.3
  code = "import sys; from as2jax.commands import app; app.run(['--help']); print(*sys.modules)"
  modules = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
  assert not {"jax", "numpy", "rich", "transformers"} & set(modules)


VERBS = "train rank index search evaluate compare report explain export serve".split()


@pytest.mark.parametrize("verb", [*VERBS, "data check", "lab sweep"])
def test_each_verb_has_examples(verb, capsys):
  assert app.run([*verb.split(), "--help"]) == 0
  assert f"  as2jax {verb} " in capsys.readouterr().out.split("Examples:")[1]


@pytest.mark.parametrize(
  "arguments, parts",
  [
    (["train"], ["name a job", "--recipe=fast"]),
    (["train", "wikiqa_triplet:sample"], ["folder is missing", "-o runs/x"]),
    (["train", "wikiqa_triplet", "-o", "x", "--zebra"], ["--zebra", "as2jax train --help"]),
    (
      ["train", "wikiqa_triplet", "-o", "x", "--set", "epochs=1,2"],
      ["lab sweep --grid takes several"],
    ),
    (["train", "--recipe=triplet", "-o", "x"], ["--train=FILE"]),
    (["train", "--recipe=zebra", "--train=x", "-o", "x"], ["name one recipe of fast, accurate"]),
    (["rank", ".", "x.csv"], ["x.csv does not exist"]),
    (["serve", "../x"], ["../x is no run's folder, and no published model"]),
    (["rank", "nowhere", "x", "-o", "x.xml"], ["--output=x.xml", ".parquet, .csv, .tsv"]),
    (
      ["rank", "nowhere", "x", "--columns", "zebra=x"],
      ["'zebra' with 'x' is no FIELD=COLUMN", "question, candidate"],
    ),
    (["evaluate", "nowhere"], ["nowhere holds no run"]),
    (["lab", "sweep", "-o", "x"], ["a sweep file, or --base=JOB"]),
  ],
)
def test_a_mistake_is_one_line(arguments, parts, capsys, monkeypatch, tmp_path):
  monkeypatch.chdir(tmp_path)
  if arguments[0] == "evaluate":  # in this process signals stay as they are
    monkeypatch.setattr("as2jax.commands.process.begin_run", lambda: None)
  assert app.run(arguments) == 2
  captured = capsys.readouterr()
  assert captured.out == "" and captured.err.startswith("as2jax: ")
  assert captured.err.count("\n") == 1
  for part in parts:
    assert part in captured.err, captured.err
  assert set(advice_test.wrong(captured.err, " ".join(arguments[:2]))) <= set(arguments)
  assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_line_wherever_it_is_noticed(monkeypatch, capsys, tmp_path):
  def fail(*_):
    raise OSError(errno.ENOSPC, "no room")

  monkeypatch.setattr("os.fsync", fail)
  file = tmp_path / "status.json"
  monkeypatch.setattr("as2jax.config.jobs.names", lambda: files.write_whole(file, "{}"))
  assert app.run(["list", "jobs"]) == 2
  error = capsys.readouterr().err
  assert error.startswith(f"as2jax: {file} cannot be written (no room): make room")
  assert error.count("\n") == 1 and not list(tmp_path.iterdir())


def test_what_we_log_is_shown_and_what_libraries_do_is_not(capsys):
  def work():
    for name in ("as2jax.data.source", *process.CHATTY):
      logging.getLogger(name).info("%s: downloading", name)

  assert process.guarded(work) == 0
  assert capsys.readouterr().err == "as2jax.data.source: downloading\n"


def test_an_error_of_ours_is_one_line_with_its_place(monkeypatch, capsys):
  monkeypatch.setattr("as2jax.config.jobs.names", lambda: 1 / 0)
  assert app.run(["list", "jobs"]) == 1
  error = capsys.readouterr().err
  assert error.startswith("as2jax: internal error: ZeroDivisionError") and error.count("\n") == 1
  assert "(as2jax/commands/train.py:" in error and "AS2JAX_TRACEBACK=1" in error


def resolved(*settings, job="wikiqa_triplet:sample", **options):
  """The config of a command line of `train`."""
  arguments = {"seeds": "", "recipe": "", "files": {}} | options
  return train.resolve(job, "runs/x", list(settings), **arguments)[0]


def test_seeds_are_a_number_or_a_list():
  assert resolved(seeds="3").seeds == (0, 1, 2)
  assert resolved(seeds="0,4").seeds == (0, 4) and resolved(seeds="4,").seeds == (4,)
  for wrong in ("0", "a", "1.5", ",", "1,1", "-1,"):
    with pytest.raises(InputError, match="give their number"):
      overrides.seeds_of(wrong)


def test_own_files_take_the_place_of_a_jobs_data():
  config = resolved(job="", recipe="triplet:minilm", files={"train": "a.tsv", "dev": "b.tsv"})
  data = config.data
  assert (data.name, data.train, data.dev, data.test) == ("files", "a.tsv", "b.tsv", "")
  assert config.model.name == "triplet" and config.encoder.pretrained.startswith("package:")
  assert (data.holdout, config.evaluation.splits) == (0.0, ("dev",))
  alone = resolved(job="", recipe="crossencoder", files={"train": "a.tsv", "test": "c.tsv"})
  assert alone.data.holdout == 0.1 and alone.evaluation.splits == ("heldout", "test")
  files = {"train": "a.tsv", "dev": "b.tsv"}
  asked = resolved("data.holdout=0.2", job="", recipe="cassie", files=files)
  assert asked.data.holdout == 0.2
  job = resolved(job="trecqa_triplet:minilm", files={"train": "a.tsv", "dev": "b.tsv"})
  assert job.data.name == "files" and job.data.rules == () and job.model.name == "triplet"


def test_pairs_are_trained_by_the_in_batch_softmax_and_evaluated_over_one_pool(tmp_path):
  pairs, triples, labelled = (tmp_path / name for name in ("pairs.csv", "triples.csv", "faq.csv"))
  pairs.write_text("Question;Answer\nwhy;so\n")
  triples.write_text("anchor,positive,negative_1\nwhy,so,no\n")
  labelled.write_text("question,answer,label\nwhy,so,1\n")

  def kinds(recipe, file, split="train"):
    config = resolved(job="", recipe=recipe, files={"train": "", split: str(file)})
    return config.model.name, config.loss.name, config.evaluation.task

  in_batch = ("in_batch_softmax", "retrieve")
  for file in (pairs, triples):
    assert kinds("fast", file) == ("biencoder", *in_batch)
    assert [kinds("bm25", file, split)[2] for split in ("train", "dev")] == ["retrieve"] * 2
  assert kinds("triplet", pairs) == ("biencoder", *in_batch)
  assert kinds("triplet", triples) == ("triplet", "triplet", "rerank")
  assert kinds("accurate", triples) == ("crossencoder", "list_softmax", "rerank")
  assert kinds("fast", labelled) == ("biencoder", "list_softmax", "rerank")
  with pytest.raises(InputError, match="crossencoder learns from wrong ones: take the recipe fast"):
    kinds("accurate", pairs)
  small, other = (
    resolved(*settings, job="", recipe="fast", files={"train": str(pairs)})
    for settings in ((), ("encoder.pretrained=bert-large-uncased",))
  )
  assert (small.encoder.pretrained, small.optimizer.rate) == (words.MINILM, 1e-4)
  assert (other.encoder.pretrained, other.optimizer.rate) == ("bert-large-uncased", 2e-5)
  assert small.data.holdout == 0.1 and small.select == "mrr"
  alone = resolved(job="", recipe="bm25", files={"train": "", "dev": str(pairs), "test": ""})
  assert (alone.evaluation.task, alone.evaluation.splits) == ("retrieve", ("dev",))


def test_a_test_file_alone_does_for_rankers_of_words_that_count_nothing():
  words = resolved(job="", recipe="bm25", files={"test": "c.tsv"})
  assert (words.data.holdout, words.evaluation.splits) == (0.0, ("test",))
  for recipe in ("mean:minilm", "glove", "idf_overlap", "triplet:minilm"):
    with pytest.raises(InputError, match="there is only test: give a file for `train`, too"):
      resolved(job="", recipe=recipe, files={"test": "c.tsv"})


def test_rank_prints_or_writes_every_candidate(
  finished_run, questions, tmp_path, capsys, monkeypatch
):
  run = str(finished_run("bm25"))
  assert app.run(["rank", run, questions, "--format=json"]) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [row["rank"] for row in rows] == [1, 2, 1]
  assert rows[0]["candidate"] == "the cat sat on the mat" and rows[0]["score"] > rows[1]["score"]
  assert app.run(["rank", run, questions, "--top=1"]) == 0  # for people, on a pipe, too
  text = capsys.readouterr().out
  assert text.splitlines()[0] == "who sat on the mat" and "dog" not in text
  target = tmp_path / "new" / "ranked.jsonl"
  for form, printed in ("text", [f"written: {target} (2 questions)"]), ("json", rows):
    capsys.readouterr()
    assert app.run(["rank", run, questions, "-o", str(target), f"--format={form}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines if form == "text" else list(map(json.loads, lines))) == printed
    assert [json.loads(line) for line in target.read_text().splitlines()] == rows
  piped = io.TextIOWrapper(io.BytesIO(pathlib.Path(questions).read_bytes()))
  monkeypatch.setattr("sys.stdin", piped)
  capsys.readouterr()
  assert app.run(["rank", run, "--format=json"]) == 0
  assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
  for nothing in (b"", b"\n \r\n"):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(nothing)))
    assert app.run(["rank", run]) == 2
    assert capsys.readouterr().err.startswith("as2jax: standard input is empty: name a file")


EVIL = "café \x1b[31m\u202e€😀"
SEEN = r"caf\u00e9 \u001b[31m\u202e\u20ac\ud83d\ude00"
STREAMS = [  # environment, what the shell appends -> status, words on standard output and on error
  ("", "{run} {file} <&-", 0, "cat sat", ""),
  ("", "{run} <&-", 2, "", "standard input is empty: name a file"),
  ("", "{run} {file} >&-", 0, "", "standard output is closed"),
  ("", "{run} {file}.none 2>&-", 2, "", ""),
  ("", "{run} {file} >/dev/full", 2, "", "standard output, or a file, cannot be written"),
  ("", "{run} {file} | true; exit ${{PIPESTATUS[0]}}", 1, "", ""),
  ("PYTHONIOENCODING=ascii", "{run} {file}", 0, SEEN, ""),
  ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", "{run} {file} --format=json", 0, SEEN, ""),
]


@pytest.mark.parametrize("setting, shell, status, out, error", STREAMS)
def test_standard_streams_may_be_closed_full_or_of_another_encoding(
  setting, shell, status, out, error, finished_run, tmp_path
):
  file = tmp_path / "q.jsonl"
  file.write_text(
    "".join(json.dumps({**row, "x": EVIL, "question": EVIL}) + "\n" for row in QUESTIONS)
  )
  command = shell.format(run=finished_run("bm25"), file=file)
  line = f"{setting} {sys.executable} -m as2jax rank {command}"
  done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == status and out in done.stdout and error in done.stderr, done
  assert bool(done.stdout) == bool(out) and "Traceback" not in done.stderr, done


def test_nothing_that_a_terminal_obeys_is_printed(finished_run, questions, capsys):
  code = set(
    map(chr, [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
  )
  row = {"question": "cat", "candidate": "".join(sorted(code)) + "\nش\u200f"}
  pathlib.Path(questions).write_text(json.dumps(row) + "\n")
  for form in ("text", "json"):
    assert app.run(["rank", str(finished_run("bm25")), questions, f"--format={form}"]) == 0
    out = capsys.readouterr().out
    assert code & set(out) == {"\n"} and "ش\u200f" in out
  assert json.loads(out)["candidate"] == row["candidate"]
  assert app.run(["train", "\x1b[2J", "-o", "x"]) == 2 and "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["rank", "data convert"])
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_for_excel_no_cell_is_a_formula(verb, ending, finished_run, tmp_path, capsys):
  source, target = tmp_path / "faq.csv", tmp_path / f"new{ending}"
  cells = ["=1+1", "+1+1", "-1-1", "@SUM(A1)", "\t=1", "\r=1", "-1.5", "+1,5", "a=b", "'x"]
  source.write_text(
    "question;candidate;=x\n" + "".join(f'"{c}";"c{i}";{i}\n' for i, c in enumerate(cells))
  )
  words = [*verb.split(), *[str(finished_run("bm25"))] * (verb == "rank"), str(source)]
  into = ["-o", str(target)] if verb == "rank" else [str(target)]
  assert app.run([*words, *into]) == 0 and not target.read_text().startswith("\ufeff")
  assert [row[1]["question"] for row in tables.open_table(target).rows] == cells
  assert app.run([*words, *into, "--excel"]) == 0
  text = target.read_bytes().decode()
  assert (
    text.startswith("\ufeffquestion_id" + {".csv": ";", ".tsv": "\t"}[ending]) and "'=x" in text
  )
  found = [row[1]["question"] for row in tables.open_table(target).rows]
  assert found == [f"'{cell}" for cell in cells[:6]] + cells[6:]
  assert app.run([*words, *into[:-1], str(tmp_path / "x.jsonl"), "--excel"]) == 2
  assert "--excel is for a file that ends in .csv or .tsv" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["jobs", "recipes", "words", "models", "encoders"])
def test_what_is_listed_has_a_name_and_a_line(kind, capsys):
  assert app.run(["list", kind, "--format=json"]) == 0
  rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert len(rows) > 5 and all(row["name"] and row["about"] for row in rows)
  alike = kind == "encoders"  # where BERT and RoBERTa are one class
  assert len({row["about"] for row in rows}) == len(rows) - alike
  assert app.run(["list", kind]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == [row["name"] for row in rows]


def test_the_version_is_told_and_lists_are_read_in_any_locale():
  for module in ("as2jax", "as2jax.main"):
    command = [sys.executable, "-m", module, "--version"]
    assert subprocess.check_output(command, cwd=ROOT) == b"0.1.0\n"
  ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
  command = [sys.executable, "-m", "as2jax", "list", "models"]
  subprocess.run(command, cwd=ROOT, env=os.environ | ascii_alone, check=True)


def test_keys_are_those_of_the_job(capsys):
  assert app.run(["list", "keys", "wikiqa_cassie", "--format=json"]) == 0
  rows = {row["key"]: row["value"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
  assert rows["model.epsilon"] == 0.1 and rows["seeds"] == [0, 1, 2]


def test_an_index_is_made_and_searched(finished_run, tmp_path, capsys, monkeypatch):
  run, folder = str(finished_run("bm25")), str(tmp_path / "faq.index")
  documents = tmp_path / "answers.jsonl"
  rows = [{"id": "a", "text": "the cat sat on the mat"}, {"id": "b", "answer": "a dog came"}]
  documents.write_text("".join(json.dumps(row) + "\n" for row in rows))
  assert app.run(["index", run, str(documents), "-o", folder]) == 0
  assert "2 documents" in capsys.readouterr().out
  assert app.run(["search", folder, "which dog came", "--top=1", "--format=json"]) == 0
  (row,) = map(json.loads, capsys.readouterr().out.splitlines())
  assert (row["id"], row["text"], row["rank"]) == ("b", "a dog came", 1)
  assert app.run(["search", f"{folder}.none", "which dog came"]) == 2
  assert "is no index (no index.json): as2jax index or Ranker" in capsys.readouterr().err
  for question in ("", " "):
    assert app.run(["search", folder, question]) == 2
    assert f"the question is {question!r}: give a text" in capsys.readouterr().err
  documents.write_text(json.dumps(rows[0]) + "\n")
  assert app.run(["index", run, str(documents), "-o", folder]) == 2
  assert "give another folder, or append to it in Python" in capsys.readouterr().err
  typed = io.BytesIO(b"which dog came\n\nwho sat on the mat\n")
  monkeypatch.setattr("sys.stdin", io.TextIOWrapper(typed))
  assert app.run(["search", folder, "--top=1"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split("  ")[-1] for line in lines] == ["a dog came", "the cat sat on the mat"]


def test_a_run_without_vectors_indexes_nothing(finished_run, tmp_path, capsys):
  run, file = str(finished_run("crossencoder")), tmp_path / "documents.txt"
  file.write_text("the cat sat on the mat\n")
  assert app.run(["index", run, str(file), "-o", str(tmp_path / "x")]) == 2
  message = capsys.readouterr().err.splitlines()[-1]
  assert message.startswith(f"as2jax: {run} cannot index documents: crossencoder has no vectors")
  assert not (tmp_path / "x").exists()


def test_the_advice_of_a_message_is_followed_as_it_is_given(tmp_path, capsys, monkeypatch):
  """Of a verb and of as2jax.main: what the message says to add makes the same command go on."""
  monkeypatch.setattr("as2jax.commands.process.begin_run", lambda *arguments, **options: None)
  monkeypatch.chdir(tmp_path)
  pathlib.Path("faq.csv").write_text("ask,answer,label\nwhy,so,1\nwhy,no,0\nwho,,0\nhow,by,?\n")
  own, data = str(ROOT / "configs" / "own.py"), "--config.data"
  verb = (["train", "--recipe=bm25", "--test=faq.csv", "-o", "runs/x"], app.run)
  flags = [f"--config={own}:bm25", "--workdir=runs/y", f"{data}.test=faq.csv"]
  flags += ["--config.evaluation.splits=test"]

  def main_run(arguments):
    return process.guarded(lambda: main.main(arguments), words=process.in_words_of_main)

  for arguments, run in (verb, (flags, main_run)):
    for advice in (r"(--\S*columns[ =]question=)COLUMN", r"leave them out: (--\S+)"):
      assert run(arguments) == 2
      added = re.search(advice, capsys.readouterr().err)[1].removesuffix(")")
      if added.endswith("question="):
        added += "ask"
      arguments = [*arguments, *added.split()]
    assert run(arguments) == 0, capsys.readouterr().err
  capsys.readouterr()
  assert app.run(["train", "wikiqa_baseline:word_overlap,sample", "-o", "runs/x"]) == 2
  error = capsys.readouterr().err  # in the options of the verb
  assert f"another folder, or repeat that run with `as2jax train {tmp_path}/runs/x`" in error
  assert "--workdir" not in error and "--config" not in error


OWN = [
  {"ask": "who sat", "reply": "a\tdog\ncame", "good": "no", "team": "x"},
  {"ask": "who sat", "reply": 'the "cat" sat', "good": "yes", "team": "y"},
  {"ask": "what is ice", "reply": "frozen water", "good": "1.0", "team": "z"},
  {"ask": "what is ice", "reply": "warm, as we know", "good": "false", "team": ""},
]
MAPPED = "--columns=question=ask,candidate=reply,label=good"


@pytest.fixture
def own(tmp_path):
  """A file of one's own, with columns of other names."""
  path = tmp_path / "faq.csv"
  with path.open("w", newline="", encoding="utf-8-sig") as file:
    writer = csv.DictWriter(file, list(OWN[0]), delimiter=";")
    writer.writeheader()
    writer.writerows(OWN)
  return str(path)


def test_rank_maps_columns_and_carries_the_others(finished_run, own, tmp_path, capsys):
  run = str(finished_run("bm25"))
  for suffix in (".csv", ".tsv", ".jsonl"):
    target = str(tmp_path / f"ranked{suffix}")
    assert app.run(["rank", run, own, "-o", target, MAPPED]) == 0
    actual = user_files.read(target, labelled=False)
    kept = {(row["candidate"], row["team"], row["good"]) for row in user_files.rows(actual)}
    assert kept == {(row["reply"], row["team"], row["good"]) for row in OWN}
  again = str(tmp_path / "again.jsonl")  # a ranking is ranked again
  assert app.run(["rank", run, target, "-o", again]) == 0
  with open(again) as file:
    rows = list(map(json.loads, file))
  assert {row["rank"] for row in rows} == {1, 2} and all(row["input_rank"] for row in rows)
  capsys.readouterr()


def test_own_files_have_a_card(own, capsys, tmp_path):
  assert app.run(["data", "check", own, MAPPED, "--format=json"]) == 0
  card = json.loads(capsys.readouterr().out)
  counts = card["splits"]["faq"]["question_filters"]["all"]
  assert counts == {"questions": 2, "pairs": 4, "positives": 2}
  other = tmp_path / "dev.jsonl"
  rows = [{"question": "who sat", "candidate": "I"}, {"question": "x", "candidate": ""}]
  other.write_text("".join(json.dumps(row) + "\n" for row in rows))
  assert app.run(["data", "convert", own, str(tmp_path / "train.tsv"), MAPPED]) == 0
  capsys.readouterr()
  arguments = ["data", "check", str(tmp_path / "train.tsv"), str(other)]
  assert app.run(arguments) == 2
  assert "2 rows, of these 1 without" in capsys.readouterr().err
  assert app.run([*arguments, "--drop"]) == 0
  text = capsys.readouterr().out
  for part in (
    "1 question texts of dev stand in train",
    "2 rows, of these 1 without",
    "dev: no labels",
    "50.00%",
  ):
    assert part in text


def test_the_file_that_is_read_is_not_written(finished_run, own, tmp_path, capsys):
  content = pathlib.Path(own).read_bytes()
  other = tmp_path / "other.csv"
  other.symlink_to(own)
  run = str(finished_run("bm25"))
  for target in (own, str(other), f"{tmp_path}/./faq.csv"):
    for arguments in (["data", "convert", own, target], ["rank", run, own, "-o", target]):
      assert app.run([*arguments, MAPPED]) == 2
      assert f"={target} is the file that is read: name another" in capsys.readouterr().err
  config = jobs.of_run(f"{run}/config.json").unlock()
  config.predict.input = config.predict.output = own
  with pytest.raises(InputError, match="predict.output=.* is the file that is read"):
    reevaluate.predict(config, run)
  assert pathlib.Path(own).read_bytes() == content


def test_a_table_of_documents(tmp_path, caplog):
  path = tmp_path / "answers.csv"
  path.write_text('number,reply\n7,"a, b"\n8,c\n')
  assert documents.read(str(path), "text=reply,id=number") == (["7", "8"], ["a, b", "c"])
  path.write_text("number,reply\n7,b\n8,c\n\n9,b\n10,d\n")
  assert documents.read(str(path), "text=reply,id=number", drop=True)[1] == ["b", "c", "d"]
  path.write_text("number,reply\n7,b\n8,c\n9,b\n10,\n")
  assert documents.read(str(path), "text=reply,id=number", drop=True) == (["7", "8"], ["b", "c"])
  assert f"{path}: 1 document(s) have no text, 1 repeat one: which are left out" in caplog.text
  with pytest.raises(InputError, match=r"answers.csv:5: 1 document\(s\) have no text; .*drop=True"):
    documents.read(str(path), "text=reply")
  with pytest.raises(InputError, match='there is no column text .*columns={"text": "COLUMN"}'):
    documents.read(str(path), "id=number")
  path.write_text("number,reply\n7,b\n8,c\n7,b\n")
  assert documents.read(str(path), "text=reply,id=number", drop=True) == (["7", "8"], ["b", "c"])
  with pytest.raises(InputError, match="answers.csv:4: line 2 has the id '7', too"):
    documents.read(str(path), "text=reply,id=number")
  path.write_text("number,reply\n7,b\n,c\n")
  with pytest.raises(InputError, match="some documents have an id and some have none"):
    documents.read(str(path), "text=reply,id=number")
  path.write_text("number,reply\n7,b\n8,c\n7,d\n")
  with pytest.raises(InputError, match="answers.csv:4: line 2 has the id '7', too"):
    documents.read(str(path), "text=reply,id=number", drop=True)


def test_the_list_says_which_splits_are_here(tmp_path, capsys):
  (tmp_path / "wikiqa").mkdir()
  (tmp_path / "wikiqa/WikiQA-test.tsv").touch()
  where = [f"--root={tmp_path}", f"--cache={tmp_path / 'cache'}"]
  assert app.run(["data", "list", *where]) == 0
  told = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
  assert told["wikiqa"] == "here: test; not here: WikiQA-train.tsv, WikiQA-dev.tsv"
  assert told["sample"] == "here" and told["trecqa_json"].startswith("not here: train.jsonl")
