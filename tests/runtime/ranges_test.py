"""Ranges beside fields: what is refused before anything is read, and where the object is built."""

import contextlib
import copy
import dataclasses

import pytest
import tiny

from as2jax.config import check, jobs
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import Above, AtLeast, Each, OneOf, Share


@pytest.mark.parametrize(
  "known, right, wrong, message",
  [
    (OneOf(("a", "b")), "b", "c", "use one of a, b"),
    (AtLeast(1), 1, 0, "give 1 or more"),
    (AtLeast(0), 0.5, float("inf"), "give 0 or more"),
    (AtLeast(0), 0, float("nan"), "give 0 or more"),
    (Share(), 0.0, 1.0, "give a number from 0 to below 1"),
    (Share(), 0.99, -0.1, "give a number from 0 to below 1"),
    (Above(0), 1e-9, 0.0, "give a number above 0"),
    (Each(AtLeast(1)), (1, 2), (1, 0), "for each: give 1 or more"),
    (Each(OneOf("ab")), ("b", "a"), (), "give one value or more"),
  ],
)
def test_ranges(known, right, wrong, message):
  assert known.problem(right) == "" and known.problem(wrong) == message


# A config of each model that has fields with ranges, and values of which a range refuses some.
JOBS = """wikiqa_triplet wikiqa_siamese wikiqa_crossencoder wikiqa_loct wikiqa_cassie wikiqa_cete
  trecqa_m2snet squad_cross_vae wikiqa_triplet:ranknet wikiqa_triplet:in_batch""".split()
WRONG = ("zebra", -1, 0, 1.5, -0.5, (), (32, 0), ("h", "zebra"))


def refused_by(bound):
  """The first wrong value of a kind that the range compares; None where it takes all of them."""
  for value in WRONG:
    with contextlib.suppress(TypeError):
      if bound.problem(value):
        return value
  raise AssertionError(f"{bound} refuses nothing")


@pytest.mark.parametrize("job", JOBS)
def test_a_config_out_of_range_is_refused_before_anything_is_read(job):
  """Each field of model, loss and encoder that has a range."""
  config, count = jobs.load(job), 0
  check.check(config)
  tables = {"model": registry.MODELS, "loss": registry.LOSSES, "encoder": registry.ENCODERS}
  for section, table in tables.items():
    name = config[section].name
    for field in dataclasses.fields(registry.find(table, "bert" if name == "auto" else name, "")):
      bounds = getattr(field.type, "__metadata__", ())
      if not bounds or field.name not in config[section]:
        continue
      wrong, count = copy.deepcopy(config).unlock(), count + 1
      value = refused_by(bounds[0])
      with wrong[section].ignore_type():
        wrong[section][field.name] = value
      with pytest.raises(InputError) as error:
        check.check(wrong)
      assert str(error.value).startswith(f"{section}.{field.name} = ")
      assert str(error.value).endswith(bounds[0].problem(value))
  assert count > 4


def test_a_class_of_the_users_is_checked_too():
  config = tiny.config("triplet", encoder__name="as2jax.encoders.bert:BertEncoder")
  with config.unlocked():
    config.encoder.unroll = -1
  with pytest.raises(InputError, match="encoder.unroll = -1: give 0 or more"):
    check.check(config)
