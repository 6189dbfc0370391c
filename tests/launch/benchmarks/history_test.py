"""The history of benchmarks: records by machine kind, and the table made from them."""

import json
import pathlib
import subprocess

import pytest

from as2jax.runtime.errors import InputError
from launch.benchmarks import history, rank

RESULT = {
  "sides": ["as2jax", "torch"],
  "busy": False,
  "notes": [],
  "as2jax": {"examples_per_second": 90.0, "share_of_peak": 0.5, "peak_flops": 2e11, "facts": {}},
  "torch": {"examples_per_second": 30.0, "ratio": 3.0, "ratio_of_each_block": [2.9, 3.0, 3.14159]},
}


def record(**changes):
  """A record of the row `encode`."""
  where = {"processor": "Made CPU", "cores": 2, "commit": "abc", "changed": False}
  where |= {"date": "2026-11-23", "versions": {}, "row": "encode", "flags": []}
  return {**where, **history.shortened(RESULT), **changes}


@pytest.fixture
def folder(tmp_path, monkeypatch):
  """An empty history and a README with its marks."""
  monkeypatch.setattr(history, "FOLDER", tmp_path / "history")
  monkeypatch.setattr(history, "README", tmp_path / "README.md")
  (tmp_path / "README.md").write_text(f"before\n{history.BEGIN}\nold\n{history.END}\nafter\n")
  return tmp_path


def test_records_are_kept_by_kind_of_machine(folder):
  assert history.add([record()]).name == "made-cpu-2.jsonl"
  history.add([record(commit="def")])
  history.add([record(processor="Other (R) CPU @ 2", cores=8)])
  assert [(r["processor"], r["commit"]) for r in history.records()] == [
    ("Made CPU", "abc"),
    ("Made CPU", "def"),
    ("Other (R) CPU @ 2", "abc"),
  ]
  assert history.records()[0]["sides"]["torch"]["blocks"] == [2.9, 3.0, 3.142]


def test_the_table_shows_the_newest_idle_record_of_a_commit(folder):
  history.add([record(), record(commit="def"), record(commit="busy", busy=True)])
  history.add([record(commit="dirty", changed=True)])
  assert history.main(["--write"]) == 0
  text = (folder / "README.md").read_text()
  assert (
    "| Made CPU, 2 cores | 90 sentences/s | 30 (torch) | 3.00 (2.90, 3.00, 3.14) | 50% |" in text
  )
  assert "def, 2026-11-23" in text and "abc" not in text
  assert "busy" not in text and "dirty" not in text
  assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text


def test_a_damaged_record_is_named(folder):
  file = history.add([record()])
  file.write_text(file.read_text() + '{"row": 1}\n')
  with pytest.raises(InputError, match=r"made-cpu-2.jsonl:2: no record of a benchmark"):
    history.records()


def test_an_unknown_row_is_refused_before_anything_runs(folder, capsys):
  assert history.main(["zebra"]) == 2
  assert "zebra: name rows of triplet" in capsys.readouterr().err


def test_a_benchmark_without_its_other_side_is_no_record(folder, monkeypatch):
  content = {**RESULT, "sides": ["as2jax"], "notes": ["PyTorch is not installed"]}

  def run(command, **_):
    file = next(word for word in command if word.startswith("--json=")).partition("=")[2]
    pathlib.Path(file).write_text(json.dumps(content))
    return type("Done", (), {"returncode": 0})

  monkeypatch.setattr(history.subprocess, "run", run)
  with pytest.raises(InputError, match="PyTorch is not installed"):
    history.measure("encode")
  content["sides"] = ["as2jax", "torch"]
  assert history.measure("encode", ["--blocks=1"])["flags"] == ["--system=encode", "--blocks=1"]


def test_a_failed_benchmark_is_named(folder, monkeypatch):
  row = history.Row("none", ("no_such_benchmark",), "ms")
  monkeypatch.setitem(history.ROWS, "encode", row)
  with pytest.raises(InputError, match="no_such_benchmark failed with status 1"):
    history.measure("encode")


def test_records_and_their_table_are_no_changes_of_what_is_measured(folder, monkeypatch):
  """So that rows which are run one after another all stand in the table."""
  monkeypatch.setattr(history, "ROOT", folder)
  git = ["git", "-c", "user.name=x", "-c", "user.email=x@x.example", "-C", str(folder)]
  (folder / "step.py").write_text("A = 1\n")
  for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
    subprocess.run([*git, *words], check=True)
  history.add([record()])
  history.write()
  assert not history.commit()[1]
  (folder / "step.py").write_text("A = 2\n")
  assert history.commit()[1]


def test_a_record_that_the_table_leaves_out_is_told(folder, monkeypatch, capsys):
  monkeypatch.setattr(history, "ROOT", folder)
  where = {key: record()[key] for key in ("processor", "cores", "commit", "date", "versions")}
  for changed, busy, told in ((True, True, "BUSY and uncommitted changes"), (False, False, "")):
    monkeypatch.setattr(history, "machine", lambda changed=changed: {**where, "changed": changed})
    measured = {"row": "encode", "flags": [], **history.shortened({**RESULT, "busy": busy})}
    monkeypatch.setattr(history, "measure", lambda *_, measured=measured: measured)
    assert history.main(["encode"]) == 0
    line = capsys.readouterr().out.strip()
    assert line.endswith(f": {told}, not for the table" if told else "made-cpu-2.jsonl")


def test_the_committed_readme_is_what_the_records_say():
  text = history.README.read_text(encoding="utf-8")
  inside = text.partition(history.BEGIN)[2].partition(history.END)[0]
  assert inside.strip() == history.table(history.records())


def test_ranking_states_how_many_times_as_fast_it_is():
  content = rank.result({"as2jax": [2.0, 4.0, 2.0], "other": [4.0, 4.0, 3.0]}, busy=False)
  assert content["as2jax"]["speed"] == 2.0 and content["other"]["ratio"] == 1.5
  assert content["other"]["ratio_of_each_block"] == [2.0, 1.0, 1.5]
