"""The project stays as small as it has become: whoever adds, removes.

A change that an issue allows to add raises a number here by the allowance that the issue names.
"""

import ast
import collections
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRODUCT = ("as2jax", "configs", "launch")
COUNTED = (".py", ".sh", ".js", ".css", ".j2", ".html", ".yaml", ".yml", ".toml")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LIMITS = {
  "product files": 234,
  "product lines": 41_560,
  "product statements": 24_247,
  "comprehensions per 1,000 statements": 47,
  "conditional expressions per 1,000 statements": 23,
  "test lines": 27_941,
  "tracked files": 608,
  "words of Markdown": 11_350,  # outside tables and code
}


def counted() -> dict[str, float]:
  """Count what git tracks."""
  listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
  if listed.returncode:
    pytest.skip("not a clone of the repository")
  files = [ROOT / name for name in listed.stdout.splitlines()]
  found = collections.Counter({"tracked files": len(files)})
  for path in files:
    if not path.exists():
      continue
    folder = path.relative_to(ROOT).parts[0]
    if path.suffix == ".md":
      text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
      lines = [line for line in text.splitlines() if not line.lstrip().startswith("|")]
      found["words of Markdown"] += len(" ".join(lines).split())
    elif folder == "tests" and path.suffix == ".py":
      found["test lines"] += path.read_text().count("\n")
    elif folder in PRODUCT and path.suffix in COUNTED:
      found["product lines"] += path.read_text().count("\n")
      if path.suffix == ".py":
        found["product files"] += 1
        for node in ast.walk(ast.parse(path.read_text())):
          found["product statements"] += isinstance(node, ast.stmt)
          found["comprehensions"] += isinstance(node, COMPREHENSIONS)
          found["conditional expressions"] += isinstance(node, ast.IfExp)
  for kind in ("comprehensions", "conditional expressions"):
    share = 1000 * found.pop(kind) / found["product statements"]
    found[f"{kind} per 1,000 statements"] = round(share)
  return found


def test_the_project_is_no_larger_than_it_has_been():
  found = counted()
  assert found.keys() == LIMITS.keys()
  over = {what: (found[what], limit) for what, limit in LIMITS.items() if found[what] > limit}
  assert not over, f"larger than allowed (found, limit): {over}"
