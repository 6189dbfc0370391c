"""What the built wheel holds, and that it is light; people work with it in stories_test.py."""

import pathlib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_it_holds_each_job_once(wheel):
  names = zipfile.ZipFile(wheel).namelist()
  files = [*(ROOT / "configs").rglob("*.py"), *(ROOT / "configs").rglob("*.toml")]
  expected = {path.relative_to(ROOT / "configs").as_posix() for path in files}
  assert {n.removeprefix("as2jax/jobs/") for n in names if n.startswith("as2jax/jobs/")} == expected
  tops = {name.split("/")[0] for name in names}
  assert {top for top in tops if not top.endswith(".dist-info")} == {"as2jax"}
  modules = {p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.py")}
  assert modules <= set(names)
  assert {
    f"as2jax/report/templates/{name}" for name in ("page.css", "page.js", "runs.html.j2")
  } <= set(names)
  assert {n for n in names if n.endswith(".tsv")} == {
    p.relative_to(ROOT).as_posix() for p in (ROOT / "as2jax").rglob("*.tsv")
  }


def test_importing_it_is_light(installed):
  code = "import sys, as2jax; print('jax' in sys.modules, 'open_run' in dir(as2jax))"
  assert installed("-c", code).split() == ["False", "True"]
