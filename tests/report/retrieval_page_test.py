"""The page of a retrieval: what both systems found, with ranks in the whole list; the projection."""

import numpy as np
import page_cases
import pytest

from as2jax.data import trec_files
from as2jax.inference import modes
from as2jax.report import explanations, make, pictures, runs
from configs import wikiqa_baseline


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
  """Two finished runs of words over the sample's pool."""
  folders = []
  for name in ("bm25", "word_overlap"):
    config = wikiqa_baseline.get_config(f"{name},sample")
    config.evaluation.task, config.select = "retrieve", "mrr"
    folders.append(tmp_path_factory.mktemp("retrieval") / name)
    modes.run(config.lock(), str(folders[-1]))
  return folders


def test_each_question_has_what_both_found(searched, tmp_path):
  make.make(list(map(str, searched)), tmp_path / "x.html")
  shown = page_cases.Page((tmp_path / "x.html").read_text())
  assert "MRR" in shown.of("p", **{"class": "verdict"})[0][1]
  ids = [text for _, text in shown.of("small")]
  actual = [trec_files.read_run(folder / "eval/test/run.trec") for folder in searched]
  for id, question in zip(ids, shown.candidates(), strict=True):
    assert any(label == 1 for _, _, label, *_ in question["c"])
    for run, system in zip(actual, question["s"], strict=True):
      for (candidate, *_), rank, score in zip(
        question["c"], system["r"][0], system["v"], strict=True
      ):
        assert (rank is None) == (score is None) == (candidate not in run[id])
        if rank is not None:
          above = sum(np.float32(x) > np.float32(run[id][candidate]) for x in run[id].values())
          assert int(str(rank).split("–")[0]) == above + 1
  assert any(None in system["r"][0] for q in shown.candidates() for system in q["s"])


def test_a_run_over_a_pool_leaves_its_page(searched):
  assert (searched[0] / make.NAME).exists()


def test_projections_want_vectors(searched):
  assert explanations.projections(runs.read([str(searched[0])])) == ("", {})


def test_points_keep_their_distances():
  points = np.array([[0.0, 0.0], [0.3, 0.0], [0.0, 0.3]])
  figure = pictures.scatter("title", points, 1)
  place = np.array(
    [
      [float(s.attributes["cx"]), float(s.attributes["cy"])]
      for s in figure.shapes
      if s.tag == "circle"
    ]
  )
  across, up = abs(place[1] - place[0])[0] / 338, abs(place[2] - place[0])[1] / 272
  assert across == pytest.approx(up, rel=0.01)  # each axis spans the same range
