"""OpenVINO computes the encoder as JAX does, and refuses what it would compute otherwise."""

import importlib.util
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_encoders
from flax import traverse_util

from as2jax.commands import app
from as2jax.data.batches.batch import Tokens
from as2jax.encoders import transformer_folder
from as2jax.inference.index import Index
from as2jax.inference.open import load
from as2jax.runtime.errors import InputError

TEXTS = ["the cat sat on the mat", "a dog came in", "nobody was there", "glaciers melt slowly"]
ASKED = "who sat on the mat"
CASES = {
  "bert": {},
  "bert-relu": {"activation": "relu"},
  "bert-tanh": {"activation": "gelu_new"},
  "roberta": {},
  "electra": {},
  "distilbert": {},
}


@pytest.fixture(scope="module")
def openvino():
  if importlib.util.find_spec("openvino") is None:
    pytest.skip("openvino is not installed (the extra openvino)")
  from as2jax.inference import openvino

  return openvino


def packed():
  """Two rows of units of 1 to 9 tokens, with padding between and behind them."""
  random = np.random.default_rng(0)
  rows = np.zeros((4, 2, 24), np.int32)
  for row, lengths in enumerate([(9, 1, 6), (3, 7)]):
    start = row
    for number, length in enumerate(lengths, 1):
      part = slice(start, start + length)
      rows[0, row, part] = random.integers(5, 40, length)
      rows[1, row, part], rows[2, row, part] = number, np.arange(length)
      rows[3, row, part] = np.arange(length) % 2
      start += length + row
  return rows


@pytest.mark.parametrize("case", CASES)
def test_the_network_is_that_of_jax(openvino, case, tmp_path):
  import openvino as library

  folder = tiny_encoders.folder(case.partition("-")[0], tmp_path / "encoder")
  encoder = tiny_encoders.encoder(folder).clone(**CASES[case])
  rows = packed()
  rows[3] %= max(encoder.type_vocab_size, 1)
  tokens = Tokens(*jnp.asarray(rows[:, None]), jnp.zeros_like(rows[:1]))
  flat = transformer_folder.load_params(folder, encoder)
  params = traverse_util.unflatten_dict(flat, sep="/")
  expected = np.asarray(encoder.apply({"params": params}, tokens, train=False))[0]
  for int8, atol in ((False, 1e-5), (True, 0.2)):
    graph = openvino.encoder_graph(encoder, params, int8=int8)
    how = {"INFERENCE_PRECISION_HINT": "f32"}
    actual = library.Core().compile_model(graph, "CPU", how)(list(rows))[0]
    np.testing.assert_allclose(actual[rows[1] > 0], expected[rows[1] > 0], atol=atol)


@pytest.mark.parametrize("system", ["triplet", "crossencoder"])
def test_a_ranker_is_the_same_by_openvino(openvino, finished_run, system, tmp_path):
  ours = load(finished_run(system))
  theirs = load(finished_run(system), backend="openvino")
  assert theirs.fingerprint == ours.fingerprint
  assert sys.modules["openvino_telemetry"] is None
  np.testing.assert_allclose(
    theirs.scores([(ASKED, text) for text in TEXTS]),
    ours.scores([(ASKED, text) for text in TEXTS]),
    atol=1e-5,
  )
  hits = theirs.rank(ASKED, TEXTS)
  assert [hit.text for hit in hits] == [hit.text for hit in ours.rank(ASKED, TEXTS)]
  assert theirs.select(ASKED, " ".join(TEXTS), top_k=1, threshold=None).sentences
  if system == "crossencoder":
    return
  theirs.warm_up()
  np.testing.assert_allclose(theirs.encode_query(TEXTS), ours.encode_query(TEXTS), atol=1e-5)
  index = theirs.index(TEXTS, path=tmp_path / "whole")
  assert Index.open(tmp_path / "whole").search(ASKED, 1)[0].text == index.search(ASKED, 1)[0].text
  # Of 8 bits the vectors are others, and so is the fingerprint by which an index knows its model.
  small = load(finished_run(system), backend="openvino-int8")
  assert small.fingerprint != ours.fingerprint
  apart = np.abs(small.encode_query(TEXTS) - ours.encode_query(TEXTS)).max()
  assert 1e-5 < apart < 0.1
  index = small.index(TEXTS, path=tmp_path / "small")
  assert Index.open(tmp_path / "small").search(ASKED) == index.search(ASKED)
  with pytest.raises(InputError, match="made with other parameters, tokeniser or settings"):
    Index.open(tmp_path / "small", ranker=ours)


def test_what_openvino_does_not_compute_is_refused(openvino, finished_run):
  for system, backend, message in (
    ("loct", "openvino", "is loct over BertEncoder: OpenVINO computes .*; leave backend at 'jax'"),
    ("bm25", "openvino", "is bm25 without an encoder: OpenVINO computes"),
    ("triplet", "onnx", "backend = 'onnx': use one of jax, openvino, openvino-int8$"),
  ):
    with pytest.raises(InputError, match=message):
      load(finished_run(system), backend=backend)


def test_commands_take_the_backend_and_name_an_absent_library(monkeypatch, tmp_path, capsys):
  monkeypatch.setitem(sys.modules, "openvino", None)
  file = tmp_path / "q.csv"
  file.write_text("question,candidate,text\nwho sat,the cat sat,the cat sat\n")
  for command, *arguments in (["rank", str(file)], ["index", str(file), "-o", "x"], ["serve"]):
    assert app.run([command, "run", *arguments, "--backend=openvino"]) == 2
    assert capsys.readouterr().err == (
      "as2jax: backend = 'openvino' needs openvino, which is not installed: pip install "
      "'as2jax[openvino]'\n"
    )
  of_another = ["run", str(file), "--ranking=x.run", "--backend=openvino"]
  assert app.run(["rank", *of_another]) == 2 and "are computed by jax" in capsys.readouterr().err
