"""`as2jax.load` opens anything that ranks; `as2jax.train` makes a run.

What is opened is a run's folder, or a folder as the original libraries publish them: a bi-encoder or a
`CrossEncoder` of sentence-transformers (Reimers & Gurevych 2019), or a sequence classifier of
transformers, by path, as `package:NAME/FOLDER`, or by its name on the Hugging Face hub.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from etils import epath
from flax import traverse_util
from ml_collections import ConfigDict

from as2jax.config import base, check, jobs
from as2jax.config import overrides as config_overrides
from as2jax.data import tables, user_files
from as2jax.data.text import normalise
from as2jax.encoders import cross_encoder_folder, hub, sentence_folder, transformer_folder
from as2jax.encoders.sentence_folder import SentenceFolder
from as2jax.evaluation import predict
from as2jax.inference import modes, run
from as2jax.inference.ranker import Ranker, ranked_rows
from as2jax.inference.run import Run
from as2jax.runtime import bound, compile_cache, registry, sharding
from as2jax.runtime.errors import InputError
from as2jax.runtime.files import read_json
from as2jax.training import build

if TYPE_CHECKING:
  import pandas

LONGEST = 512  # tokens, where neither the folder nor the encoder states a limit
SIMILARITIES = ("cosine", "dot", "euclidean")  # the first is sentence-transformers' default


def load(
  source: str | os.PathLike,
  *,
  seed: int | Literal["best"] | None = "best",
  dtype: Literal["float32", "bfloat16"] = "float32",
  label: str | int | None = None,
  allow_code: bool = False,
  backend: Literal["jax", "openvino", "openvino-int8"] = "jax",
) -> Ranker:
  """Opens a trained model, ready to rank on the devices that are here.

  Args:
    source: the folder of a finished run; a folder of sentence-transformers (a bi-encoder or a
      CrossEncoder of any family of `as2jax.encoders`), `package:NAME/FOLDER`, or a hub
      name.
    seed: which of a run's seeds; `best`, or None, has the greatest value of the metric that selects.
    dtype: of the encoder's computation; scores are float32 always.
    label: of a published classifier with several classes, the one that means "answers the
      question", by its name or number; needed where their names do not tell (`POSITIVE` and `NEGATIVE`
      of `as2jax.data.record`).
    allow_code: whether classes of one's own that a run names may be imported: its author's code.
    backend: what computes the encoder: jax, or OpenVINO on this machine's processor
      (`as2jax.inference.openvino`), also with weights of 8 bits.

  """
  if backend != "jax":
    from as2jax.inference import openvino

    openvino.check(backend)
    ranker = load(source, seed=seed, dtype=dtype, label=label, allow_code=allow_code)
    openvino.use(ranker, backend)
    return ranker
  if not isinstance(source, (str, os.PathLike)):
    raise InputError(f"source = {source!r:.100}: give a run's folder or a published model, a text")
  source = os.fspath(source)
  folder = epath.Path(source).expanduser()
  if is_run(folder):
    if label is not None:
      raise InputError(f"label = {label!r}: {source} is a run, whose config has model.label")
    return Run(folder, dtype=dtype, allow_code=allow_code).ranker(seed)
  if seed not in ("best", None):
    raise InputError(f"seed = {seed}: {source} is no run's folder, which alone has seeds")
  if folder.is_dir():
    return _published(str(folder.absolute()), dtype, label)
  try:
    return _published(source, dtype, label)
  except InputError as error:
    text = str(error).removesuffix(f"; {hub.SAMPLE}")
    raise InputError(f"{source} is no run's folder, and no published model: {text}") from error


def open_run(folder: str | os.PathLike, *, allow_code: bool = False) -> Run:
  """Opens a run by its folder, on any machine: `.metrics`, `.seeds`, `.config`, `.ranker(seed)`.

  With `allow_code`, classes of one's own that the run names may be imported.
  """
  if not isinstance(folder, (str, os.PathLike)):
    raise InputError(f"folder = {folder!r:.100}: give a run's folder, a text or a path")
  return Run(folder, allow_code=allow_code)


def rank_file(
  source: str,
  table: Any,
  *,
  seed: int | Literal["best"] | None = "best",
  top_k: int | None = None,
  ranking: str = "",
  columns: Mapping[str, str] | str = "",
  drop: bool = False,
  allow_code: bool = False,
  label: str | int | None = None,
  backend: Literal["jax", "openvino", "openvino-int8"] = "jax",
) -> list[dict[str, Any]]:
  """Ranks the candidates of a table's questions (`as2jax rank`); returns its `ranked_rows`.

  Args:
    source: a run's folder, or what else `load` opens.
    table: the path of a file, or a frame; see `user_files.read`.
    top_k: candidates of a question; all where None.
    ranking: of joint models: another ranker's run file over the questions.
    columns: {field: column}, or `question=query,…`.
    drop: whether rows without text and repeated ones are left out.
    allow_code, label, backend: see `load`; `ranking` is of models that jax alone computes.

  """
  own = user_files.read(table, labelled=False, columns=columns, drop=drop)  # before the model
  if ranking:
    if label is not None:
      raise InputError(f"label = {label!r}: another's ranking is for joint models, without classes")
    if backend != "jax":
      raise InputError(
        f"backend = {backend!r}: joint models, which read ranking, are computed by jax"
      )
    opened = Run(source, allow_code=allow_code)
    opened.start_from(ranking, normalise.apply(own.questions, opened.config.data.rules))
    ranker = opened.ranker(seed)
  else:
    ranker = load(source, seed=seed, allow_code=allow_code, label=label, backend=backend)
    if ranker.model.layout == "joint":
      Run(source).start_from("", own.questions)
  return ranked_rows(own, next(iter(ranker.all_scores(own.questions).values())), top_k)


def train(
  job: str | os.PathLike | ConfigDict,
  output: str | os.PathLike,
  *,
  data: "Mapping[str, str | os.PathLike | pandas.DataFrame] | None" = None,
  columns: Mapping[str, str] | str = "",
  drop: bool = False,
  seeds: Sequence[int] = (0,),
  overrides: Mapping[str, Any] = {},  # noqa: B006 (never changed)
  allow_code: bool = False,
) -> Run:
  """Trains a job and evaluates it; the same call continues a run that was stopped.

  Args:
    job: a job's name with its words (`wikiqa_triplet:minilm,grouped`), a config file, or a config.
    output: the folder of the run.
    data: your own files (TSV, CSV, JSON-lines, Parquet) or pandas frames by split (`train`, `dev`,
      `test`) in place of the job's data. Without `dev`, a tenth of the training questions is held
      out and selects the best epoch; reported are the splits that are there. A frame is kept as a
      file in `output/data`: a run that has begun goes on with the same frames alone.
    columns: of `data`: {field: column} where its columns have none of the common names.
    drop: whether rows of `data` without text, and repeated ones, are left out.
    seeds: to train, one after another or as the job says.
    overrides: values of config keys, such as `{"optimizer.rate": 1e-5}`.
    allow_code: of a run's config (`rerun:…`): whether classes of one's own that it names may be imported;
      a job of yours may import what it names.

  Raises:
    InputError: anything wrong with job, data, keys or folder, before any work is lost.
    Preempted: a signal came, and what there was to save is saved.

  """
  from as2jax.config import recipes

  for name, given, kinds, what in (
    ("job", job, (str, os.PathLike, ConfigDict), "a job's name, a config file or a config"),
    ("output", output, (str, os.PathLike), "the run's folder"),
    ("data", data or {}, Mapping, 'files or frames by their split, such as {"train": "faq.csv"}'),
    ("seeds", seeds, Sequence, "several numbers, such as (0, 1, 2)"),
  ):
    if not isinstance(given, kinds):
      raise InputError(f"{name} = {given!r:.100}: give {what}")
  config = job if isinstance(job, ConfigDict) else jobs.load(os.fspath(job), allow_code)
  values: dict[str, Any] = {}
  named = tables.named_columns(columns)
  group = {"group": named["group"]} if "group" in named else {}  # carried by its own name
  paths, frames, forms = {}, {}, {}
  for split, source in (data or {}).items():
    paths[split] = os.path.join(os.path.abspath(output), "data", f"{split}.jsonl")
    if isinstance(source, (str, os.PathLike)):
      paths[split] = os.fspath(source)
      forms[split] = user_files.form_of(source, columns)
    else:
      own = user_files.read(source, labelled=True, columns=columns, drop=drop)
      frames[paths[split]], forms[split] = own, own.form
  if data is not None:
    if not data or set(data) - {"train", "dev", "test"} or len(frames) not in (0, len(data)):
      raise InputError(
        f"data = {list(data)}: give a file or a frame for train, dev or test, files alone or frames alone"
      )
    form = forms.get("train") or forms[min(forms)]
    if form != user_files.LABELLED:
      config = recipes.on_pairs(config, negatives=form == user_files.WITH_NEGATIVES)
    values |= recipes.own_files(config, paths)
  if paths or named or drop:
    kept = group if frames else named
    text = ",".join(f"{field}={column}" for field, column in kept.items())
    values |= {"data.columns": text, "data.drop": drop and not frames}
  values |= {"seeds": tuple(seeds), **overrides, "mode": "train"}
  config = config_overrides.apply(config, values, "overrides: ")
  check.check(config)
  for path, frame in frames.items():
    if not os.path.exists(path):
      tables.write(path, user_files.rows(frame), "output")
    elif user_files.read(path, labelled=True, columns=group).questions != frame.questions:
      raise InputError(f"{output} began with other data ({path}): give another output")
  modes.run(config, os.fspath(output))
  return Run(output)


def is_run(folder: epath.PathLike) -> bool:
  """Checks whether a folder's config.json is that of a run: it has sections `model` and `loss`."""
  try:
    content = read_json(epath.Path(folder).expanduser() / "config.json")
  except InputError:  # whoever reads the folder says what is wrong
    return False
  return isinstance(content, dict) and "model" in content and "loss" in content


def _published(source: str, dtype: str, label: str | int | None) -> Ranker:
  folder = hub.resolve(source)
  bound.check_card(folder)
  config = base.get_config()
  config.encoder.pretrained, config.encoder.dtype = str(folder), dtype
  config.mode, config.data.name = "predict", "none"
  published = cross_encoder_folder.read(folder)
  if published is not None:
    config.encoder.name = "reranker"
    config.model = ConfigDict({"name": "reranker", "dropout": 0.0})
    if (number := _label(folder, published, label)) is not None:
      config.model.label = number
  else:
    if label is not None:
      raise InputError(f"label = {label!r}: {folder} is no classifier, which alone has classes")
    config.encoder.name = "sentence_bert"
    config.model = ConfigDict({"name": "sentence_bert", "score": _similarity(folder)})
    published = sentence_folder.read(folder)
  longest = published.max_length, _positions(published.transformer)
  length = min((n for n in longest if n is not None), default=LONGEST)
  config.data.max_length, config.batch.row_lengths = length, (length,)
  check.check(config)
  config, here = run.fitted_to_devices(config, source)
  compile_cache.use(config)
  components = build.load(config, data=False)
  params = {path: value[None] for path, value in components.pretrained.items()}
  mesh = sharding.mesh_for_batches(config, most_cores=components.most_cores, devices=here)
  variables = {"params": traverse_util.unflatten_dict(params, sep="/")}
  ranker = Ranker(predict.Predictor(components, mesh, 1), variables, seed=None)
  ranker.source = source
  return ranker


def _label(folder: epath.Path, published: SentenceFolder, label: str | int | None) -> int | None:
  """Returns the number of the class that ranks, where it is given; None for what the folder says."""
  names, classes = (
    cross_encoder_folder.labels(published.transformer),
    published.fields["layers"][-1][1],
  )
  shown = ", ".join(f"{i} {name}" for i, name in enumerate(names)) or f"0 to {classes - 1}"
  if label is None and "label" not in published.fields:
    raise InputError(
      f"{folder} is a classifier with {classes} classes ({shown}): give `label`, the one that means "
      "'answers the question', by its name or number (`as2jax rank MODEL FILE --label=NAME`)"
    )
  if isinstance(label, str):
    if label in names:
      label = names.index(label)
    else:
      label = int(label) if label.isdecimal() else classes
  if label is not None and not 0 <= label < classes:
    raise InputError(f"{folder}: there is no such label; the classes are {shown}")
  return label


def _positions(folder: epath.PathLike) -> int | None:
  """Returns the longest unit that the encoder in `folder` takes, in tokens; None for any."""
  family, fields = transformer_folder.read_family(folder)
  section = {"name": family.name, "dtype": "float32", "unroll": 0, "remat": False}
  fields = {"precision": None, **fields}
  return registry.build(registry.ENCODERS, section, "encoder", **fields).max_length


def _similarity(folder: epath.Path) -> str:
  if not (folder / sentence_folder.MODULES).exists():
    raise InputError(
      f"{folder} is an encoder alone (no {sentence_folder.MODULES}, and no sequence classifier), which "
      "was not trained to rank; train it, or take its vectors as they are: as2jax train "
      f"wikiqa_baseline:mean -o RUN --set encoder.pretrained={folder}"
    )
  name = sentence_folder.similarity(folder) or SIMILARITIES[0]
  if name not in SIMILARITIES:
    raise InputError(f"{folder}: similarity_fn_name {name!r} is none of {', '.join(SIMILARITIES)}")
  return name
