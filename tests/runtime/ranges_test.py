"""Ranges beside fields: what is refused before anything is read, and where the object is built."""

import dataclasses
from typing import Annotated

import pytest
import tiny

from as2jax.config import check, jobs
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError
from as2jax.runtime.registry import Above, AtLeast, Each, OneOf, Share
from as2jax.training.describe import describe


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
    (Each(AtLeast(1)), (1, 2), (1, 0), "give one value or more, and for each: give 1 or more"),
    (
      Each(OneOf(("a", "b"))),
      ("b", "a"),
      (),
      "give one value or more, and for each: use one of a, b",
    ),
  ],
)
def test_ranges(known, right, wrong, message):
  assert known.problem(right) == "" and known.problem(wrong) == message


@dataclasses.dataclass(frozen=True)
class Sized:
  size: Annotated[int, AtLeast(2)]
  name: str = ""


def test_a_section_is_compared_with_its_class():
  registry.check_ranges(Sized, {"size": 2, "name": "x"}, "model")
  registry.check_ranges(Sized, {"size": None}, "model")  # as the weights say
  with pytest.raises(InputError, match="model.size = 1: give 2 or more"):
    registry.check_ranges(Sized, {"size": 1}, "model")


# Words of a config, an override, and the message.
WRONG = [
  ("wikiqa_triplet.py", "encoder.hidden_dropout", 1.0, "give a number from 0 to below 1"),
  ("wikiqa_triplet.py", "encoder.dtype", "float16", "use one of float32, bfloat16"),
  ("wikiqa_triplet.py", "encoder.precision", "low", "use one of default, high, highest"),
  ("wikiqa_triplet.py", "encoder.attention", "flash", "use one of auto, plain, xla, cudnn"),
  ("wikiqa_triplet.py", "encoder.unroll", -1, "give 0 or more"),
  ("wikiqa_triplet.py:xlnet", "encoder.attention_dropout", -0.5, "give a number from 0"),
  ("wikiqa_triplet.py", "model.pooling", "median", "use one of mean, max, "),
  ("wikiqa_triplet.py", "loss.reduction", "median", "use one of sum, mean"),
  ("wikiqa_triplet.py", "loss.selection", "soft", "use one of all, "),
  ("wikiqa_siamese.py", "model.combine", "zebra", "use one of "),
  ("wikiqa_crossencoder.py", "model.dropout", 1.5, "give a number from 0 to below 1"),
  ("wikiqa_loct.py", "model.segments", "five", "use one of "),
  ("wikiqa_cassie.py", "model.alignment", "zebra", "use one of "),
  ("wikiqa_cassie.py", "model.iterations", 0, "give 1 or more"),
  ("wikiqa_cete.py", "model.norm", "none", "use one of pre, post"),
  ("wikiqa_cete.py", "model.storage", "int8", "use one of float32, float16"),
  ("wikiqa_cete.py", "model.num_heads", 0, "give 1 or more"),
  ("trecqa_m2snet.py", "model.momentum", 1.0, "give a number from 0 to below 1"),
  ("trecqa_m2snet.py", "model.similarity", "zebra", "use one of "),
  ("squad_cross_vae.py", "model.match_on", "zebra", "use one of sample, mean"),
  ("squad_cross_vae.py", "model.softmax_chunk", -1, "give 0 or more"),
  ("squad_cross_vae.py", "loss.redundancy", -1.0, "give 0 or more"),
  ("squad_cross_vae.py", "loss.free_bits", -1.0, "give 0 or more"),
  ("squad_cross_vae.py", "model.latent_size", 0, "give 1 or more"),
  ("squad_cross_vae.py", "model.answer_length", 1, "give 2 or more"),
  ("squad_cross_vae.py", "model.unroll", 0, "give 1 or more"),
  ("trecqa_m2snet.py", "model.filter_size", 0, "give 1 or more"),
  (
    "trecqa_m2snet.py",
    "model.filters",
    (32, 0),
    "give one value or more, and for each: give 1 or more",
  ),
  ("trecqa_m2snet.py", "model.overlap", "zebra", "use one of by_length, counts, shares"),
  ("wikiqa_cassie.py", "model.epsilon", 0.0, "give a number above 0"),
  ("wikiqa_cassie.py", "model.graph_layers", -1, "give 0 or more"),
  (
    "wikiqa_cassie.py",
    "model.head_reads",
    ("h", "zebra"),
    "give one value or more, and for each: use one of h, r, d, cls",
  ),
  ("wikiqa_cassie.py", "model.hidden", 0, "give 1 or more"),
  ("wikiqa_cassie.py", "model.template", "zebra", "use one of context, pair, joint"),
  ("wikiqa_loct.py", "model.template", "zebra", "use one of local_context, context, pair"),
  ("wikiqa_triplet.py:in_batch", "loss.similarity", "l2", "use one of cosine, dot, euclidean"),
]


@pytest.mark.parametrize("file, key, value, message", WRONG)
def test_a_config_out_of_range_is_refused_before_anything_is_read(file, key, value, message):
  config = jobs.load(f"configs/{file}")
  check.check(config)
  with config.unlocked():
    config.update_from_flattened_dict({key: value})
  for refuses in (check.check, describe):
    with pytest.raises(InputError) as error:
      refuses(config)
    assert str(error.value).startswith(f"{key} = {value!r}: {message}")


@pytest.mark.parametrize(
  "file, names",
  [("wikiqa_triplet.py", "euclidean, cosine"), ("wikiqa_siamese.py", "euclidean, cosine, head")],
)
def test_a_score_that_the_system_lacks_is_refused_before_anything_is_read(file, names):
  config = jobs.load(f"configs/{file}")
  with config.unlocked():
    config.model.score = "zebra"
  with pytest.raises(InputError, match=f"model.score = 'zebra': use one of {names}$"):
    check.check(config)


def test_a_class_of_the_users_is_checked_too():
  config = tiny.config("triplet", encoder__name="as2jax.encoders.bert:BertEncoder")
  with config.unlocked():
    config.encoder.unroll = -1
  with pytest.raises(InputError, match="encoder.unroll = -1: give 0 or more"):
    check.check(config)
