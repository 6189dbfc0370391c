"""Exported runs in the original libraries: the same scores; their card; what is refused."""

import dataclasses
import json
import re
import shutil
from unittest.mock import Mock

import numpy as np
import pytest
import tiny
import tiny_encoders
import yaml

import as2jax
from as2jax.commands import app
from as2jax.data import dataset as datasets
from as2jax.data import trec_files
from as2jax.encoders import sentence_folder
from as2jax.evaluation import results
from as2jax.inference import export
from as2jax.models.asbert import Triplet
from as2jax.models.biencoder import SentenceBert
from as2jax.models.cete import FeatureBased
from as2jax.models.crossencoder import CrossEncoder
from as2jax.models.system import exported_form
from as2jax.runtime.errors import InputError
from as2jax.training.build import load

TOLERANCE = 1e-4


def questions():
  return [q for q in datasets.load("sample").splits["dev"] if q.candidates][:12]


def own_scores(path, folder="."):
  """The scores that the run itself wrote of each question's candidates."""
  scores = trec_files.read_run(path / "eval" / "dev" / folder / "run.trec")
  return [np.asarray([scores[q.id][c.id] for c in q.candidates]) for q in questions()]


def library():
  return pytest.importorskip("sentence_transformers", reason="sentence-transformers is missing")


def similarity_scores(folder):
  model, scores = library().SentenceTransformer(str(folder), device="cpu"), []
  for question in questions():
    candidates = model.encode([c.text for c in question.candidates])
    scores.append(model.similarity(model.encode([question.text]), candidates).numpy()[0])
  return scores


def cross_scores(folder):
  import torch

  model, scores = library().CrossEncoder(str(folder), device="cpu"), []
  for question in questions():
    pairs = [(question.text, c.text) for c in question.candidates]
    scores.append(model.predict(pairs, activation_fn=torch.nn.Identity()))
  return scores


def loaded_scores(folder):
  return next(iter(as2jax.load(folder).all_scores(questions()).values()))


def assert_same(actual, expected, tolerance=TOLERANCE):
  actual, expected = np.concatenate(actual), np.concatenate(expected)
  difference, spread = np.abs(actual - expected).max(), np.ptp(expected)
  print(f"max abs difference {difference:.1e} of {len(actual)} scores over a range of {spread:.1e}")
  # Also far smaller than what tells the candidates apart, little though a tiny run teaches.
  assert difference <= min(tolerance, 1e-3 * spread)


UNTRAINED = [  # how they pool and score
  ("modernbert", "triplet", {}),
  ("deberta-v2", "triplet", {}),
  ("electra", "triplet", {}),
  ("distilbert", "triplet", {}),
  ("bert", "triplet", {"model__score": "cosine", "model__pooling": "weighted_mean"}),
  ("roberta", "triplet", {"model__pooling": "max"}),
  ("xlnet", "triplet", {"model__pooling": "cls_last"}),
  ("roberta", "siamese", {"model__score": "head"}),
]


@pytest.mark.parametrize(
  "family, model, how",
  [
    ("bert", "triplet", {}),
    *(pytest.param(*of, {"epochs": 0, **how}, marks=pytest.mark.slow) for *of, how in UNTRAINED),
  ],
)
def test_a_biencoder_scores_the_same(family, model, how, trained, tmp_path):
  path, _ = trained(family, model, **how)
  folder = export.export(path, tmp_path / "out")
  expected = own_scores(path, "euclidean" if model == "siamese" else ".")  # its head stays behind
  assert_same(similarity_scores(folder), expected)
  assert_same(loaded_scores(folder), expected, 1e-5)
  settings = json.loads((folder / "config_sentence_transformers.json").read_text())
  cosine = how.get("model__score") == "cosine"
  assert settings["similarity_fn_name"] == ("cosine" if cosine else "euclidean")


@pytest.mark.parametrize(
  "family, head",
  [
    ("bert", {"epochs": 1}),
    ("bert", {"epochs": 0, "model__head": "mean", "model__token_types": "zero"}),
    *(
      pytest.param(x, {"epochs": 0}, marks=pytest.mark.long)
      for x in ("roberta", "xlnet", "deberta-v2")
    ),
  ],
)
def test_a_crossencoder_scores_the_same(family, head, trained, tmp_path):
  path, _ = trained(family, "crossencoder", **head)
  folder = export.export(path, tmp_path / "out")
  expected = own_scores(path)
  assert_same(cross_scores(folder), expected, 1e-5)
  labels = json.loads((folder / "config.json").read_text()).get("id2label")
  modules = "model__head" in head or family == "deberta-v2"
  assert labels == (None if modules else {"0": "answer"})  # a list of modules has none
  # Opened again it is the same ranker, and the library's `rank` gives P(1) in the same order.
  assert_same(loaded_scores(folder), expected, 1e-5)
  question, model = questions()[0], library().CrossEncoder(str(folder), device="cpu")
  ranked = model.rank(question.text, [c.text for c in question.candidates])
  logits = expected[0][[entry["corpus_id"] for entry in ranked]]
  assert (np.diff(logits) <= 0).all()
  np.testing.assert_allclose([e["score"] for e in ranked], 1 / (1 + np.exp(-logits)), atol=1e-5)


def test_a_crossencoder_keeps_its_prompt(trained, tmp_path):
  path, _ = trained("bert", "crossencoder", data__prompts=("glaciers or dogs: ", ""), epochs=0)
  folder = export.export(path, tmp_path / "out")
  expected = own_scores(path)
  assert_same(cross_scores(folder), expected, 1e-5)
  assert "`glaciers or dogs: ` stands before each question" in (folder / "README.md").read_text()
  ranker = as2jax.load(folder)
  assert ranker.predictor.components.prompts.question == "glaciers or dogs: "
  assert_same(next(iter(ranker.all_scores(questions()).values())), expected, 1e-5)


def test_the_code_of_the_card_puts_prompts_before_texts(trained, tmp_path):
  library()
  path, _ = trained("bert", "triplet", data__prompts=("glaciers or dogs: ", "who: "), epochs=0)
  folder = export.export(path, tmp_path / "out")
  code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)[1]
  scores = []
  for question in questions()[:2]:
    names = {"questions": [question.text], "sentences": [c.text for c in question.candidates]}
    exec(code.replace("FOLDER", str(folder)), names)
    scores.append(names["scores"].numpy()[0])
  assert_same(scores, own_scores(path)[:2])


def test_sentence_bert_with_dense_layers(trained, tmp_path):
  """All that a folder may hold beside the transformer, written and read by both sides."""
  library()
  path, config = trained("bert", "triplet")
  experiment = load(config, data=False, workdir=path)
  source = experiment.source
  model = SentenceBert(
    source.module, ("max", "mean"), "cosine", ((6, "gelu", False), (5, "tanh", True)), True
  )
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  params = {f"encoder/{name}": value for name, value in source.params.items()}
  params |= {"dense_0/kernel": draw(32, 6), "dense_1/kernel": draw(6, 5), "dense_1/bias": draw(5)}
  folder = tmp_path / "out"
  folder.mkdir()
  export.write(
    folder,
    dataclasses.replace(experiment, model=model),
    params,
    form=model.published_form(),
    base=config.encoder.pretrained,
    lower_case=False,
  )
  ours = as2jax.load(folder).encode(tiny_encoders.TEXTS)
  theirs = (
    library().SentenceTransformer(str(folder), device="cpu").encode(list(tiny_encoders.TEXTS))
  )
  np.testing.assert_allclose(ours, theirs, atol=1e-5)
  actual = sentence_folder.read(folder)
  assert actual.fields == {"pooling": model.pooling, "dense": model.dense, "normalize": True}


def test_one_of_several_seeds(trained, tmp_path):
  path, _ = trained("bert", "crossencoder", seeds=(3, 5), seeds_parallel=True, epochs=0)
  for seed, message in ((None, r"seeds \(3, 5\): choose one"), (4, "seed = 4: the run has 3, 5")):
    with pytest.raises(InputError, match=message):
      export.export(path, tmp_path / "out", seed)
  assert not (tmp_path / "out").exists()
  folder = export.export(path, tmp_path / "out", 5)
  assert_same(cross_scores(folder), own_scores(path, "seed-5"))
  other = np.concatenate(own_scores(path, "seed-3"))  # another random head
  assert np.abs(np.concatenate(own_scores(path, "seed-5")) - other).max() > TOLERANCE
  assert "seed 5 of 3, 5" in (folder / "README.md").read_text()


class Louder(Triplet):
  """A bi-encoder that encodes in its own way, which its published form would not."""

  def encode(self, batch, *, train):
    return super().encode(batch, train=train)


class Shifted(CrossEncoder):
  """A cross-encoder over other token vectors."""

  def token_vectors(self, batch, *, train=False):
    return 1 + super().token_vectors(batch, train=train)


@pytest.mark.parametrize(
  "model, message",
  [
    (lambda e: Triplet(e, "attention", "cosine"), "'attention'.*learned query"),
    (lambda e: CrossEncoder(e, "cls", False, 0.1), "model.pooler = False.*tanh layer"),
    (lambda e: CrossEncoder(e, "cls_last", True, 0.1), "'cls_last'.* reads 'cls' alone"),
    (lambda e: CrossEncoder(e, "cls", False, 0.1, head="cosine"), "'cosine'.* train with .*'mean'"),
    (lambda e: Triplet(object(), "mean", "cosine"), "the encoder object is no transformer"),
    (
      lambda e: FeatureBased(0, 8, 0.2, "none", 1.0, "pre", "float32"),
      "FeatureBased has no counter",
    ),
    (lambda e: Louder(e, "mean", "cosine"), "Louder has no counterpart"),
    (lambda e: Shifted(e, "cls", True, 0.1), "Shifted has no counterpart"),
  ],
)
def test_what_the_original_cannot_express_is_refused(model, message):
  with pytest.raises(InputError, match=message):
    exported_form(model(tiny.encoder_module()))


def test_runs_and_outputs_that_cannot_be(finished_run, trained, tmp_path):
  with pytest.raises(InputError, match="bm25, which has no parameters"):
    export.export(finished_run("bm25"), tmp_path / "out")
  path, _ = trained("bert", "triplet")
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "x").write_text("mine")
  (tmp_path / "file").write_text("")
  for output in (tmp_path / "full", tmp_path / "file", "gs://bucket/x"):
    with pytest.raises(InputError, match=f"^{output} is not a new or empty local folder"):
      export.export(path, output)
  with pytest.raises(InputError, match="below cannot be written"):
    export.export(path, tmp_path / "file" / "below")
  (tmp_path / "empty").mkdir()
  assert app.run(["export", str(path), str(tmp_path / "empty")]) == 0
  assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "full"]


def test_whole_or_not_at_all(trained, tmp_path, monkeypatch):
  path, _ = trained("bert", "triplet")
  full = Mock(side_effect=OSError("no space left"))
  monkeypatch.setattr(export.transformer_folder, "write_tokenizer", full)
  with pytest.raises(InputError, match="cannot be written: no space left"):
    export.export(path, tmp_path / "out")
  assert not list(tmp_path.iterdir())


def test_a_changed_folder_is_refused(finished_run, tmp_path, caplog):
  """Whichever file was changed, added or taken; without the line of digests it is a stranger's."""
  folder = export.export(finished_run("triplet"), tmp_path / "out")
  card = (folder / "README.md").read_text()
  digests = yaml.safe_load(card.split("---")[1])["as2jax_files"]
  present = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
  assert digests.keys() == present - {"README.md"}
  assert as2jax.load(folder).rank("what is ice", ["ice"])
  changes = {name: (folder / name).read_bytes()[:-1] + b" " for name in sorted(digests)}
  for name, content in {**changes, "1_Dense/config.json": b"{}"}.items():
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} is not what as2jax export wrote: export the run"):
      as2jax.load(copy)
    (copy / name).unlink()
    if name in digests:
      with pytest.raises(InputError, match=f"{name} is not what as2jax export wrote"):
        as2jax.load(copy)
    shutil.rmtree(copy)
  lines = [line for line in card.splitlines(True) if not line.startswith("as2jax_files:")]
  (folder / "README.md").write_text("".join(lines))
  (folder / "added.json").write_text("{}")
  with caplog.at_level("INFO"):
    assert as2jax.load(folder).rank("what is ice", ["ice"])
  assert "no digest of its files" in caplog.text


def test_the_card_states_what_results_json_does(trained, tmp_path):
  path, config = trained("bert", "triplet")
  content = results.read(path)
  card = (export.export(path, tmp_path / "out") / "README.md").read_text()
  for name, entry in content["seeds"][0]["metrics"].items():
    assert re.search(
      rf"\| {re.escape(name)} \| {entry['value']:.4f} \| {entry['half_width']:.4f} "
      rf"\| {entry['questions']} \|",
      card,
    ), name
  for split in content["data"]["splits"].values():
    assert split["fingerprint"] in card
  for part in (
    content["weights"]["sha256"],
    config.encoder.pretrained,
    f"pretraining of {config.encoder.pretrained}: unknown",
    '`model.pooling`: "mean"',
    "`loss.margin`: 5.0",
    "seed 0",
    "SentenceTransformer(",
  ):
    assert part in card, part
  counts, outcome = content["data"]["splits"]["train"], content["seeds"][0]
  trained_on = f"({counts['questions']} questions, {counts['pairs']} candidates, {counts['positives']} of them right)"
  for part in (
    f"Trained for {outcome['steps']} steps, {config.epochs} epochs at most, on the split train",
    f"{trained_on}, by the loss `triplet` and adam with a rate of 0.003. ",
    f"best checkpoint, of epoch {outcome['best_epoch']} (step {outcome['best_step']}), by map, dev",
  ):
    assert part in card, part
  assert "base_model" not in card  # a folder of this disk is no name on the hub
  code = re.search(r"```python\n(.*?)```", card, re.S)[1]
  assert code.count("\n") == 3


def test_a_siamese_head_stays_behind_and_the_card_says_so(trained, tmp_path, caplog):
  path, _ = trained("roberta", "siamese", model__score="head", epochs=0)
  outcome = results.read(path)["seeds"][0]
  card = (export.export(path, tmp_path / "out") / "README.md").read_text()
  name = "map[sample-clean/dev]"
  value = outcome["other_scores"]["euclidean"][name]["value"]
  assert f"| {name} | {value:.4f} |" in card and "ranked by `euclidean`" in card
  assert "the run's own figures are not those above" in card and "\nNot trained: these" in card
  reason = "he run ranks by `head`, whose layers have no place in the folder"
  assert "Ranks otherwise than the run" in card and reason in card and reason in caplog.text


def test_text_rules_are_said_not_to_be_in_the_folder(trained, tmp_path, caplog):
  path, _ = trained("bert", "crossencoder", data__rules=("lowercase", "alphanumeric"), epochs=0)
  card = (export.export(path, tmp_path / "out") / "README.md").read_text()
  reason = "data.rules = ('lowercase', 'alphanumeric')"
  assert reason in card.split("## Ranks otherwise than the run")[1] and reason in caplog.text
  caplog.clear()
  path, _ = trained("bert", "crossencoder", epochs=1)
  card = (export.export(path, tmp_path / "plain") / "README.md").read_text()
  assert "otherwise" not in card and "otherwise" not in caplog.text
