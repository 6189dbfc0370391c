"""The shared TFDS builder: from source files to a prepared copy (array_record), and back.

Imports tensorflow_datasets (0.3 s): import this module lazily.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import sys
import uuid
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow_datasets as tfds
from absl import logging
from etils import epath

from as2jax.data.record import Candidate, Question, fingerprint
from as2jax.data.source import Counts, Source, Spec, Tally

LAYOUT = "1"  # of the prepared copy: raise it when `FEATURES` or the pointer's fields change
POINTER = "prepared.json"
CANDIDATE_TEXTS = ("id", "text", "previous", "next", "title")
CANDIDATE_LABELS = ("label", "previous_label", "next_label")


class QuestionBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """One example a question, in the order of the source; `for_spec` makes a dataset's own class."""

  VERSION = tfds.core.Version("1.0.0")
  spec: Spec
  source: Source

  @classmethod
  def for_spec(cls, spec: Spec, source: Source) -> type["QuestionBuilder"]:
    """The builder class of the dataset that `spec` describes, reading from `source`."""
    fields = {
      "name": spec.name,
      "spec": spec,
      "source": source,
      "VERSION": tfds.core.Version(spec.version),
      "__module__": __name__,
    }
    return type(spec.name, (cls,), fields, skip_registration=True)

  def _info(self) -> tfds.core.DatasetInfo:
    text = tfds.features.Text()
    candidate = {name: text for name in CANDIDATE_TEXTS} | dict.fromkeys(CANDIDATE_LABELS, np.int32)
    features = {"id": text, "text": text, "candidates": tfds.features.Sequence(candidate)}
    return tfds.core.DatasetInfo(
      builder=self,
      features=tfds.features.FeaturesDict(features),
      citation=self.spec.citation,
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    del dl_manager  # the files are there: see source.find
    return {split: self._generate_examples(paths) for split, paths in self.source.files.items()}

  def _generate_examples(self, paths):
    number = 0
    for path in paths:
      for question in self.spec.reader(path):
        yield number, _encoded(question)
        number += 1


@dataclasses.dataclass(frozen=True)
class Prepared:
  """A whole prepared copy.

  Attributes:
    folder: of the TFDS files; `tfds.builder_from_directory(folder)` reads them too.
    counts, fingerprints: split -> what it holds.
  """

  folder: epath.Path
  counts: Mapping[str, Counts]
  fingerprints: Mapping[str, str]

  def read(self, split: str) -> Iterator[Question]:
    """The questions of `split`, decoded one at a time."""
    with _quiet():
      examples = tfds.builder_from_directory(self.folder).as_data_source(split)
    for example in examples:
      yield _decoded(example)


def prepared(spec: Spec, source: Source, cache: epath.Path) -> Prepared:
  """The prepared copy of `source` under `cache`, made first where there is none.

  A copy lies under a hash of the source's bytes and the reader's version, in a folder of its own
  process; it counts only once the pointer beside it, written last, names it. So a changed source
  is read anew, a killed preparation leaves nothing that counts, and two at once do not meet.

  Raises:
    InputError: a source file is wrong (from the reader).
    OSError: `cache` cannot be written.
  """
  key = hashlib.sha256(f"{LAYOUT} {spec.version} {source.digest()}".encode()).hexdigest()
  home = cache / spec.name / key[:16]
  return _pointed(home) or _prepare(spec, source, home)


def _pointed(home: epath.Path) -> Prepared | None:
  """The copy that the pointer names, None where there is none or it is not whole."""
  try:
    pointer = json.loads((home / POINTER).read_text())
    folder = home / pointer["folder"]
    sizes = {name: (folder / name).stat().length for name in pointer["sizes"]}
    counts = {split: Counts(*numbers) for split, numbers in pointer["counts"].items()}
    if sizes != pointer["sizes"]:
      raise ValueError("files of other sizes")
    return Prepared(folder, counts, pointer["fingerprints"])
  except FileNotFoundError as error:
    if (home / POINTER).exists():
      logging.warning("%s: a file of the prepared copy is gone (%s); preparing anew", home, error)
  except (ValueError, KeyError, TypeError) as error:
    logging.warning("%s: the prepared copy is damaged (%s); preparing anew", home, error)
  return None


def _prepare(spec: Spec, source: Source, home: epath.Path) -> Prepared:
  own = home / uuid.uuid4().hex
  logging.info("preparing %s from %s in %s", spec.name, source.folder, home)
  try:
    with _quiet():
      builder = QuestionBuilder.for_spec(spec, source)(data_dir=own, file_format="array_record")
      builder.download_and_prepare()
    copy = Prepared(epath.Path(builder.data_dir), {}, {})
    counts, fingerprints = {}, {}
    for split in source.files:
      tally = Tally(copy.read(split))
      fingerprints[split] = fingerprint(tally)
      counts[split] = tally.counts
    other = _pointed(home)
    if other is not None:  # another process was faster
      own.rmtree()
      return other
    pointer = {
      "folder": str(copy.folder.relative_to(home)),
      "sizes": {path.name: path.stat().length for path in copy.folder.iterdir()},
      "counts": {split: dataclasses.astuple(numbers) for split, numbers in counts.items()},
      "fingerprints": fingerprints,
    }
    (home / POINTER).write_text(json.dumps(pointer, indent=2))
  except BaseException:
    own.rmtree(missing_ok=True)
    raise
  return Prepared(copy.folder, counts, fingerprints)


def _encoded(question: Question) -> dict:
  names = (*CANDIDATE_TEXTS, *CANDIDATE_LABELS)
  candidates = [{name: getattr(c, name) for name in names} for c in question.candidates]
  return {"id": question.id, "text": question.text, "candidates": candidates}


def _decoded(example: Mapping) -> Question:
  columns = example["candidates"]
  texts = [[value.decode() for value in columns[name]] for name in CANDIDATE_TEXTS]
  labels = [map(int, columns[name]) for name in CANDIDATE_LABELS]
  rows = zip(*texts, *labels, strict=True)
  candidates = tuple(
    Candidate(id, text, label, previous, next, previous_label, next_label, title)
    for id, text, previous, next, title, label, previous_label, next_label in rows
  )
  return Question(example["id"].decode(), example["text"].decode(), candidates)


@contextlib.contextmanager
def _quiet():
  """Keeps TFDS's announcements off the output and the log, and its bars out of files."""
  if not sys.stderr.isatty():
    tfds.disable_progress_bar()
  level = logging.get_verbosity()
  logging.set_verbosity(min(level, logging.WARNING))
  try:
    with contextlib.redirect_stdout(io.StringIO()):
      yield
  finally:
    logging.set_verbosity(level)
