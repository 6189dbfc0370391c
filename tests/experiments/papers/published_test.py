"""Published figures beside a run: those of its paper's row, never beside toys or another protocol."""

import json

import pytest

from as2jax.config import jobs
from as2jax.experiments.papers import published

FULL = {"parameters": {"all": 22_565_376}}


def published_figures(job, where, content=FULL, **changes):
  file, _, words = job.partition(":")
  config = jobs.load(jobs.path(file) + (f":{words}" if words else ""))
  config.update_from_flattened_dict({key.replace("__", "."): v for key, v in changes.items()})
  figures = published.figures([(json.loads(config.to_json()), content)], where)
  return {(one.metric, one.whose): one.value for one in figures}


@pytest.mark.parametrize(
  "job, where, metric, whose, value",
  [
    ("wikiqa_triplet", "wikiqa-clean/test", "map", "Triplet-BERT (ASBERT)", 0.795),
    ("wikiqa_triplet", "wikiqa-clean/dev", "map", "Triplet-BERT (ASBERT)", 0.830),
    ("wikiqa_triplet:grouped,minilm", "wikiqa-clean/test", "map", "Triplet-BERT (ASBERT)", 0.795),
    ("wikiqa_triplet:roberta", "wikiqa-clean/test", "mrr", "Triplet-RoBERTa (ASBERT)", 0.803),
    ("trecqa_m2snet", "trecqa_all-clean/test", "map", "M²S-Net-4", 0.7793),
    ("wikiqa_cassie", "wikiqa-clean/dev+test", "p@1", "CASSIE", 0.7416),
  ],
)
def test_a_run_has_the_figures_of_its_row(job, where, metric, whose, value):
  figures = published_figures(job, where)
  assert figures[metric, whose] == value
  assert {name for _, name in figures} == {whose}


@pytest.mark.parametrize(
  "job, where",
  [
    ("wikiqa_triplet:sample", "sample-clean/test"),
    ("wikiqa_triplet", "wikiqa-all/test"),  # another question filter
    ("wikiqa_triplet", "trecqa-clean/test"),
    ("wikiqa_baseline:mean,minilm", "wikiqa-clean/test"),  # what is untrained is its encoder
    ("wikiqa_baseline:bm25", "wikiqa-clean/test"),  # no paper's row
  ],
)
def test_others_have_none(job, where):
  assert published_figures(job, where) == {}


def test_neither_toys_nor_second_stages_nor_other_models_have_any():
  known = ("wikiqa_triplet", "wikiqa-clean/test")
  assert published_figures(*known)
  assert published_figures(*known, content={"parameters": {"all": 9_000_000}}) == {}
  assert published_figures(*known, content={}) == {}
  assert published_figures(*known, warm_start__run="runs/asnq") == {}
  assert published_figures(*known, model__pooling="cls") == {}
  assert published_figures("wikiqa_triplet:sample", "wikiqa-clean/test", data__name="sample") == {}
