"""What a run sees: cosines and plans by hand, the words, the files, what is refused."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import tiny
import tiny_systems
from flax import traverse_util

import as2jax
from as2jax.commands import app
from as2jax.data import dataset
from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.inference import explain, modes
from as2jax.inference.explain import Similarity
from as2jax.inference.run import Run

QUESTION = "Why is the Fjord's water cold?"
CANDIDATE = "Melting glaciers feed it, so the water stays at 4 $ or $ less."
Q_WORDS = ("Why", "is", "the", "Fjord's", "water", "cold", "?")
ALIGNED = "What is the cause of a melting glacier?"
SENTENCE = "Warm water, so it is said, melts the glacier."
PREVIOUS = "The Fjord's water is warm."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Runs over `even_encoder` that never trained."""
  root = tmp_path_factory.mktemp("runs")
  few = {"data__train_fraction": 0.2, "evaluation__splits": ("dev",), "epochs": 0}
  few["encoder__pretrained"] = tiny_systems.even_encoder()
  for name, model in (("triplet",) * 2, ("crossencoder",) * 2, ("cosine", "accurate")):
    modes.run(tiny.config(model, "grouped", **few), str(root / name))
  return root


def pieces(text):
  """Ids of each word of `text`, cut by hand at white space and before punctuation."""
  tokenizer = load_tokenizer(tiny.encoder_folder())
  spaced = text.replace("?", " ?").replace(",", " ,").replace(".", " .")
  return [(word, tokenizer.encode([word]).ids) for word in spaced.split()]


def by_hand(params, joined, second=1):
  """Cosines of the words, from the encoder on plain rows; `second` is the candidate's token type."""
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
    every = hidden(ids, [0] * (len(flat[0]) + 2) + [second] * (len(flat[1]) + 1))
    starts = (1, len(flat[0]) + 2)
    outputs = [every[start : start + len(x)] for start, x in zip(starts, flat)]
  else:
    outputs = [hidden([cls, *x, sep], [0] * (len(x) + 2))[1:-1] for x in flat]
  vectors, spelled = [], []
  for side, output in zip(sides, outputs):
    ends = np.cumsum([len(ids) for _, ids in side])
    means = np.array([output[end - len(ids) : end].mean(0) for end, (_, ids) in zip(ends, side)])
    vectors.append(means / np.linalg.norm(means, axis=1, keepdims=True))
    spelled.append([word for word, _ in side])
  return vectors[0] @ vectors[1].T, spelled


@pytest.mark.parametrize("model", ["triplet", "crossencoder", "cosine"])
def test_the_matrix_is_that_of_the_encoders_vectors(folder, model, tmp_path):
  texts = {"question": QUESTION, "candidates": [CANDIDATE]}
  (actual,) = explain.make(folder / model, tmp_path / "x.png", seed=0, **texts)
  params = traverse_util.unflatten_dict(Run(folder / model).parameters(0), sep="/")["encoder"]
  expected, (q, c) = by_hand(params, model != "triplet", int(model == "crossencoder"))
  assert list(actual.question) == q == list(Q_WORDS) and list(actual.candidate) == c
  np.testing.assert_allclose(actual.values, expected, atol=2e-5)
  assert np.ptp(expected) > 0.3
  assert actual.score_name == ("euclidean" if model == "triplet" else "logit")
  assert actual.score == pytest.approx(
    Run(folder / model).ranker(0).scores([(QUESTION, CANDIDATE)])[0], abs=1e-5
  )


def test_a_prompt_is_read_and_not_shown(folder, tmp_path):
  """Its words stand before each text, and the picture has the text's own."""
  prompted = shutil.copytree(folder / "triplet", tmp_path / "prompted")
  prompts = {"prompts": ["the query : ", "a passage , "]}
  tiny.rewrite(prompted / "config.json", lambda config: config["data"].update(prompts))
  texts = {"question": QUESTION, "candidates": [CANDIDATE]}
  [plain] = explain.make(folder / "triplet", tmp_path / "x.png", **texts)
  [actual] = explain.make(prompted, tmp_path / "x.png", **texts)
  assert (actual.question, actual.candidate) == (plain.question, plain.candidate)
  assert actual.values.shape == plain.values.shape
  assert np.abs(actual.values - plain.values).max() > 1e-3
  assert actual.score == pytest.approx(as2jax.load(prompted).scores([(QUESTION, CANDIDATE)])[0])


def test_the_files(folder, tmp_path, capsys):
  output = tmp_path / "deep" / "x.png"
  texts = [f"--text-question={QUESTION}", f"--text-candidate={CANDIDATE}", f"--output={output}"]
  assert app.run(["explain", str(folder / "triplet"), *texts, "--format=json"]) == 0
  assert json.loads(capsys.readouterr().out)["score_name"] == "euclidean"
  files = {file.name for file in output.parent.iterdir()}
  assert files == {"x.png", "x.tsv"}
  texts = {"question": QUESTION, "candidates": [CANDIDATE]}
  (actual,) = explain.make(folder / "triplet", output, **texts)
  head, *lines = (output.parent / "x.tsv").read_text().splitlines()
  assert tuple(head.split("\t")[1:]) == actual.candidate
  assert tuple(line.split("\t")[0] for line in lines) == actual.question
  values = np.array([line.split("\t")[1:] for line in lines], float)
  np.testing.assert_allclose(values, actual.values, atol=1e-6)


def test_a_question_of_the_data(folder, tmp_path):
  question = next(q for q in dataset.load("sample").splits["test"] if len(q.candidates) > 1)
  make = lambda **of: explain.make(folder / "triplet", tmp_path / "x.png", **of)[0]
  right = question.candidates[question.positives[0]]
  actual = make(question_id=question.id)
  same = make(question=question.text, candidates=[right.text])
  assert actual.question == same.question
  np.testing.assert_array_equal(actual.values, same.values)
  twice = make(question=QUESTION, candidates=[QUESTION])
  np.testing.assert_allclose(np.diag(twice.values), 1)


@pytest.mark.slow
def test_plans_are_of_the_words(finished_run, tmp_path, capsys):
  run = Run(finished_run("cassie"))
  asked = explain.from_texts(run.config, ALIGNED, [SENTENCE], previous=PREVIOUS)
  plans, edges = explain.Words(run, asked).alignment(run.ranker())
  candidate, previous, following = plans
  assert [plan.mode for plan in plans] == ["candidate", "previous", "next"]
  assert candidate.question == ("cause", "melting", "glacier")
  assert candidate.candidate == ("Warm", "water", "said", "melts", "glacier")
  assert previous.candidate == ("Fjord's", "water", "warm") and following.candidate == ()
  for plan in (candidate, previous):
    assert plan.values.sum() == pytest.approx(1, abs=1e-4) and plan.score > 0
  np.testing.assert_allclose(edges.sum(1), [1, 1, 0], atol=1e-6)
  assert (edges[:2, :2] > 0).all() and not edges[:, 2].any()
  texts = [f"--text-question={ALIGNED}", f"--text-candidate={SENTENCE}", f"--previous={PREVIOUS}"]
  picture = f"--output={tmp_path / 'x.png'}"
  assert app.run(["explain", str(run.folder), *texts, picture, "--format=json"]) == 0
  modes_of = [json.loads(line)["mode"] for line in capsys.readouterr().out.splitlines()]
  assert modes_of == ["candidate", "previous"]
  files = {file.name for file in tmp_path.iterdir()}
  assert files == {"x.png", "x.candidate.tsv", "x.previous.tsv"}


def test_a_zero_vector_has_the_cosine_0():
  zero = explain.cosine(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[2.0, 2.0]]))
  np.testing.assert_allclose(zero, [[0], [0.5**0.5]])


def test_pictures_are_drawn_as_shapes_and_text(tmp_path, caplog):
  values = np.array([[0.1, 0.9, -0.2], [0.5, 0.0, 1.0]])
  one = Similarity(("who", "sat"), ("the", "$cat$", "sat"), values, 0.7, "cosine")
  other = Similarity(("who",), ("it",), values[:1, :1], 0.7, "cost")
  for form, part in ((".svg", b"$cat$</text>"), (".pdf", b"/Font"), (".png", b"\x89PNG")):
    explain.draw([one, other], tmp_path / f"x{form}", "x")
    content = (tmp_path / f"x{form}").read_bytes()
    assert part in content and b"<image" not in content and b"/Subtype /Image" not in content
    explain.draw([dataclasses.replace(other, candidate=("北",))], tmp_path / f"x{form}", "x")
    assert ("shows boxes for characters" in caplog.text) == (form != ".svg")
    caplog.clear()


TEXTS = ["--text-question=a", "--text-candidate=b"]
REFUSED = [  # system, arguments, words of the message
  ("zebra", TEXTS, "zebra holds no run"),
  ("bm25", TEXTS, "bm25, which has no token vectors"),
  ("triplet", [*TEXTS, "--output=x.jpg"], "ends in .png"),
  ("triplet", [*TEXTS, "--seed=1"], "seed = 1: the run has 0"),
  ("triplet", [*TEXTS, "--question-id=Q1"], "give --text-question and --text-candidate"),
  ("triplet", ["--question-id=zebra"], "no such question with candidates in its split 'test'"),
  ("triplet", [*TEXTS, "--previous=a"], "reads no context"),
  ("triplet", [*TEXTS, "--text-candidate=c"], "given 2 times; the run reads 1"),
  ("triplet", [*TEXTS, "--output=/dev/null/x.png"], "cannot be written"),
  ("triplet", ["--text-question= ", "--text-candidate=a"], "is empty: give a text"),
]


@pytest.mark.parametrize("system, arguments, message", REFUSED)
def test_what_is_refused(system, arguments, message, finished_run, tmp_path, capsys):
  run = system if system == "zebra" else str(finished_run(system))
  png = f"--output={tmp_path / 'x.png'}"
  assert app.run(["explain", run, png, *arguments]) == 2
  captured = capsys.readouterr()
  assert message in captured.err and not captured.out, captured.err
  assert not (tmp_path / "x.png").exists()
