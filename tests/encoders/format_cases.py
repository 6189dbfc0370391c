"""Encoders from every format of their weights: small random ones, and (`published_cases`) real ones.

The reference is the original library, live, where it is installed; elsewhere what it gave when this
file was last run as a program, which writes golden/formats.npz anew:
`AS2JAX_DATA=/data PYTHONPATH=.:tests:tests/encoders python tests/encoders/format_cases.py`.
"""

import dataclasses
import functools
import importlib
import json
import os
import pathlib
import tempfile
from collections.abc import Callable

import jax
import numpy as np
import rows as layouts
import weight_files

from as2jax.encoders.checkpoints import families, pretrained
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

RECORDED = pathlib.Path(__file__).with_name("golden") / "formats.npz"


class Absent(Exception):
  """What a case needs is not here; the message says what."""


@dataclasses.dataclass(frozen=True)
class Case:
  """One encoder from one format.

  Attributes:
    name: of the encoder and the format.
    actual: computes ours; reference: computes the library's (Absent where it is not installed).
    key: of the recording of the reference; "" where the reference lies in the data.
    bound: of the largest absolute difference.

  """

  name: str
  actual: Callable[[], np.ndarray]
  reference: Callable[[], np.ndarray]
  key: str = ""
  bound: float = 1e-5


IDS = [np.random.RandomState(n).randint(5, 61, n).astype(np.int32) for n in (4, 9, 6, 2, 7)]
PACKED = [(1, 0), (2, 3, 4)]
CONFIGS = {
  "bert": dict(
    vocab_size=61,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=20,
    type_vocab_size=2,
  ),
  "roberta": dict(
    vocab_size=61,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=22,
    type_vocab_size=1,
    layer_norm_eps=1e-5,
    pad_token_id=1,
  ),
  "xlnet": dict(vocab_size=61, d_model=16, n_layer=2, n_head=4, d_inner=24),
}
TYPES = {"bert": 2, "roberta": 1, "xlnet": 3}
MODELS = {"bert": "BertModel", "roberta": "RobertaModel", "xlnet": "XLNetModel"}


def module(folder: pathlib.Path, **fields):
  """The Linen module of a folder, with the weights of the folder."""
  family, sizes = pretrained.read_family(folder)
  run = {"dtype": "float32", "unroll": 0, "remat": False}
  encoder = registry.find(registry.ENCODERS, family.name, "")(
    **{**sizes, **run, "precision": "highest", **fields}
  )
  return encoder, pretrained.load_params(folder, encoder)


def hidden(encoder, params, sequences, packed, length, types=None) -> np.ndarray:
  """Token vectors of all sequences, packed into rows, one after the other: [tokens, d]."""
  tokens, units = layouts.lay(sequences, packed, length, types=types)
  apply = jax.jit(functools.partial(encoder.apply, train=False))
  actual = layouts.vectors(apply({"params": params}, tokens), units)
  return np.concatenate([actual[n] for n in range(len(sequences))])


def torch_hidden(model, sequences, types=None) -> np.ndarray:
  """The same from a torch model, each sequence alone."""
  import torch

  outputs = []
  for n, ids in enumerate(sequences):
    kinds = None if types is None else torch.tensor(np.asarray(types[n], np.int64)[None])
    with torch.no_grad():
      output = model.eval()(torch.tensor(ids[None].astype(np.int64)), token_type_ids=kinds)
    outputs.append(output.last_hidden_state[0].numpy())
  return np.concatenate(outputs)


def libraries(*names: str):
  """The modules called `names`; Absent where one is not installed."""
  imported = []
  for name in names:
    try:
      imported.append(importlib.import_module(name))
    except ImportError:
      raise Absent(f"{name} is not installed") from None
  return imported


def _types(kind: str) -> list[np.ndarray]:
  return [np.arange(len(ids)) * TYPES[kind] // len(ids) for ids in IDS]


def tensors(kind: str) -> dict[str, np.ndarray]:
  """Weights under Hugging Face's names, drawn by numpy's frozen generator, float32."""
  family = families.FAMILIES[kind]
  sizes = family.fields({"model_type": kind, **CONFIGS[kind]})
  encoder = registry.find(registry.ENCODERS, kind, "")(
    **{**sizes, "dtype": "float32", "unroll": 0, "remat": False, "precision": None}
  )
  tokens, _ = layouts.lay(IDS, PACKED, 16)
  shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), tokens, train=False))["params"]
  random = np.random.RandomState(11)
  draw = lambda path, x: random.normal(path[-1].key == "scale", 0.3, x.shape).astype(np.float32)
  params = jax.tree_util.tree_map_with_path(draw, shapes)
  return pretrained.to_tensors(params, family=family, num_heads=encoder.num_heads)


def transformers_cases(kind: str, folder: pathlib.Path) -> list[Case]:
  """Small random weights of an architecture in each format that Hugging Face's files come in."""

  @functools.cache
  def reference() -> np.ndarray:
    torch, transformers = libraries("torch", "transformers")
    config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
    plain = {} if kind == "xlnet" else {"add_pooling_layer": False}
    model = getattr(transformers, MODELS[kind])(config, **plain)
    state = {name: torch.tensor(value) for name, value in tensors(kind).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"mask_emb"}, (missing, unexpected)
    return torch_hidden(model, IDS, _types(kind))

  def actual(write: Callable) -> np.ndarray:
    place = folder / f"{kind}-{write.__name__}"
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"model_type": kind, **CONFIGS[kind]}))
    write(place, tensors(kind))
    return hidden(*module(place), IDS, PACKED, 16, _types(kind))

  return [
    Case(f"{kind}, {name}", functools.partial(actual, write), reference, kind)
    for name, write in FORMATS.items()
  ]


def _one(place, weights):
  from safetensors.numpy import save_file

  save_file(weights, place / "model.safetensors")


def _sharded(place, weights):
  from safetensors.numpy import save_file

  _in_parts(place, weights, "model", "safetensors", lambda part, file: save_file(part, file))


def _torch_zip(place, weights):
  (place / "pytorch_model.bin").write_bytes(weight_files.archive(*weight_files.plain(weights)))


def _torch_legacy(place, weights):
  (place / "pytorch_model.bin").write_bytes(weight_files.legacy(*weight_files.plain(weights)))


def _torch_sharded(place, weights):
  _in_parts(
    place,
    weights,
    "pytorch_model",
    "bin",
    lambda part, file: file.write_bytes(weight_files.archive(*weight_files.plain(part))),
  )


def _in_parts(place, weights, stem, suffix, write):
  names, places = sorted(weights), {}
  for n, chosen in enumerate((names[::2], names[1::2]), 1):
    file = f"{stem}-0000{n}-of-00002.{suffix}"
    write({name: weights[name] for name in chosen}, place / file)
    places |= dict.fromkeys(chosen, file)
  (place / f"{stem}.{suffix}.index.json").write_text(json.dumps({"weight_map": places}))


FORMATS = {
  "safetensors": _one,
  "safetensors, sharded": _sharded,
  "pytorch_model.bin": _torch_zip,
  "pytorch_model.bin, before 1.6": _torch_legacy,
  "pytorch_model.bin, sharded": _torch_sharded,
}


def data(*parts: str) -> pathlib.Path:
  """A file or folder under $AS2JAX_DATA; Absent where it is not there."""
  root = os.environ.get("AS2JAX_DATA", "")
  path = pathlib.Path(root, *parts)
  if not root or not path.exists():
    raise Absent(f"AS2JAX_DATA has no {'/'.join(parts)}")
  return path


def package(spec: str) -> pathlib.Path:
  """The folder of a packaged encoder; Absent where the package is not installed."""
  try:
    return pathlib.Path(os.fspath(pretrained.resolve(spec)))
  except InputError as error:
    raise Absent(str(error)) from None


def cases(folder: pathlib.Path) -> list[Case]:
  """All cases; `folder` is a temporary one for weight files."""
  import published_cases

  return [
    *(case for kind in CONFIGS for case in transformers_cases(kind, folder)),
    *published_cases.cases(folder),
  ]


if __name__ == "__main__":
  jax.config.update("jax_default_matmul_precision", "highest")
  with tempfile.TemporaryDirectory() as temporary:
    recorded = {case.key: case.reference() for case in cases(pathlib.Path(temporary)) if case.key}
  np.savez_compressed(RECORDED, **{k: v.astype(np.float32) for k, v in recorded.items()})
