"""What all tests share: two CPU devices, strict numerics, checked shapes, one compilation cache."""

import contextlib
import fcntl
import functools
import gc
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import jax
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from jaxtyping import install_import_hook

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]

# Modules of functions and layers, whose annotated shapes are checked at every call. Not those that
# define pytrees: jax rebuilds them with other leaves than arrays, or with a seed axis in front.
CHECKED = ("as2jax.layers", "as2jax.models.losses", "as2jax.encoders.bert", "as2jax.encoders.xlnet")

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Shared by the workers and kept between sessions: most of the suite's time would be compilation.
jax.config.update(
  "jax_compilation_cache_dir", os.environ.get("AS2JAX_TEST_CACHE") or str(ROOT / ".jax_cache")
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

# Most of the suite's time is compilation. A quarter of it is left without LLVM's optimizations, with
# the older, simpler emitters of fused loops, and without splitting each program for threads that a
# small machine lacks. XLA's own passes, which decide what is fused and exchanged, stay.
# JAX_DISABLE_MOST_OPTIMIZATIONS=0 compiles everything as a user's programs are.
QUICKLY = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") != "0"
jax.config.update("jax_disable_most_optimizations", QUICKLY)
FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
if QUICKLY and jax.__version_info__ < (0, 11):  # newer ones have no older emitters
  FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()

install_import_hook(CHECKED, "beartype.beartype")

# Examples that a property test tries: always the same few, so that a run of the tests is repeatable;
# --hypothesis-profile=many for the thorough search, by chance.
for name, examples in (("few", 25), ("many", 1000)):
  hypothesis_settings.register_profile(
    name,
    max_examples=examples,
    deadline=None,
    derandomize=name == "few",
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
  )
hypothesis_settings.load_profile("few")


SLOW = (ROOT / "tests" / "slow.txt").read_text().splitlines()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
  """Marks as slow what `slow.txt` names: it costs seconds, and a quicker test proves the same kind.

  A line that names no test of the files which are collected whole ends the session.
  """
  names = set()
  for item in items:
    own = {item.nodeid, item.nodeid.partition("[")[0]}
    names |= own
    if own.intersection(SLOW):
      item.add_marker("slow")
  files = {name.partition("::")[0] for name in names}
  stale = [line for line in SLOW if line.partition("::")[0] in files and line not in names]
  if stale and not any("::" in argument for argument in config.args):
    raise pytest.UsageError(f"tests/slow.txt names no test: {', '.join(stale)}")


def pytest_collection_finish():
  """The collector looks at nothing imported so far, and seldom: traces make objects by the million."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory):
  """Prepared data and token caches of this session alone; of temporary folders pytest keeps a few."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("AS2JAX_CACHE", str(tmp_path_factory.mktemp("cache")))
    patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))
    yield


@pytest.fixture
def in_the_repository(monkeypatch):
  """The working folder is that of the repository."""
  monkeypatch.chdir(ROOT)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
  """run(system) -> folder of a finished run of it on the sample; to be read, not written.

  `system` is one of `tiny_systems.SYSTEMS` or a ranker without parameters. Each is trained once a
  session, by the worker that asks for it first; the others wait at its lock.
  """
  base = tmp_path_factory.getbasetemp()
  folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
  folder.mkdir(exist_ok=True)

  def run(system):
    import tiny_systems

    from as2jax.inference import modes

    target = folder / system
    with open(folder / f"{system}.lock", "w") as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      if not (target / "results.json").exists():
        # What it prints is not the output of the test that asks first.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
          modes.run(tiny_systems.config(system), str(target))
    return target

  return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
  """run(family, model, **overrides) -> (folder of a finished run, its config), each made once."""
  import tiny
  import tiny_encoders

  from as2jax.training.loop import train_and_evaluate

  folder = tmp_path_factory.mktemp("encoders")

  @functools.cache
  def run(family, model, **overrides):
    base, path = folder / family, tmp_path_factory.mktemp("run")
    if not base.exists():
      tiny_encoders.folder(family, base)
    config = tiny.from_folder(base, model, **overrides)
    train_and_evaluate(config, path)
    return path, config

  return run


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
  """The wheel, built from a copy of what it is made of."""
  folder = tmp_path_factory.mktemp("wheel")
  for name in ("as2jax", "configs"):
    shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
  for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, folder / name)
  options = ["--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={folder / 'dist'}"]
  subprocess.run([*PIP, "wheel", *options, str(folder)], check=True, timeout=300)
  (built,) = (folder / "dist").glob("as2jax-*.whl")
  return built


@pytest.fixture(scope="session")
def site(wheel, tmp_path_factory):
  """Folders: the wheel's package alone, and one in which nothing that the extras add is imported."""
  from as2jax.commands import process

  target, bare = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("bare")
  options = ["--no-deps", "--no-index", f"--target={target}"]
  subprocess.run([*PIP, "install", *options, str(wheel)], check=True, timeout=300)
  (bare / "sitecustomize.py").write_text(
    f"import sys\nfor name in {sorted(process.EXTRAS)!r}:\n  sys.modules[name] = None\n"
  )
  return target, bare


@pytest.fixture(scope="module")
def installed(site, tmp_path_factory):
  """run(arguments of Python…) in an empty folder, with the wheel's package alone; what it printed.

  With `base=True` nothing can be imported that the extras add. `run.start` returns the process, in
  a group of its own, so that it can be told what a terminal tells; what it prints goes to `log`.
  """
  target, bare = site
  empty = tmp_path_factory.mktemp("empty")

  def options(base):
    path = os.pathsep.join([str(target), *[str(bare)] * base])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    return {"cwd": empty, "env": environment, "text": True}

  def run(*arguments, base=False):
    done = subprocess.run(
      [sys.executable, *arguments], capture_output=True, timeout=300, **options(base)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  def start(*arguments, log):
    with open(log, "w") as file:  # a pipe that nobody reads would stop it
      streams = {"stdout": file, "stderr": subprocess.STDOUT, "start_new_session": True}
      if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a session in a script's background:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else its children ignore it, too
      return subprocess.Popen([sys.executable, *arguments], **streams, **options(False))

  run.folder, run.script, run.start = empty, str(target / "bin" / "as2jax"), start
  return run


@pytest.fixture(scope="session")
def kept_rows():
  """The kept rows of configs/papers/results, unpacked once."""
  from as2jax.experiments.papers import collected

  with collected.unpacked(collected.folder()) as rows:
    yield rows


@pytest.fixture(scope="module", autouse=True)
def _few_mappings():
  """Drops compiled programs before they are too many.

  Each takes a few of the 65,530 memory mappings that Linux gives a process, and one that has none
  left dies in the middle of some test.
  """
  yield
  maps = pathlib.Path("/proc/self/maps")
  if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
    jax.clear_caches()
    gc.collect()
