"""Heat maps: the cosines by hand, the words, the files, what is refused."""

import json
import shutil

import jax
import numpy as np
import pytest
import tiny
from flax import traverse_util
from safetensors.numpy import load_file, save_file

import as2jax
from as2jax.commands import app
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders.checkpoints import pretrained
from as2jax.inference import modes
from as2jax.inference.explain import heatmap, token_similarity
from as2jax.inference.run import Run

QUESTION = "Why is the Fjord's water cold?"
CANDIDATE = "Melting glaciers feed it, so the water stays at 4 $ or $ less."
Q_WORDS = ("Why", "is", "the", "Fjord's", "water", "cold", "?")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  """The tiny encoder with layer norms as they are initialised: its vectors differ in direction."""
  folder = tmp_path_factory.mktemp("encoder") / "x"
  shutil.copytree(tiny.encoder_folder(), folder)
  weights = load_file(folder / "model.safetensors")
  for name, value in weights.items():
    if "LayerNorm" in name:
      weights[name] = np.full_like(value, float(name.endswith("weight")))
  save_file(weights, folder / "model.safetensors")
  return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, encoder):
  """Runs over the tiny encoder: `triplet`, `crossencoder`, and `seeds`, two that never trained."""
  root = tmp_path_factory.mktemp("runs")
  few = dict(
    optimizer__rate=3e-4,
    optimizer__warmup=0.0,
    data__train_fraction=0.2,
    evaluation__splits=("dev",),
    encoder__pretrained=encoder,
  )
  for model in ("triplet", "crossencoder"):
    modes.run(tiny.config(model, "grouped", **few), str(root / model))
  modes.run(
    tiny.config("crossencoder", "grouped", epochs=0, seeds=(0, 4), **few), str(root / "seeds")
  )
  return root


def pieces(text):
  """Ids of each word of `text`, cut by hand at white space and before punctuation."""
  tokenizer = load_tokenizer(tiny.encoder_folder())
  spaced = text.replace("?", " ?").replace(",", " ,").replace(".", " .")
  return [(word, tokenizer.encode([word]).ids) for word in spaced.split()]


def by_hand(params, joined):
  """Cosines of the words, from the encoder on plain rows."""
  encoder = tiny.encoder_module()
  sides = [pieces(QUESTION), pieces(CANDIDATE)]
  cls, sep = 2, 3

  def hidden(ids, types):
    tokens = tiny.tokens(1, 1, len(ids))
    array = lambda x: jax.numpy.asarray(x, jax.numpy.int32)[None, None]
    tokens = tokens.replace(ids=array(ids), type=array(types))
    return np.asarray(
      jax.jit(lambda p, t: encoder.apply({"params": p}, t, train=False))(params, tokens)
    )[0, 0]

  flat = [np.concatenate([ids for _, ids in side]) for side in sides]
  if joined:
    ids = [cls, *flat[0], sep, *flat[1], sep]
    every = hidden(ids, [0] * (len(flat[0]) + 2) + [1] * (len(flat[1]) + 1))
    starts = (1, len(flat[0]) + 2)
    outputs = [every[start : start + len(x)] for start, x in zip(starts, flat)]
  else:
    outputs = [hidden([cls, *x, sep], [0] * (len(x) + 2))[1:-1] for x in flat]
  vectors = []
  for side, output in zip(sides, outputs):
    ends = np.cumsum([len(ids) for _, ids in side])
    vectors.append([output[end - len(ids) : end].mean(0) for end, (_, ids) in zip(ends, side)])
  return np.array(
    [[u @ v / np.linalg.norm(u) / np.linalg.norm(v) for v in vectors[1]] for u in vectors[0]]
  ), [[word for word, _ in side] for side in sides]


def encoder_tree(params):
  """The encoder's of a run's parameters `[seed, …]` by path."""
  return traverse_util.unflatten_dict(
    {
      path.removeprefix("encoder/"): value[0]
      for path, value in params.items()
      if path.startswith("encoder/")
    },
    sep="/",
  )


@pytest.mark.parametrize("model", ["triplet", "crossencoder"])
def test_the_matrix_is_that_of_the_encoders_vectors(folder, encoder, model, tmp_path):
  output = tmp_path / "x.png"
  before, after = heatmap.make(
    folder / model, output, question=QUESTION, candidate=CANDIDATE, before=True
  )
  untrained = pretrained.load_params(encoder, tiny.encoder_module())
  trained = encoder_tree(tiny.best_parameters(folder / model))
  for actual, params in ((before, untrained), (after, trained)):
    expected, (q, c) = by_hand(params, joined=model == "crossencoder")
    assert list(actual.question) == q == list(Q_WORDS) and list(actual.candidate) == c
    np.testing.assert_allclose(actual.values, expected, atol=2e-5)
    assert np.ptp(expected) > 0.3
    assert actual.score_name == {"triplet": "euclidean", "crossencoder": "logit"}[model]
  assert np.abs(before.values - after.values).max() > 1e-3 and before.score != after.score


def test_a_prompt_is_read_and_not_shown(folder, tmp_path):
  """Its words stand before each text, and the picture has the text's own."""
  prompted = shutil.copytree(folder / "triplet", tmp_path / "prompted")
  path = prompted / "config.json"
  config = json.loads(path.read_text())
  config["data"]["prompts"] = ["the query : ", "a passage , "]
  path.write_text(json.dumps(config))
  texts = {"question": QUESTION, "candidate": CANDIDATE}
  [plain] = heatmap.make(folder / "triplet", tmp_path / "x.png", **texts)
  [actual] = heatmap.make(prompted, tmp_path / "x.png", **texts)
  assert (actual.question, actual.candidate) == (plain.question, plain.candidate)
  assert actual.values.shape == plain.values.shape
  assert np.abs(actual.values - plain.values).max() > 1e-3
  assert actual.score == pytest.approx(as2jax.load(prompted).scores([(QUESTION, CANDIDATE)])[0])


def test_each_seed_has_its_own_head(folder, tmp_path):
  texts = {"question": QUESTION, "candidate": CANDIDATE}
  by_seed = {
    seed: heatmap.make(folder / "seeds", tmp_path / "x.png", seed=seed, **texts)[0]
    for seed in (None, 0, 4)
  }
  best = Run(folder / "seeds").best_seed
  assert by_seed[None].score == by_seed[best].score and by_seed[0].score != by_seed[4].score
  np.testing.assert_array_equal(by_seed[0].values, by_seed[4].values)  # of the same weights


def test_the_files(folder, tmp_path, capsys):
  output = tmp_path / "deep" / "x.png"
  arguments = [
    f"{folder / 'crossencoder'}",
    f"--text-question={QUESTION}",
    f"--text-candidate={CANDIDATE}",
    f"--output={output}",
  ]
  assert app.run(["explain", *arguments, "--before"]) == 0
  printed = capsys.readouterr().out
  assert len(printed.splitlines()) == 5 and json.loads(printed.splitlines()[0])["cosine"] > 0
  from matplotlib.image import imread

  picture = imread(output)
  assert picture.shape[0] > 200 and picture.shape[1] > 500
  assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 50  # cells of many colours
  before, after = heatmap.make(
    folder / "crossencoder", output, question=QUESTION, candidate=CANDIDATE, before=True
  )
  for name, actual in (("x.before.tsv", before), ("x.tsv", after)):
    head, *lines = (output.parent / name).read_text().splitlines()
    assert tuple(head.split("\t")[1:]) == actual.candidate
    assert tuple(line.split("\t")[0] for line in lines) == actual.question
    values = np.array([line.split("\t")[1:] for line in lines], float)
    np.testing.assert_allclose(values, actual.values, atol=1e-6)


def test_a_question_of_the_data(folder, tmp_path):
  from as2jax.data.datasets import dataset

  question = next(q for q in dataset.load("sample").splits["test"] if len(q.candidates) > 1)
  (actual,) = heatmap.make(
    folder / "triplet",
    tmp_path / "x.png",
    question_id=question.id,
    candidate_id=question.candidates[1].id,
  )
  (same,) = heatmap.make(
    folder / "triplet",
    tmp_path / "x.png",
    question=question.text,
    candidate=question.candidates[1].text,
  )
  assert actual.question == same.question
  np.testing.assert_array_equal(actual.values, same.values)
  (twice,) = heatmap.make(
    folder / "triplet", tmp_path / "x.png", question=QUESTION, candidate=QUESTION
  )
  np.testing.assert_allclose(np.diag(twice.values), 1)


def test_a_model_may_have_token_vectors_of_its_own(folder, tmp_path, monkeypatch):
  from as2jax.models.asbert import Triplet

  (plain,) = heatmap.make(
    folder / "triplet", tmp_path / "x.png", question="cold water", candidate="the cold"
  )

  def token_vectors(self, batch):
    return jax.numpy.ones((*batch.tokens.ids.shape, 3)) * (batch.tokens.ids[..., None] > 5)

  monkeypatch.setattr(Triplet, "token_vectors", token_vectors, raising=False)
  (own,) = heatmap.make(
    folder / "triplet", tmp_path / "x.png", question="cold water", candidate="the cold"
  )
  np.testing.assert_allclose(own.values, 1)
  assert np.abs(plain.values - 1).max() > 1e-3


def test_words_as_written():
  assert token_similarity.as_written("The  CAT, the cat!", ["the", "cat", "the", "!"]) == (
    "The",
    "CAT",
    "the",
    "!",
  )
  zero = token_similarity.cosine(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[2.0, 2.0]]))
  np.testing.assert_allclose(zero, [[0], [0.5**0.5]])


def test_what_is_refused(folder, tmp_path, capsys, finished_run):
  (tmp_path / "begun").mkdir()
  (tmp_path / "begun" / "config.json").write_text(
    json.dumps(json.loads((folder / "triplet" / "config.json").read_text()))
  )
  texts = ["--text-question=a", "--text-candidate=b"]
  png = f"--output={tmp_path / 'x.png'}"
  run = f"{folder / 'triplet'}"
  for arguments, message in [
    ([f"{tmp_path / 'zebra'}", *texts, png], "zebra holds no run"),
    ([f"{finished_run('bm25')}", *texts, png], "bm25, which has no token vectors"),
    ([f"{tmp_path / 'begun'}", *texts, png], "holds no checkpoint"),
    ([run, *texts, "--output=x.jpg"], "ends in .png"),
    ([run, *texts, png, "--seed=1"], "seed = 1: the run has 0"),
    ([run, "--text-question=a", png], "give --text-question and --text-candidate"),
    ([run, *texts, "--question-id=Q1", png], "give --text-question and --text-candidate"),
    ([run, "--question-id=zebra", "--candidate-id=C", png], "no such question in its split 'test'"),
    ([run, *texts, "--output=/dev/null/x.png"], "cannot be written"),
  ]:
    assert app.run(["explain", *arguments]) == 2, arguments
    captured = capsys.readouterr()
    assert message in captured.err and not captured.out, captured.err
  assert not (tmp_path / "x.png").exists()
