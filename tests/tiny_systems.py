"""A tiny config of every system, of a few steps on a part of the sample, in eight shards."""

import os
import shutil

import numpy as np
import tiny
import tiny_cassie

from as2jax.config import recipes
from configs import wikiqa_baseline

SYSTEMS = (
  *("triplet", "siamese", "crossencoder", "cosine", "loct", "cassie", "cete", "cross_vae"),
  "m2snet",
)
FRACTION = {"crossencoder": 0.15, "cross_vae": 0.6}  # of the sample: four steps, or eight
VECTORS = 8  # numbers a word of the vectors that M²S-Net reads


def config(system: str, **overrides):
  """`overrides` have dots as double underscores; the encoder is $AS2JAX_TINY_ENCODER's.

  `system` is one of `SYSTEMS`, or a ranker without parameters as its config file has it.
  """
  if system in recipes.LEXICAL:
    job_config = wikiqa_baseline.get_config(f"{system},sample")
    job_config.update_from_flattened_dict(_with_dots(overrides))
    return job_config.lock()
  own = {"cosine": _cosine, "loct": _loct, "cete": _cete, "cross_vae": _cross_vae}
  own |= {"m2snet": _m2snet, "cassie": lambda: tiny_cassie.run_config("cassie")}
  job_config = own[system]() if system in own else tiny.config(system)
  with job_config.unlocked():
    job_config.epochs, job_config.seeds, job_config.evaluation.splits = 1, (0,), ("test",)
    job_config.optimizer.rate = 1e-3
    job_config.batch.update({"shards": 8, "examples": 32, "predict_rows": 64, "num_row_buckets": 1})
    job_config.log.update({"steps": 1, "tensorboard": False, "report": False})
    job_config.data.train_fraction = FRACTION.get(system, 0.08)
    job_config.compilation_cache = "off"
    job_config.update_from_flattened_dict(_with_dots(overrides))
  return job_config.lock()


def _with_dots(overrides):
  return {key.replace("__", "."): value for key, value in overrides.items()}


def _cosine():
  head = {"model__head": "cosine_linear", "model__token_types": "zero", "model__pooler": False}
  head |= {"encoder__pretrained": even_encoder(), "model__position": True}
  return tiny.config("crossencoder", **head)


def _loct():
  job_config = tiny_cassie.run_config("loct")
  job_config.unlock().encoder.pretrained = _sharp_encoder()
  return job_config


def _sharp_encoder() -> str:
  """The tiny encoder with greater weights.

  Over long units its attention is nearly uniform otherwise, so that LOCT's scores of a question lie
  within 3e-5 and their order is a matter of rounding.
  """
  louder = lambda name: 4 if "dense.weight" in name or "self." in name else 1
  return _changed("tiny-sharp", lambda name, value: louder(name) * value)


def even_encoder() -> str:
  """The tiny encoder with layer norms as they are initialised: its vectors differ in direction."""
  start = lambda name, value: np.full_like(value, float(name.endswith("weight")))
  return _changed("tiny-even", lambda n, value: start(n, value) if "LayerNorm" in n else value)


def _changed(name: str, change) -> str:
  """The folder of the tiny encoder with other tensors, the same for every process."""
  from safetensors.numpy import load_file, save_file

  folder = os.path.join(os.environ["AS2JAX_CACHE"], name)
  if not os.path.exists(folder):
    scratch = f"{folder}.{os.getpid()}"
    shutil.copytree(tiny.encoder_folder(), scratch)
    tensors = load_file(f"{scratch}/model.safetensors")
    changed = {key: change(key, value) for key, value in tensors.items()}
    save_file(changed, f"{scratch}/model.safetensors")
    os.replace(scratch, folder)
  return folder


def feature_based(encoder, cache, *words, **overrides):
  """A tiny config of CETE's ranker; `encoder` is a folder of a transformer or changes the config."""
  job_config = tiny.config("crossencoder").unlock()
  recipes.feature_based(job_config)
  job_config.epochs = 1
  if "no_encoder" in words:
    recipes.no_encoder(job_config)
  job_config.model.num_heads = 2
  job_config.data.max_length, job_config.data.train_fraction = 64, 0.2
  job_config.data.cache = str(cache)
  if callable(encoder):
    encoder(job_config)
  elif encoder:
    job_config.encoder.pretrained = str(encoder)
  job_config.update(overrides)
  return job_config.lock()


def _cete():
  job_config = feature_based(None, os.environ["AS2JAX_CACHE"])
  # The tiny encoder's vectors are nearly alike: without positions all cosines are above .9997, and
  # what is a rounding apart, which depends on the devices, decides ranks.
  job_config.model.positions = "sinusoids"
  return job_config


def _cross_vae():
  from configs import squad_cross_vae

  job_config = squad_cross_vae.get_config("sample")
  job_config.encoder.pretrained = tiny.encoder_folder()
  job_config.model.update(
    {
      "hidden_size": 5,
      "decoder_size": 7,
      "hops": 2,
      "attention_size": 4,
      "latent_size": 3,
      "question_length": 16,
      "answer_length": 16,
      "softmax_chunk": 64,
      "match_on": "sample",  # whose noise and whose second encoder golden steps are recorded with
      "answer_start": "apart",
    }
  )
  job_config.data.max_length = 16
  job_config.batch.update({"row_lengths": (16,), "rows": 64})
  return job_config


def _m2snet():
  from configs import trecqa_m2snet

  job_config = trecqa_m2snet.get_config("2,sample")
  job_config.encoder.vectors = _vectors()
  job_config.model.update(
    {"question_length": 12, "candidate_length": 14, "filter_size": 3, "filters": (4, 6)}
  )
  job_config.data.max_length = 14
  job_config.batch.row_lengths = (14,)
  return job_config


def _vectors() -> str:
  """A file of random vectors of common words, the same for every process."""
  path = os.path.join(os.environ["AS2JAX_CACHE"], "tiny-vectors.txt")
  if not os.path.exists(path):
    rng = np.random.default_rng(0)
    words = "the a of in to and is was what how who when where are on it for by with".split()
    text = "".join(
      f"{word} {' '.join(f'{x:.3f}' for x in rng.normal(size=VECTORS))}\n" for word in words
    )
    scratch = f"{path}.{os.getpid()}"
    with open(scratch, "w") as file:
      file.write(text)
    os.replace(scratch, path)
  return path
