"""A run in a folder of an object store, by a store in memory that can neither append nor rename."""

import fsspec
import pytest
import tiny_systems
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem

from as2jax.data import trec_files
from as2jax.evaluation import results
from as2jax.inference import modes, reevaluate
from as2jax.runtime.errors import InputError


class ObjectStore(MemoryFileSystem):
  """What `gs://` promises: whole objects under names."""

  protocol = ("gcs", "gs")
  store: dict = {}
  pseudo_dirs = [""]

  def __init__(self, **options):
    options.pop("finalize_on_close", None)  # of Google's store alone
    super().__init__(**options)

  @classmethod
  def _strip_protocol(cls, path):
    return "/" + path.removeprefix("gcs://").removeprefix("gs://").strip("/")

  def _open(self, path, mode="rb", **options):
    assert mode in ("rb", "wb"), f"{path} is opened with mode {mode}"
    return super()._open(path, mode, **options)

  def mv(self, *names, **options):
    raise AssertionError(f"{names} are renamed")

  mv_file = move = rename = mv


@pytest.fixture
def bucket(monkeypatch):
  """The address of an empty bucket."""
  monkeypatch.setenv("EPATH_USE_TF", "false")
  for name in ObjectStore.protocol:
    fsspec.register_implementation(name, ObjectStore, clobber=True)
  monkeypatch.setattr(ObjectStore, "store", {})
  monkeypatch.setattr(ObjectStore, "pseudo_dirs", [""])
  return "gs://bucket/runs"


def config(name="bm25", **changes):
  settings = {"evaluation__splits": ("test",), "log__tensorboard": False, **changes}
  return tiny_systems.config(name, compilation_cache="off", **settings)


def test_a_whole_run_is_written_read_and_evaluated_again(bucket, tmp_path):
  workdir = f"{bucket}/bm25"
  modes.run(config(), workdir)
  modes.run(config(), str(tmp_path))
  local = results.read(tmp_path)
  assert results.read(workdir)["metrics"] == local["metrics"]
  for name in ("eval/test/run.trec", "eval/test/qrels.trec", "eval/test/per_question.tsv"):
    assert (epath.Path(workdir) / name).read_bytes() == (tmp_path / name).read_bytes()
  assert reevaluate.reevaluate(config(mode="evaluate"), workdir)["metrics"] == {
    name: entry for name, entry in local["metrics"].items() if "/test]" in name
  }
  assert trec_files.read_run(f"{workdir}/eval/test/run.trec")
  with pytest.raises(InputError, match="holds a run of another config"):
    modes.run(config("word_overlap"), workdir)
