"""Rerankers and bi-encoders in the forms in which they are published, made by their own library."""

import json
import shutil

import numpy as np
import pytest
import tiny
import tiny_encoders

import as2jax
from as2jax.commands import app
from as2jax.data.record import Candidate, Question
from as2jax.encoders import cross_encoder_folder
from as2jax.inference import export
from as2jax.runtime.errors import InputError

pytest.importorskip("sentence_transformers", reason="sentence-transformers is missing")
torch = pytest.importorskip("torch", reason="torch is not installed")

QUESTION = "who sat on the mat"
TEXTS = (
  "the cat sat on the mat",
  "a dog came in",
  "nobody was there",
  "glaciers melt slowly and nobody " * 20,  # longer than any unit here
)
PAIRS = [(QUESTION, text) for text in TEXTS]
LIKE_ROBERTA = ("mpnet", "xlm-roberta", "camembert")
TOKENS = {
  "modernbert": {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"},
  **dict.fromkeys(LIKE_ROBERTA, {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}),
}
TOKENS["deberta-v2"] = TOKENS["modernbert"]


def encoder(family, path, **config):
  """The folder of a tiny encoder that the original libraries open, too."""
  like_roberta = family in LIKE_ROBERTA
  tiny_encoders.folder("roberta" if like_roberta else family, path)
  file = path / "config.json"
  file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": family, **config}))
  if like_roberta:  # has `tokenizer.json` alone, as the published ones do
    from transformers import AutoTokenizer

    old = path.with_name("with-roberta")
    shutil.copytree(path, old)
    settings = {**json.loads(file.read_text()), "model_type": "roberta"}
    (old / "config.json").write_text(json.dumps(settings))
    AutoTokenizer.from_pretrained(old).backend_tokenizer.save(str(path / "tokenizer.json"))
    for name in ("vocab.json", "merges.txt"):
      (path / name).unlink()
  if family in TOKENS:
    # The general class takes `tokenizer.json` as it is.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **TOKENS[family]}
    settings |= {"model_input_names": ["input_ids", "attention_mask"]}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
  return path


def randomise(model):
  """Weights that tell texts apart, in every layer."""
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, weight in model.named_parameters():
      noise = torch.randn(weight.shape, generator=generator) * 0.3
      weight.copy_(noise + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0))


def classifier(family, path, labels=1, **config):
  """A sequence classifier, saved by the library as a CrossEncoder."""
  from sentence_transformers import CrossEncoder

  source = encoder(family, path / "base", **config)
  model = CrossEncoder(str(source), num_labels=labels, max_length=48, device="cpu")
  randomise(model)
  model.save_pretrained(str(path / "saved"))
  return model, path / "saved"


def modular(family, path, *, pooling="cls", normalize=False, classes=1, prompts=None):
  """A list of modules that ends in scores."""
  from sentence_transformers import CrossEncoder
  from sentence_transformers.base.modules import Dense, Normalize, Transformer
  from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

  transformer = Transformer(str(encoder(family, path / "base")), max_seq_length=48)
  width, none = transformer.get_embedding_dimension(), torch.nn.Identity()
  modules = [
    transformer,
    Pooling(width, pooling),
    Dense(
      width * len([pooling] if isinstance(pooling, str) else pooling),
      12,
      bias=False,
      activation_function=torch.nn.GELU(),
    ),
    LayerNorm(12),
    *([Normalize()] if normalize else []),
    Dense(12, classes, activation_function=none, module_output_name="scores"),
  ]
  settings = {"default_prompt_name": "rank"} if prompts else {}
  model = CrossEncoder(modules=modules, device="cpu", prompts=prompts, **settings)
  randomise(model)
  model.save_pretrained(str(path / "saved"))
  return model, path / "saved"


def logits(model, pairs=PAIRS):
  """The logits of a model of the library; what ranks, where it has one class."""
  return model.predict(pairs, activation_fn=torch.nn.Identity())


def assert_ranks_alike(model, folder, **options):
  ranker, expected = as2jax.load(folder, **options), logits(model)
  assert np.ptp(expected) > 1e-3
  np.testing.assert_allclose(ranker.scores(PAIRS), expected, atol=1e-5)
  order = np.argsort(-expected).tolist()
  assert [hit.index for hit in ranker.rank(QUESTION, TEXTS)] == order
  return ranker


@pytest.mark.parametrize(
  "family, config",
  [
    ("bert", {}),
    ("xlm-roberta", {}),
    ("mpnet", {}),
    ("camembert", {}),
    ("electra", {}),
    ("distilbert", {}),
    ("deberta-v2", {}),
    ("deberta-v2", {"pooler_hidden_act": "tanh"}),
    ("modernbert", {"classifier_pooling": "cls"}),
    ("modernbert", {"classifier_pooling": "mean", "classifier_bias": True}),
    ("modernbert", {"classifier_pooling": "mean", "classifier_activation": "silu"}),
  ],
)
def test_a_sequence_classifier_scores_as_its_library(family, config, tmp_path):
  assert_ranks_alike(*classifier(family, tmp_path, **config))


@pytest.mark.parametrize(
  "family, options",
  [
    ("bert", {"pooling": "mean"}),
    ("modernbert", {}),
    ("modernbert", {"pooling": ["cls", "mean"], "normalize": True}),
    ("modernbert", {"prompts": {"rank": "who sat: "}}),
  ],
)
def test_a_list_of_modules_scores_as_its_library(family, options, tmp_path):
  ranker = assert_ranks_alike(*modular(family, tmp_path, **options))
  assert ranker.predictor.components.prompts.question == ("who sat: " * ("prompts" in options))


def named(folder, *names):
  """Gives the classes of a classifier their names."""
  file = folder / "config.json"
  id2label = {str(number): name for number, name in enumerate(names)}
  file.write_text(json.dumps({**json.loads(file.read_text()), "id2label": id2label}))


def test_of_two_classes_their_names_say_which_ranks_else_it_is_asked(tmp_path, capsys):
  model, folder = classifier("bert", tmp_path, labels=2)
  first = logits(model)[:, 0] - logits(model)[:, 1]
  for names, label in (
    (("not-entailment", "entailment"), 1),
    (("IRRELEVANT", "Relevant"), 1),
    (("Yes", "No"), 0),
    (("LABEL_0", "LABEL_1"), None),
    (("yes", "LABEL_1"), None),
    (("right", "true"), None),
    (("no", "false"), None),
    (("entailment", "not_entailment"), 0),  # QNLI's
  ):
    named(folder, *names)
    assert cross_encoder_folder.read(folder).fields.get("label") == label, names
  np.testing.assert_allclose(as2jax.load(folder).scores(PAIRS), first, atol=1e-5)
  named(folder, "maybe", "perhaps")
  with pytest.raises(InputError, match="model.label = None: .* 2 classes; give the number"):
    as2jax.train(tiny.from_folder(folder, "reranker"), tmp_path / "run")
  file = tmp_path / "q.csv"
  lines = [f"{QUESTION},{text},{n == first.argmin():d}" for n, text in enumerate(TEXTS)]
  file.write_text("\n".join(["question,candidate,label", *lines]))
  verbs = ["rank", str(folder), str(file)], ["evaluate", str(folder), f"--data={file}"]
  for verb in verbs:
    assert app.run(verb) == 2
    assert "2 classes (0 maybe, 1 perhaps): give `label`" in capsys.readouterr().err
  for label, expected in (("maybe", first), ("1", -first)):
    assert app.run([*verbs[0], f"--label={label}", "--format=json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    scores = {row["candidate"]: row["score"] for row in rows}
    assert scores == pytest.approx(dict(zip(TEXTS, expected)), abs=1e-5)
  assert app.run([*verbs[1], "--label=perhaps", "--format=json"]) == 0
  rows = map(json.loads, capsys.readouterr().out.splitlines())
  assert {row["mean"] for row in rows if row["metric"].startswith("mrr")} == {1.0}


def test_a_classifier_with_several_classes_wants_the_one_that_ranks(tmp_path):
  model, folder = classifier("modernbert", tmp_path, labels=3)
  named(folder, "no", "neutral", "yes")
  with pytest.raises(InputError, match=r"3 classes \(0 no, 1 neutral, 2 yes\): give `label`"):
    as2jax.load(folder)
  for label in ("maybe", 3, -1):
    with pytest.raises(InputError, match="no such label"):
      as2jax.load(folder, label=label)
  shares = torch.softmax(torch.tensor(logits(model)), -1).numpy()
  for label, column in (("yes", 2), (1, 1)):
    expected = np.log(shares[:, column]) - np.log1p(-shares[:, column])
    actual = as2jax.load(folder, label=label).scores(PAIRS)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


PROMPTS = {"query": "who was ", "passage": "a dog : ", "other": "glaciers "}


@pytest.mark.parametrize(
  "prompts, default, expected, names, similarity",
  [
    (PROMPTS, None, ("who was ", "a dog : "), ("query", "passage"), "dot"),
    ({"other": "glaciers "}, "other", ("glaciers ", "glaciers "), ("other", "other"), "euclidean"),
    ({"document": "the cat "}, None, ("", "the cat "), ("query", "document"), "cosine"),
  ],
  ids=["two prompts", "one prompt", "of documents"],
)
def test_a_biencoder_puts_its_prompts_before_texts(
  prompts, default, expected, names, similarity, tmp_path
):
  from sentence_transformers import SentenceTransformer
  from sentence_transformers.base.modules import Dense, Normalize, Transformer
  from sentence_transformers.sentence_transformer.modules import Pooling

  transformer = Transformer(str(encoder("modernbert", tmp_path / "base")), max_seq_length=48)
  modules = [
    transformer,
    Pooling(16, "mean"),
    Dense(16, 8),
    *[Normalize()] * (similarity == "cosine"),
  ]
  how = {"device": "cpu", "similarity_fn_name": similarity}
  model = SentenceTransformer(modules=modules, **how)
  randomise(model)
  model.save(str(tmp_path / "saved"))
  file = tmp_path / "saved" / "config_sentence_transformers.json"
  stated = {"prompts": prompts, "default_prompt_name": default}
  file.write_text(json.dumps({**json.loads(file.read_text()), **stated}))
  model = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
  ranker = as2jax.load(tmp_path / "saved")
  assert tuple(vars(ranker.predictor.components.prompts).values()) == expected
  questions = model.encode([QUESTION], prompt_name=names[0])
  documents = model.encode(list(TEXTS), prompt_name=names[1])
  np.testing.assert_allclose(ranker.encode_query([QUESTION]), questions, atol=1e-5)
  np.testing.assert_allclose(ranker.encode_document(TEXTS), documents, atol=1e-5)
  assert np.abs(questions - model.encode([QUESTION], prompt="")).max() > 1e-3 or not expected[0]
  similar = model.similarity(questions, documents).numpy()[0]
  np.testing.assert_allclose(ranker.scores(PAIRS), similar, atol=1e-5)
  hits = ranker.rank(QUESTION, TEXTS)
  assert {hit.text for hit in hits} == set(TEXTS)  # without their prompts
  # A document whose text somebody else asks for at the same time is a document still.
  offered = tuple(Candidate(str(i), text) for i, text in enumerate(TEXTS))
  asked = [Question(str(i), text, offered) for i, text in enumerate((QUESTION, *TEXTS[:2]))]
  together, *_ = ranker.rank_many(asked)
  assert [hit.index for hit in together] == [hit.index for hit in hits]
  np.testing.assert_allclose([h.score for h in together], [h.score for h in hits], atol=1e-6)


@pytest.mark.parametrize("make", [classifier, modular])
def test_a_reranker_that_lower_cases_its_texts_does_so_when_it_is_exported(make, tmp_path):
  from sentence_transformers import CrossEncoder

  _, folder = make("modernbert", tmp_path)
  file = folder / "sentence_bert_config.json"
  settings = json.loads(file.read_text()) if file.exists() else {}
  file.write_text(json.dumps({**settings, "do_lower_case": True}))
  run = as2jax.train(tiny.from_folder(folder, "reranker", epochs=0), tmp_path / "run")
  pairs = [(question.upper(), text.upper()) for question, text in PAIRS]
  scores = run.ranker().scores(pairs)
  np.testing.assert_allclose(scores, run.ranker().scores(PAIRS), atol=1e-6)
  for place in (folder, export.export(run.folder, tmp_path / "out")):
    np.testing.assert_allclose(
      logits(CrossEncoder(str(place), device="cpu"), pairs), scores, atol=1e-5
    )


@pytest.mark.parametrize(
  "form, family",
  [
    ("classifier", "modernbert"),
    pytest.param("modular", "modernbert", marks=pytest.mark.long),
    pytest.param("classifier", "mpnet", marks=pytest.mark.long),
    pytest.param("classifier", "deberta-v2", marks=pytest.mark.long),
    pytest.param("classifier", "xlm-roberta", marks=pytest.mark.long),
  ],
)
def test_a_published_reranker_is_trained_further_and_written_in_its_form(form, family, tmp_path):
  from sentence_transformers import CrossEncoder

  make = {"classifier": classifier, "modular": modular}[form]
  before, folder = make(family, tmp_path)
  run = as2jax.train(tiny.from_folder(folder, "reranker"), tmp_path / "run")
  start = as2jax.load(folder).scores(PAIRS)
  np.testing.assert_allclose(start, logits(before), atol=1e-5)
  trained = run.ranker().scores(PAIRS)
  if family == "modernbert":  # of the others the folder's own weights remain the best
    assert np.abs(trained - start).max() > 1e-3
  out = export.export(run.folder, tmp_path / "out")
  np.testing.assert_allclose(logits(CrossEncoder(str(out), device="cpu")), trained, atol=1e-5)
  np.testing.assert_allclose(as2jax.load(out).scores(PAIRS), trained, atol=1e-5)
  assert (out / "modules.json").exists() == (form == "modular")
  shutil.rmtree(folder)
  np.testing.assert_allclose(as2jax.open_run(run.folder).ranker().scores(PAIRS), trained, atol=1e-6)


def test_what_is_wrong_with_a_head_is_said(tmp_path):
  _, folder = modular("modernbert", tmp_path / "one")
  change = lambda name, **keys: (folder / name).write_text(
    json.dumps({**json.loads((folder / name).read_text()), **keys})
  )
  change(
    "config_sentence_transformers.json", prompts={"a": "glaciers " * 48}, default_prompt_name="a"
  )
  with pytest.raises(InputError, match="the prompt 'glaciers .* tokens, which leaves no room"):
    as2jax.load(folder).scores(PAIRS)
  change("config_sentence_transformers.json", prompts={"a": "x "}, default_prompt_name="a")
  change("1_Pooling/config.json", include_prompt=False)
  with pytest.raises(InputError, match="1_Pooling.*leaves the prompt's tokens out"):
    as2jax.load(folder)
  _, folder = classifier("modernbert", tmp_path / "two")
  from safetensors.numpy import load_file, save_file

  weights = load_file(folder / "model.safetensors")
  save_file(
    {k: v for k, v in weights.items() if k != "head.norm.weight"}, folder / "model.safetensors"
  )
  with pytest.raises(InputError, match=r"head.norm has the shapes {}, the config asks for .*16"):
    as2jax.load(folder)
  save_file(
    {**weights, "classifier.weight": weights["classifier.weight"][:, :7].copy()},
    folder / "model.safetensors",
  )
  with pytest.raises(InputError, match=r"classifier has the shapes .*\(1, 7\).*\(1, 16\)"):
    as2jax.load(folder)
  change("config.json", classifier_pooling="sum")
  with pytest.raises(InputError, match="classifier_pooling 'sum'"):
    as2jax.load(folder)
