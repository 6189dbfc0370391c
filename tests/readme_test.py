"""Every README: its commands name what exists, its links lead somewhere, the root one is short."""

import importlib.util
import pathlib
import re
import shlex

import pytest
import typer

from as2jax.commands import app
from as2jax.config import jobs as job_files
from as2jax.config import overrides
from as2jax.data.dataset import SPECS
from as2jax.experiments.papers import plan

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("as2jax", "configs", "launch", "tests")
READMES = [ROOT / "README.md"]
READMES += sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("README.md"))
PAGES = [*READMES, ROOT / "launch/tpu_vm.md"]
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


@pytest.fixture(scope="module")
def config():
  """Resolves `configs/FILE.py:words`, each once."""
  resolved = {}

  def load(path):
    if path not in resolved:
      resolved[path] = job_files.load(path)
    return resolved[path]

  return load


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
  monkeypatch.chdir(ROOT)


def test_the_commands_are_read():
  """So that no test below is empty."""
  modules = {module_of(words) for words in sum(COMMANDS.values(), [])} - {None}
  assert len(modules) >= 4
  assert len([w for w in sum(COMMANDS.values(), []) if w[0] == "as2jax"]) >= 20
  assert {"as2jax.main", "launch.benchmarks"} <= modules
  assert sum(any(w.startswith("--config=") for w in ws) for ws in sum(COMMANDS.values(), [])) > 30


def verb_of(words):
  """The verb of an `as2jax …` command with its arguments: (verb, words after it)."""
  actual, rest = typer.main.get_command(app.app), words[1:]
  while hasattr(actual, "commands"):
    rest = actual.meant(rest) if hasattr(actual, "meant") else rest
    assert rest and rest[0] in actual.commands, f"{' '.join(words)}: there is no such verb"
    actual, rest = actual.commands[rest[0]], rest[1:]
  return actual, rest


@pytest.mark.parametrize("name", NAMES)
def test_verbs_and_their_options_exist(name, config):
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
def test_configs_and_keys_exist(name, config):
  for words in COMMANDS[name]:
    paths = [w.split("=", 1)[1] for w in words if re.match(r"--(config|base)=", w)]
    paths += [w for w in words if re.match(r"configs/\w+\.py\b", w)]  # job.sh CONFIG DIR
    for path in paths:
      if path.startswith("configs/rerun.py"):
        path = "configs/wikiqa_triplet.py"  # the run that it names has such a config
      resolved = config(path)
      for word in words:
        if key := re.match(r"--config\.([\w.]+)=", word):
          overrides.check_key(resolved, key[1])


@pytest.mark.parametrize("name", NAMES)
def test_options_are_those_of_the_module(name):
  """Each --option of a command stands in the source of the module it starts, or of flags.py."""
  shared = (ROOT / "as2jax/main.py").read_text(encoding="utf-8")
  for words in COMMANDS[name]:
    module = module_of(words)
    if not module or not module.startswith(("as2jax", "launch")):
      continue
    origin = ROOT / module.replace(".", "/")
    origin = origin / "__main__.py" if origin.is_dir() else origin.with_suffix(".py")
    source = origin.read_text(encoding="utf-8")
    sources = [source, shared, *(p.read_text(encoding="utf-8") for p in _imported(source))]
    for word in words[words.index(module) :]:
      if option := re.match(r"--([a-z][a-z_-]*)(?:=|$)", word):
        stated = re.compile(rf'"(--)?{option[1]}"')
        assert any(map(stated.search, sources)), f"{name}: {module} has no option --{option[1]}"


def _options(verb):
  """Every option of a verb and of those below it."""
  options = {o for parameter in verb.params for o in (*parameter.opts, *parameter.secondary_opts)}
  return options.union(*map(_options, getattr(verb, "commands", {}).values()))


@pytest.mark.parametrize("name", NAMES)
def test_options_in_the_text_exist(name):
  """Each `--option` is one of a verb, or stands in the source of a launcher or of flags."""
  known = _options(typer.main.get_command(app.app))
  places = [*(ROOT / "launch").rglob("*.py"), *(ROOT / "launch").rglob("*.sh")]
  places += [ROOT / "as2jax/main.py", ROOT / "as2jax/commands/sweep.py"]
  sources = "".join(path.read_text(encoding="utf-8") for path in places)
  for option in re.findall(r"`--([a-z][a-z-]*)", (ROOT / name).read_text(encoding="utf-8")):
    stated = f"--{option}" in known or re.search(rf'--{option}\b|"{option}"', sources)
    assert stated, f"{name}: there is no option --{option}"


def _imported(source):
  """Files of the modules of ours that `source` imports by name."""
  for package, names in re.findall(
    r"^from ((?:as2jax|launch)[\w.]*) import ([\w, ]+)", source, re.M
  ):
    for module in (package, *(f"{package}.{n.split()[0]}" for n in names.split(","))):
      path = ROOT / (module.replace(".", "/") + ".py")
      if path.is_file():
        yield path


@pytest.mark.parametrize("name", NAMES)
def test_data_sets_and_tables_exist(name):
  for words in COMMANDS[name]:
    for word in words:
      if data := re.match(r"--config\.data\.name=(\w*)", word):
        value = data[1]
        assert value in {*SPECS, "all", "files", "asnq_files"}, f"{name}: no data set {value}"
    if words[:3] == ["as2jax", "data", "check"] and "." not in words[3]:
      assert words[3] in {*SPECS, "all"}, f"{name}: no data set {words[3]}"
    if words[:3] == ["as2jax", "lab", "paper"]:
      for word in words[3:]:
        if not word.startswith("-"):
          assert plan.load(word).rows


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
  assert len(text.splitlines()) <= 150
  assert len(text.split()) <= 1500


def test_the_root_readme_leads_to_every_other():
  """By links from README to README, or to a folder that holds one."""
  reached, waiting = set(), [ROOT / "README.md"]
  while waiting:
    path = waiting.pop()
    if path in reached:
      continue
    reached.add(path)
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
      linked = (path.parent / target).resolve()
      if linked.is_dir():
        linked /= "README.md"
      if linked.name == "README.md" and linked.is_file():
        waiting.append(linked)
  missing = [str(path.relative_to(ROOT)) for path in READMES if path not in reached]
  assert not missing


def test_the_table_of_data_sets_names_every_data_set_and_no_other():
  rows = re.findall(r"^\| (`.*?) \|", (ROOT / "as2jax/data/README.md").read_text(), re.M)
  first = next(i for i, row in enumerate(rows) if row.startswith("`wikiqa`"))
  last = next(i for i, row in enumerate(rows) if row.startswith("`sample`"))
  named = [name for row in rows[first : last + 1] for name in re.findall("`(.*?)`", row)]
  assert sorted(named) == sorted(SPECS)
