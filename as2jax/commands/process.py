"""What surrounds the work of a command: logging, signals, several hosts, messages, exit status.

The exit status is 0; 1 where what was asked for failed (counts differ, a run of a sweep failed),
where nobody reads what is printed, or for an error of ours; 2 for a mistake in the input or a full disk; 75 after SIGTERM and 130 after
SIGINT, after which the same command goes on.
"""

import contextlib
import errno
import logging
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Collection

from as2jax.runtime import devices, preemption, processes, streams
from as2jax.runtime.errors import InputError

# What `pip install "as2jax[EXTRA]"` adds, by the module that is imported.
EXTRAS = dict.fromkeys(
  "tensorflow_datasets importlib_resources array_record ott jraph tensorboardX h5py".split(),
  "train",
) | {"gensim": "vectors", "matplotlib": "report", "gcsfs": "gcs"}
EXTRAS |= dict.fromkeys(("fastapi", "uvicorn", "prometheus_client"), "serve")
TRACEBACK = "AS2JAX_TRACEBACK"  # in the environment: print the traceback of an error of ours
# jax names each backend that is not there; by absl orbax logs every save in ten lines; fontTools logs each
# PDF's font in a hundred, httpx each request to the hub.
CHATTY = ("jax", "tensorboardX", "absl", "fontTools", "gensim", "httpx")


class _ToStandardError(logging.Handler):
  """Prints a record's text on what is standard error then; of `CHATTY` libraries warnings only.

  Their loggers keep their levels: jax takes a level that is set on its logger for its C++ code, too,
  and overrides TF_CPP_MIN_LOG_LEVEL with it.
  """

  def emit(self, record: logging.LogRecord) -> None:
    """Print the text, and an error's own text behind it."""
    if record.levelno < logging.WARNING and record.name.partition(".")[0] in CHATTY:
      return
    error = record.exc_info[1] if record.exc_info else ""
    text = f"{record.getMessage()}: {error}" if error else record.getMessage()
    print(streams.visible(text), file=sys.stderr, flush=True)


SHOWN = _ToStandardError()


def begin_run(
  coordinator: str = "", count: int = 0, process_id: int = -1, profile: int = 0
) -> None:
  """Prepare a process that trains or evaluates, before anything touches a device.

  Of several processes, see `processes.start`; `profile` is how many steps of training to trace.
  """
  processes.start(coordinator, count, process_id)
  preemption.listen()
  if processes.count() == 1:
    devices.use_cores()
  if not processes.first():
    logging.getLogger().setLevel(logging.WARNING)  # the first process says it
  from as2jax.runtime import profiling

  profiling.want(profile)


def guarded(work: Callable[[], int | None], *, words: Callable[[str], str] = str) -> int:
  """Do the work and return the exit status; what we log, and every mistake, is shown on standard error.

  `words` puts a message into the words of the command that was typed.
  """
  logging.getLogger().addHandler(SHOWN)
  logging.getLogger().setLevel(logging.INFO)
  # transformers advises to install PyTorch, for models that as2jax does not take from it.
  os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
  in_python, InputError.in_python = InputError.in_python, False
  try:
    with contextlib.redirect_stdout(streams.Visible(sys.stdout)):
      status = work() or 0
    sys.stdout.flush()
    return status
  except BrokenPipeError:
    streams.give_up()
    return 1
  except InputError as error:
    status, text = 2, words(str(error))
  except preemption.Preempted as stopped:
    saved = str(stopped) or "there was nothing to save"
    text = f"stopped by {preemption.reason()}: {saved}; the same command goes on"
    print(f"{processes.name()}: {text}", file=sys.stderr)
    return leave(preemption.status())
  except KeyboardInterrupt:
    status, text = preemption.INTERRUPTED, "stopped by SIGINT; run the same command again"
  except Exception as error:
    status, text = _described(error)
    if isinstance(error, OSError) and error.filename is None:
      streams.give_up()
    if status == 1 and (processes.count() > 1 or os.environ.get(TRACEBACK)):
      traceback.print_exc()
  finally:
    InputError.in_python = in_python
  with contextlib.suppress(OSError):  # standard error may be a file on a full disk
    print(f"{processes.name()}: {streams.visible(text)}", file=sys.stderr)
  if processes.count() > 1:
    processes.leave(status, text)
  return status


def leave(status: int) -> int:
  """End this process where everything is saved; several processes wait for one another."""
  processes.stop()
  if processes.started():
    return status
  # A step may still run on the device: the interpreter's own end would take its memory away.
  logging.shutdown()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(status)


def _described(error: Exception) -> tuple[int, str]:
  """Return the exit status and the message of an error that is no InputError."""
  module = (getattr(error, "name", None) or "").partition(".")[0]
  if isinstance(error, ModuleNotFoundError) and module in EXTRAS:
    return 2, (
      f"this needs {module}, which is not installed: pip install 'as2jax[{EXTRAS[module]}]'"
    )
  if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
    return 2, (
      f"{error.filename or 'standard output, or a file,'} cannot be written ({error.strerror}): make room and run the "
      "same command again; a run goes on from its last whole checkpoint"
    )
  package, where = str(pathlib.Path(__file__).resolve().parents[1]), ""
  for frame in traceback.extract_tb(error.__traceback__):
    if frame.filename.startswith(package):
      where = f" (as2jax{frame.filename[len(package) :]}:{frame.lineno})"
  text = " ".join(str(error).split())
  return 1, (
    f"internal error: {type(error).__name__}: {text}{where}; {TRACEBACK}=1 in the environment shows "
    "the whole traceback"
  )


def in_words_of_main(text: str) -> str:
  """Return a message that advises a verb's options in the flags of `python -m as2jax.main`."""
  text = re.sub(r"(?<!as )--drop\b", "--config.data.drop=true", text)
  return re.sub(r"--columns (?=[a-z])", "--config.data.columns=", text)


def in_words_of_the_command(text: str, options: Collection[str]) -> str:
  """Return a message about `python -m as2jax.main`'s flags in the words of a verb with `options`.

  What only other verbs have is advised with the whole command.
  """
  text = re.sub(r"--config=rerun:(\S+?)/config\.json --workdir=", r"as2jax train \1 -o ", text)
  text = re.sub(r"--config=rerun:(\S+?)/config\.json\b", r"`as2jax train \1`", text)
  text = re.sub(r"--config\.(?=[a-z])", "--set ", text)
  if "--columns" not in options:
    text = re.sub(r"(?<!as )--(?=columns |drop\b)", "as2jax data convert FILE NEW --", text)
  return text.replace("--workdir", "--output")
