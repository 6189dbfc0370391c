"""The `as2jax` command: its verbs, and the one place where a mistake becomes a message."""

import functools
import sys
from collections.abc import Sequence
from typing import Any

import typer

from as2jax.commands import data, evaluate, lab, output, process, train, use
from as2jax.runtime import preemption
from as2jax.runtime.errors import InputError
from as2jax.runtime.version import __version__

EXAMPLES = output.examples(
  "as2jax train wikiqa_triplet:sample -o runs/x      a minute, needs no data",
  "as2jax rank runs/x questions.jsonl --top-k=5",
  "as2jax compare runs/bm25 runs/x",
  "as2jax VERB --help                                options and examples",
  "as2jax --version",
)

app = typer.Typer(
  name="as2jax",
  help="Answer sentence selection in JAX: train rankers, rank, evaluate, compare, explain, export.",
  epilog=EXAMPLES,
  no_args_is_help=True,
  rich_markup_mode=None,
  pretty_exceptions_enable=False,
  context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for verbs in (train, use, evaluate):
  app.add_typer(verbs.app)
app.add_typer(data.app, name="data")
app.add_typer(lab.app, name="lab")


def run(arguments: Sequence[str] | None = None) -> int:
  """Run a command line and return the exit status; a mistake is one line on standard error."""
  words = list(sys.argv[1:] if arguments is None else arguments)
  if words == ["--version"]:
    print(__version__)
    return 0
  return process.guarded(functools.partial(_run, words), words=lambda text: in_words(text, words))


def in_words(text: str, arguments: Sequence[str]) -> str:
  """Return a message in the words of the verb that a command line names."""
  command: Any = typer.main.get_command(app)
  for word in arguments[:2]:
    command = getattr(command, "commands", {}).get(word, command)
  options = {name for parameter in command.params for name in parameter.opts}
  return process.in_words_of_the_command(text, options)


def _run(arguments: list[str]) -> int | None:
  try:
    status = app(args=arguments, prog_name="as2jax", standalone_mode=False)
  except Exception as error:
    # What the command-line library says of a wrong option; its classes are not public.
    if not hasattr(error, "format_message"):
      raise
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
      print(context.get_help(), file=sys.stderr)
      return 2
    place = context.command_path if context else "as2jax"
    problem = error.format_message().replace("Value error, ", "").rstrip(".")
    raise InputError(f"{problem}. See {place} --help") from None
  if status == preemption.INTERRUPTED:  # which is what the library makes of KeyboardInterrupt
    raise KeyboardInterrupt
  return status
