"""Every README: its commands name what exists, its links lead somewhere, the root one is short."""

import doctest
import functools
import importlib
import importlib.util
import pathlib
import re
import shlex
import shutil

import numpy as np
import pytest
import tiny
import typer

import as2jax
from as2jax.commands import app
from as2jax.config import jobs as job_files
from as2jax.config import overrides
from as2jax.config import words as config_words
from as2jax.data import tables
from as2jax.data.dataset import SPECS
from as2jax.encoders import family as families
from as2jax.inference import serve
from as2jax.runtime import registry

ROOT = pathlib.Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("in_the_repository")
FOLDERS = ("as2jax", "configs", "launch", "tests")
READMES = [ROOT / "README.md"]
READMES += sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("README.md"))
PAGES = [*READMES, ROOT / "launch/tpu_vm.md", *sorted((ROOT / "configs/papers").glob("[a-z]*.md"))]
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


def commands(text):
  """The commands of the fenced bash blocks, as lists of words, with shell variables put in."""
  actual, variables = [], {}
  for block in re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S):
    joined = re.sub(r"\\\n\s*", " ", block)
    pending = ""
    for line in joined.splitlines():
      for name, value in variables.items():
        line = line.replace(f"${name} ", f"{value} ")
      if assigned := re.fullmatch(r"([A-Z])='(.*)'", line.strip()):
        variables[assigned[1]] = assigned[2]
        continue
      pending += line + "\n"
      try:
        words = shlex.split(pending, comments=True)
      except ValueError:  # a quoted argument goes on in the next line
        continue
      pending = ""
      if words:
        actual.append(words)
    assert not pending, f"quotes do not match: {pending}"
  return actual


def module_of(words):
  """What `python -m` of a command starts, or None."""
  for i, word in enumerate(words[:-1]):
    if word == "-m" and re.fullmatch(r"(?:.*/)?python3?", words[i - 1]):
      return words[i + 1]
  return None


COMMANDS = {
  str(path.relative_to(ROOT)): commands(path.read_text(encoding="utf-8")) for path in PAGES
}


config = functools.cache(job_files.load)  # resolves `configs/FILE.py:words`, each once


def test_the_commands_are_read():
  """So that no test below is empty."""
  every = sum(COMMANDS.values(), [])
  assert {"as2jax.main", "launch.benchmarks"} <= {module_of(words) for words in every}
  assert sum(words[0] == "as2jax" for words in every) >= 20
  assert sum(any(w.startswith("--config=") for w in words) for words in every) > 30


def test_what_we_read_and_speak_stands_on_tests():
  """Each name of the table is in the file of a test of its row, and nothing that we name is missing."""
  page = (ROOT / "as2jax/data/README.md").read_text(encoding="utf-8")
  table = page.partition("## What we read, what we speak")[2].partition("\n## ")[0]
  named = set()
  for line in table.strip().splitlines()[2:]:
    _, names, tests = line.strip("| ").split(" | ")
    sources = ""
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", tests):
      source = (ROOT / file).read_text(encoding="utf-8")
      assert f"\ndef {test}(" in source, f"{file} has no {test}"
      sources += source
    for name in re.findall(r"`([^`]+)`", names):
      assert name in sources, f"{name}: {tests} does not name it"
      named.add(name)
  service = (ROOT / "as2jax/inference/serve.py").read_text()
  paths = re.findall(r'@app\.\w+\("(/[\w/]+)"\)', service)
  assert {*tables.SUFFIXES, *families.transformers(), *serve.RERANK, *paths} <= named
  extras = {name for name in named if name.startswith(("hub:", "irds:"))}
  assert len(extras) == 4 and len(paths) > 6


def verb_of(words):
  """The verb of an `as2jax …` command with its arguments: (verb, words after it)."""
  actual, rest = typer.main.get_command(app.app), words[1:]
  while hasattr(actual, "commands"):
    rest = actual.meant(rest) if hasattr(actual, "meant") else rest
    assert rest and rest[0] in actual.commands, f"{' '.join(words)}: there is no such verb"
    actual, rest = actual.commands[rest[0]], rest[1:]
  return actual, rest


@pytest.mark.parametrize("name", NAMES)
def test_verbs_and_their_options_exist(name):
  for words in COMMANDS[name]:
    if words[0] != "as2jax":
      continue
    verb, rest = verb_of(words)
    options = {option for parameter in verb.params for option in parameter.opts}
    options |= {option for parameter in verb.params for option in parameter.secondary_opts}
    passed_on = verb.context_settings.get("allow_extra_args")
    for word in rest if not passed_on else ():
      if word.startswith("-") and word != "-":
        assert word.split("=")[0] in {*options, "--help"}, f"{name}: {verb.name} has no {word}"
    jobs = [word.removeprefix("--base=") for word in rest if word.startswith("--base=")]
    if verb.name in ("train", "compile") and rest and not rest[0].startswith(("-", "runs/")):
      jobs.append(rest[0])
    base = config(jobs[0]) if jobs else None
    keys = [rest[i + 1] for i, word in enumerate(rest) if word in ("--set", "--grid")]
    for key in keys if base else ():
      overrides.check_key(base, key.split("=")[0])


@pytest.mark.parametrize("name", NAMES)
def test_modules_and_scripts_exist(name):
  for words in COMMANDS[name]:
    module = module_of(words)
    if module and not module.startswith("pip"):
      spec = importlib.util.find_spec(module)
      assert spec is not None, f"{name}: there is no module {module}"
      if spec.submodule_search_locations is not None:  # a package
        assert importlib.util.find_spec(f"{module}.__main__"), f"{name}: -m {module} starts nothing"
    for word in words:
      if re.match(r"(as2jax|configs|launch|tests)/[\w/.]+\.(py|sh)\b", word):
        file = word.split(":")[0]
        assert (ROOT / file).is_file(), f"{name}: there is no file {file}"


@pytest.mark.parametrize("name", NAMES)
def test_configs_and_keys_exist(name):
  for words in COMMANDS[name]:
    paths = [w.split("=", 1)[1] for w in words if re.match(r"--(config|base)=", w)]
    paths += [w for w in words if re.match(r"configs/\w+\.py\b", w)]  # job.sh CONFIG DIR
    for path in paths:
      if path.startswith("rerun:"):
        path = "configs/wikiqa_triplet.py"  # the run that it names has such a config
      resolved = config(path)
      for word in words:
        if key := re.match(r"--config\.([\w.]+)=", word):
          overrides.check_key(resolved, key[1])


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
  path = ROOT / name
  for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
    if "://" not in target:
      assert (path.parent / target).exists(), f"{name}: the link {target} leads nowhere"


@pytest.mark.parametrize("name", NAMES)
def test_paths_and_modules_in_the_text_exist(name):
  """`as2jax/…`, `tests/….py` and `as2jax.module` in backquotes, without wildcards."""
  text = (ROOT / name).read_text(encoding="utf-8")
  for quoted in re.findall(r"`([^`\n]+)`", text):
    if re.fullmatch(r"(as2jax|configs|launch|tests)/[\w/]*(\.\w+)?", quoted):
      assert (ROOT / quoted).exists(), f"{name}: there is no {quoted}"
    if re.fullmatch(r"as2jax(\.[a-z_0-9]+)+", quoted):
      assert importlib.util.find_spec(quoted) is not None, f"{name}: there is no module {quoted}"


def test_the_root_readme_is_short():
  text = (ROOT / "README.md").read_text(encoding="utf-8")
  assert len(text.splitlines()) <= 120
  assert len(text.split()) <= 1100


def test_what_users_of_sentence_transformers_write_here_runs(finished_run, tmp_path, monkeypatch):
  """Each code on the right of the table, in its order; MiniLM's place is taken by a tiny encoder."""
  text = (ROOT / "as2jax/inference/README.md").read_text(encoding="utf-8")
  rows = re.findall(r"^\| (.*) \| (.*) \|$", text.split("### From sentence-transformers")[1], re.M)
  rows = rows[2 : next(i for i, (left, _) in enumerate(rows) if "save_pretrained" in left) + 1]
  monkeypatch.chdir(tmp_path)
  shutil.copytree(finished_run("triplet"), "runs/x")
  encoder = {"encoder.pretrained": tiny.encoder_folder()}
  monkeypatch.setitem(
    config_words.WORDS, "minilm", lambda one: one.update_from_flattened_dict(encoder)
  )
  texts = [f"the {what} sat on the mat" for what in ("cat", "dog", "ice", "cave", "sun", "tree")]
  lines = [f"who sat {place},{text}" for place, text in enumerate(texts)]
  pathlib.Path("faq.csv").write_text("\n".join(["question,answer", *lines]))
  names = {"as2jax": as2jax, "texts": texts, "query": texts[2], "queries": texts[:2]}
  names |= {"pairs": [(texts[2], text) for text in texts], "reranker": as2jax.load("runs/x")}
  gave = {}
  for _, right in rows:
    for code in re.findall(r"`(\w[^`]*[)])`", right):
      if code.startswith("SentenceTransformer"):
        continue
      name, _, value = code.rpartition(" = ") if re.match(r"\w+ = ", code) else ("", "", code)
      gave[code] = eval(value, names)
      names |= {name: gave[code]} if name else {}
  assert len(rows) == 12 and len(gave) == 14, list(gave)
  best = [hit.index for hit in gave["ranker.rank(query, texts, top_k=3)"]]
  assert best[0] == 2 == int(gave["ranker.predict(pairs)"].argmax())
  assert [hit.index for hit in gave["index.search(query, top_k=3, rerank=reranker)"]] == best
  encoded = gave["ranker.encode(texts)"]
  np.testing.assert_allclose(encoded[:2], gave["ranker.encode_query(queries)"], atol=1e-5)
  assert names["best"].source == str(tmp_path / "runs/faq")
  np.testing.assert_allclose(as2jax.load("exported").encode(texts), encoded, atol=1e-5)


def test_the_table_of_data_sets_names_every_data_set_and_no_other():
  rows = re.findall(r"^\| (`.*?) \|", (ROOT / "as2jax/data/README.md").read_text(), re.M)
  first = next(i for i, row in enumerate(rows) if row.startswith("`wikiqa`"))
  last = next(i for i, row in enumerate(rows) if row.startswith("`sample`"))
  named = [name for row in rows[first : last + 1] for name in re.findall("`(.*?)`", row)]
  assert sorted(named) == sorted(SPECS)


@pytest.mark.parametrize(
  "module",
  sorted({"as2jax.data.dataset", *(place.split(":")[0] for place in registry.MODELS.values())}),
)
def test_examples_run(module):
  failed, tried = doctest.testmod(importlib.import_module(module))
  assert tried and not failed
