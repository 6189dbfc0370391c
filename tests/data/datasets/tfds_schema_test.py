import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets.core import example_serializer

from as2jax.data.datasets.tfds_schema import TABLES
from as2jax.data.record import Candidate, Passage, Query, Question

CANDIDATES = (Candidate("a", "x", 1, "p", "n", 0, -1, "t"), Candidate("b", ""))
RECORDS = [
  ("questions", Question("q", "whö ?", CANDIDATES)),
  ("questions", Question("q", "none ?", ())),
  ("pool", Passage("p", "Ünd.", "T", "a", "b", "c")),
  ("queries", Query("q", "why ?", ("p", "ü"), (2, 1))),
  ("queries", Query("q", "why ?", (), ())),
]


def plain(value):
  """Arrays and bytes as lists and text: what TFDS's own encoding takes."""
  if isinstance(value, dict):
    return {key: plain(item) for key, item in value.items()}
  if isinstance(value, bytes):
    return value.decode()
  return [plain(item) for item in value.tolist()] if hasattr(value, "tolist") else value


@pytest.mark.parametrize("name, record", RECORDS)
def test_examples_are_those_of_tfds(name, record):
  table = TABLES[name]
  features = tfds.features.FeaturesDict(table.features)
  serializer = example_serializer.ExampleSerializer(features.get_serialized_info())
  ours = table.encoded(record)
  theirs = features.encode_example(plain(ours))
  assert serializer.serialize_example(ours) == serializer.serialize_example(theirs)
  data = features.deserialize_example_np(serializer.serialize_example(ours))
  assert table.decoded(data) == record
