"""Advice is true: a flag, a command or a key that a message names is one of the verb that prints it."""

import ast
import pathlib
import re

import pytest
import typer

from as2jax.commands import app
from as2jax.config import jobs
from as2jax.config.overrides import flatten
from as2jax.runtime.errors import InputError, as_in_python

ROOT = pathlib.Path(app.__file__).parents[1]
RUN = "rank,evaluate,report,export,explain,serve"
TABLES = "rank,train,evaluate,data check,data convert,lab mine,lab distill"
PRINTED = {  # modules -> the verbs that may print their messages
  "commands/documents": "index",
  "config/overrides config/recipes inference/modes": "train,lab sweep",
  "config/jobs data/load data/holdout data/inputs/rankings": "train,lab sweep,evaluate",
  "data/tables data/user_files data/source data/dataset": f"{TABLES},index",
  "evaluation/results evaluation/retrieve evaluation/tasks runtime/sharding": "train,evaluate",
  "evaluation/run_scores": "compare,report",
  "experiments/compile": "lab compile",
  "experiments/distil": "lab distill",
  "experiments/mine": "lab mine",
  "experiments/near_duplicates": "data near-duplicates",
  "experiments/papers/measured": "lab measured",
  "experiments/papers/plan": "lab paper",
  "experiments/sweep": "lab sweep",
  "experiments/train_vectors": "lab vectors",
  "inference/explain": "explain",
  "inference/export": "export",
  "inference/serve inference/connections": "serve",
  "report/make": "report",
  "runtime/profiling training/build training/loop training/metrics_log training/warm_start": "train",
  "encoders/hub encoders/open_encoder data/inputs/protocol training/record training/checkpoints "
  "runtime/files runtime/bound runtime/cache inference/run inference/open inference/ranker inference/index "
  "runtime/registry": f"train,index,{RUN}",
  "runtime/registry inference/index": "search,lab sweep,lab mine,lab distill,lab compile",
}
# Of `python -m as2jax.main`, of its processes and of style sheets.
OTHERS = "main inference/reevaluate runtime/errors runtime/processes report/figures"
# What only a command reaches, and what is no message.
COMMANDS_ALONE = (
  "config/overrides evaluation/run_scores inference/connections inference/explain inference/export "
  "report/figures report/make runtime/errors runtime/processes runtime/profiling"
)
FRAGMENT = re.compile(r" ?--[a-zX.]+(=(rerun:)?X)?|.*(runs/X)")
FOREIGN = re.compile(r"(pip install|xprof|hf) [^`;:(]*")


def messages(module):
  """The texts of a module that are no docstrings, with X for what is filled in."""
  tree, inside = ast.parse((ROOT / f"{module}.py").read_text()), set()
  for node in ast.walk(tree):
    inside |= set(map(id, getattr(node, "values", ()) if isinstance(node, ast.JoinedStr) else ()))
    inside |= {id(node.value)} if isinstance(node, ast.Expr) else set()
  for node in ast.walk(tree):
    if isinstance(node, (ast.JoinedStr, ast.Constant)) and id(node) not in inside:
      parts = getattr(node, "values", [node])
      text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)
      if re.search(r"(?<![\w-])--[a-z]|as2jax [a-z]|set [a-z]+\.", text) and not FRAGMENT.fullmatch(
        text
      ):
        yield FOREIGN.sub("", text)


def options(line):
  """The flags of the verb that a line of words begins with; none of no verb."""
  command = typer.main.get_command(app.app)
  for word in line.split()[:2]:
    command = getattr(command, "commands", {}).get(word, command)
  flags = {"--help", *(name for parameter in command.params for name in parameter.opts)}
  return set() if hasattr(command, "commands") else flags


def wrong(text, verb):
  """What a message names that the verb, or the command it names, does not have."""
  text, found = app.in_words(text, verb.split()), []
  for line in re.findall(r"as2jax ([a-z][^;,()`\n]*)", text):
    found += [] if options(line) else [line]
    found += set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", line)) - options(line)
    text = text.replace(line, "")
  return found + sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z_-]*", text)) - options(verb))


@pytest.mark.parametrize("modules", PRINTED)
def test_flags_and_commands_in_messages_are_those_of_the_verb(modules):
  said = [text for module in modules.split() for text in messages(module)]
  assert said
  for verb in PRINTED[modules].split(","):
    assert {text: wrong(text, verb) for text in said if wrong(text, verb)} == {}, verb


def test_in_python_a_message_names_arguments():
  for path in ROOT.rglob("*.py"):
    module = str(path.relative_to(ROOT))[:-3]
    if module not in COMMANDS_ALONE.split() and not module.startswith(
      ("commands/", "experiments/")
    ):
      for text in messages(module):
        alone = re.sub(r"as2jax [a-z][^;,()`\n]*", "", as_in_python(text))
        assert module == "main" or not re.search(r"(?<![\w-])--[a-z]", alone), (module, text)
  for said, meant in (
    ("name it: --columns question=ask", 'name it: columns={"question": "ask"}'),
    ("leave them out: --drop", "leave them out: drop=True"),
    ("set --config.data.holdout=0.1, or", 'set overrides={"data.holdout": 0.1}, or'),
    ("--output=x.txt: name", "output=x.txt: name"),
    ("as2jax evaluate RUN --data=FILE --drop", "as2jax evaluate RUN --data=FILE --drop"),
    (
      "repeat it: --config=rerun:x/config.json --workdir=NEW",
      'repeat it: as2jax.train("rerun:x/config.json", "NEW")',
    ),
  ):
    assert str(InputError(said)) == as_in_python(said) == meant


def test_every_message_is_looked_at_and_its_keys_are_there():
  listed, keys, said = {*" ".join(PRINTED).split(), *OTHERS.split()}, set(), ""
  for path in ROOT.rglob("*.py"):
    module = str(path.relative_to(ROOT))[:-3]
    if not module.startswith(("commands/", "jobs/")):
      texts = list(messages(module))
      assert module in listed or not [text for text in texts if "--" in text], (module, texts)
      said += "; ".join(["", *texts])
  for job in "wikiqa_triplet:sample wikiqa_cassie wikiqa_cete:glove wikiqa_crossencoder".split():
    keys |= flatten(jobs.load(job)).keys()
  named = set(re.findall(r"(?:--set |set |--config\.)([a-z_]+\.[a-z_]+)", said))
  assert len(named) > 5 and named <= keys, named - keys


def test_variables_that_are_named_are_read():
  said = "".join(path.read_text() for path in ROOT.rglob("*.py"))
  read = set(re.findall(r'(?:get\(|envvar=|^TRACEBACK = |: str = )"(AS2JAX_[A-Z]+)"', said, re.M))
  named = set(re.findall(r"AS2JAX_[A-Z]+", said + (ROOT.parent / "README.md").read_text()))
  assert len(read) > 4 and named == read
