"""Two runs side by side over a pool, and the questions of one answer as a picture."""

import numpy as np
import pytest
import tiny_pool

from as2jax.commands import app
from as2jax.data.datasets.pool import Pool
from as2jax.data.record import Passage, Query
from as2jax.inference import modes
from as2jax.inference.explain import pool_view
from as2jax.inference.hit import Hit
from as2jax.runtime.errors import InputError


def pool():
  passages = tuple(Passage(f"p{i}", f"sentence number {i}") for i in range(4))
  queries = [
    Query("a", "which one ?", ("p1",), (1,)),
    Query("b", "which other ?", ("p1",), (1,)),
    Query("c", "what ?", ("p2",), (1,)),
  ]
  return Pool(passages, tuple(queries))


def fixed(name, order, vectors=None):
  return pool_view.Retriever(
    name,
    lambda question, k: [
      Hit(i, score, pool().passages[i].text, pool().passages[i].id)
      for i, score in zip(order[:k], np.linspace(1, 0, len(order[:k])))
    ],
    vectors and (lambda questions: np.asarray(vectors[: len(questions)], np.float32)),
  )


def test_two_runs_stand_side_by_side():
  text = pool_view.side_by_side(
    "which one ?", [fixed("first", [1, 0]), fixed("second", [3, 1])], pool(), top=2
  )
  assert text.splitlines() == [
    "question: which one ? (1 right)",
    "",
    "first                         second",
    "",
    "+ 1. 1.000 sentence number 1    1. 1.000 sentence number 3",
    "  2. 0.000 sentence number 0  + 2. 0.000 sentence number 1",
  ]


def test_the_questions_of_one_answer():
  assert pool_view.questions_of(pool(), "most") == (
    "sentence number 1",
    ["which one ?", "which other ?"],
  )
  with pytest.raises(InputError, match="1 questions have it"):
    pool_view.questions_of(pool(), "p2")
  with pytest.raises(InputError, match="no such passage .the first is p0"):
    pool_view.questions_of(pool(), "zebra")


def test_projection_keeps_what_two_directions_hold():
  random = np.random.default_rng(0)
  plane = random.normal(size=(2, 7))
  vectors = random.normal(size=(9, 2)) @ plane
  unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
  points = pool_view.projected(vectors)
  distances = lambda x: np.square(x[:, None] - x[None]).sum(-1)
  np.testing.assert_allclose(distances(points), distances(unit), atol=1e-9)
  np.testing.assert_allclose(
    pool_view.closeness(vectors), distances(unit)[np.triu_indices(9, 1)].mean()
  )
  assert pool_view.projected(np.ones((3, 1))).shape == (3, 2)


def test_a_picture_and_its_numbers(tmp_path):
  runs = [fixed("first", [0], [[1, 0], [0, 2]]), fixed("second", [0], [[1, 1], [3, 3]])]
  text = pool_view.picture_of("p1", runs, pool(), tmp_path / "x.png")
  assert "first: SSE 2.0000 (2 questions)" in text and "second: SSE 0.0000" in text
  assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
  head, *rows = (tmp_path / "x.tsv").read_text().splitlines()
  assert head.split("\t") == ["number", "question", "first x", "first y", "second x", "second y"]
  assert [row.split("\t")[1] for row in rows] == ["which one ?", "which other ?"]
  with pytest.raises(InputError, match="second has no vectors"):
    pool_view.picture_of("p1", [runs[0], fixed("second", [0])], pool(), None)
  with pytest.raises(InputError, match="ends in .png"):
    pool_view.picture_of("p1", runs, pool(), tmp_path / "x.jpg")


def test_the_command_on_runs(tmp_path, capsys):
  tiny_pool.write(tmp_path)
  modes.run(tiny_pool.config(tmp_path, "triplet", epochs=0), str(tmp_path / "vectors"))
  modes.run(tiny_pool.words(tmp_path), str(tmp_path / "words"))
  held = pool_view.open_pool(tmp_path / "vectors", "test")
  query = held.queries[0]
  both = [str(tmp_path / name) for name in ("vectors", "words")]
  assert app.run(["lab", "pool", *both, f"--text-question={query.text}", "--top=3"]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].startswith(f"question: {query.text}")
  # What the run's own evaluation found for the question is what the tool shows.
  actual = pool_view.open_run(tmp_path / "vectors", held).search(query.text, 3)
  run = [
    line.split()
    for line in (tmp_path / "vectors" / "eval" / "test" / "run.trec").read_text().splitlines()
  ]
  mine = [(d, float(s)) for q, _, d, _, s, _ in run if q == query.id][:3]
  assert [hit.id for hit in actual] == [d for d, _ in mine]
  # Both have the square of the distance.
  np.testing.assert_allclose(
    [hit.score for hit in actual], [s for _, s in mine], rtol=1e-4, atol=1e-4
  )
  assert app.run(["lab", "pool", both[0], "--answer=most"]) == 0
  assert "SSE" in capsys.readouterr().out
  assert app.run(["lab", "pool", both[1], "--answer=most"]) == 2
  assert "has no vectors of questions" in capsys.readouterr().err
  assert (
    app.run(["lab", "pool", both[0]]) == 2
    and app.run(["lab", "pool", both[0], "--text-question=x", "--top=0"]) == 2
  )
