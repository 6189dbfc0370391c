"""ELMo folders with random weights, and their biLM in plain numpy under the names of the file."""

import json

import h5py
import numpy as np

from as2jax.config import recipes
from as2jax.data.batches.batch import Tokens
from as2jax.encoders.elmo import sentence_boundaries, word_characters

LSTM = {
  "dim": 6,
  "projection_dim": 4,
  "n_layers": 2,
  "cell_clip": 1.0,
  "proj_clip": 0.7,
  "use_skip_connections": True,
}
CHARACTERS = {
  "embedding": {"dim": 3},
  "filters": [[1, 2], [3, 5]],
  "n_highway": 1,
  "n_characters": 262,
  "max_characters_per_token": 8,
  "activation": "tanh",
}


def cell(direction, layer):
  return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"


def datasets(options, seed=0):
  """Random arrays under the names, and with the shapes, of the original code's variables."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(0, 0.6, shape).astype(np.float32)
  lstm, cnn = options["lstm"], options["char_cnn"]
  actual = {"char_embed": draw(261, cnn["embedding"]["dim"])}
  for i, (width, number) in enumerate(cnn["filters"]):
    actual[f"CNN/W_cnn_{i}"] = draw(1, width, cnn["embedding"]["dim"], number)
    actual[f"CNN/b_cnn_{i}"] = draw(number)
  total = sum(number for _, number in cnn["filters"])
  for i in range(cnn.get("n_highway") or 0):
    for part in ("carry", "transform"):
      actual[f"CNN_high_{i}/W_{part}"] = draw(total, total)
      actual[f"CNN_high_{i}/b_{part}"] = draw(total)
  p, c = lstm["projection_dim"], lstm["dim"]
  actual["CNN_proj/W_proj"], actual["CNN_proj/b_proj"] = draw(total, p), draw(p)
  for layer in range(lstm["n_layers"]):
    for direction in range(2):
      name = cell(direction, layer)
      actual[name + "W_0"], actual[name + "B"] = draw(2 * p, 4 * c), draw(4 * c)
      actual[name + "W_P_0"] = draw(c, p)
  return actual


def options(lstm=None, characters=None):
  return {"lstm": {**LSTM, **(lstm or {})}, "char_cnn": {**CHARACTERS, **(characters or {})}}


def write(folder, options, tensors, name="lm_weights.hdf5"):
  (folder / "options.json").write_text(json.dumps(options))
  with h5py.File(folder / name, "w") as file:
    for key, value in tensors.items():
      file[key] = value
  return folder


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def token_layer(tensors, options, characters):
  """[words, p] from the character ids of one word after the other."""
  cnn = options["char_cnn"]
  table = np.concatenate([np.zeros((1, cnn["embedding"]["dim"])), tensors["char_embed"]])
  vectors = []
  for word in characters:
    x, maxima = table[word], []
    for i, (width, number) in enumerate(cnn["filters"]):
      kernel = tensors[f"CNN/W_cnn_{i}"][0].reshape(-1, number)
      places = [x[t : t + width].reshape(-1) @ kernel for t in range(len(x) - width + 1)]
      maxima.append(np.max(places, axis=0) + tensors[f"CNN/b_cnn_{i}"])
    y = np.concatenate(maxima)
    y = np.tanh(y) if cnn["activation"] == "tanh" else np.maximum(y, 0)
    for i in range(cnn.get("n_highway") or 0):
      read = lambda part: y @ tensors[f"CNN_high_{i}/W_{part}"] + tensors[f"CNN_high_{i}/b_{part}"]
      gate = sigmoid(read("carry"))
      y = gate * np.maximum(read("transform"), 0) + (1 - gate) * y
    vectors.append(y @ tensors["CNN_proj/W_proj"] + tensors["CNN_proj/b_proj"])
  return np.array(vectors)


def reference(tensors, options, words):
  """Layers [1 + n_layers, words, 2p] of one sentence."""
  tensors = {name: value.astype(np.float64) for name, value in tensors.items()}
  length, lstm = options["char_cnn"]["max_characters_per_token"], options["lstm"]
  begin, end = sentence_boundaries(length)
  characters = np.stack([begin, *word_characters(words, length), end])
  embedded = token_layer(tensors, options, characters)
  layers = [np.concatenate([embedded, embedded], axis=1)]
  halves = [embedded, embedded]
  for layer in range(lstm["n_layers"]):
    for direction in range(2):
      name, x = cell(direction, layer), halves[direction][:: -1 if direction else 1]
      c, h = np.zeros(lstm["dim"]), np.zeros(lstm["projection_dim"])
      outputs = []
      for now in x:
        gates = np.concatenate([now, h]) @ tensors[name + "W_0"] + tensors[name + "B"]
        i, j, f, o = np.split(gates, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
        c = np.clip(c, -lstm["cell_clip"], lstm["cell_clip"])
        h = (sigmoid(o) * np.tanh(c)) @ tensors[name + "W_P_0"]
        h = np.clip(h, -lstm["proj_clip"], lstm["proj_clip"])
        outputs.append(h + now if lstm.get("use_skip_connections") and layer else h)
      halves[direction] = np.array(outputs)[:: -1 if direction else 1]
    layers.append(np.concatenate(halves, axis=1))
  return np.array(layers)[:, 1:-1]


def with_characters(tokens, sentences, max_characters):
  """`tokens`, whose ids count the words of all `sentences` on from 1, with their characters."""
  words = [word for sentence in sentences for word in sentence]
  table = np.concatenate(
    [np.zeros((1, max_characters), np.int32), word_characters(words, max_characters)]
  )
  return Tokens(
    **{**tokens.__dict__, "inputs": {"characters": np.asarray(table)[np.asarray(tokens.ids)]}}
  )


def numbered(sentences):
  """Ids of the words of `sentences`, counted on from 1: what `rows.lay` lays out."""
  ends = np.cumsum([len(sentence) for sentence in sentences])
  return [
    np.arange(end - len(s), end, dtype=np.int32) + 1 for s, end in zip(sentences, ends, strict=True)
  ]


def recipe(folder, **fields):
  """Writes a random biLM into `folder`; how a config comes to read it, with these fields."""
  folder.mkdir()
  write(folder, options(), datasets(options()))

  def apply(config):
    recipes.elmo(config)
    config.encoder.update({"pretrained": str(folder), **fields})

  return apply
