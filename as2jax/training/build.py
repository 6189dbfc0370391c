"""From a resolved config to the parts of a run: data, tokeniser, model, loss, weights, batches."""

import dataclasses
import hashlib
import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from etils import epath

from as2jax.data.batches import examples as layouts
from as2jax.data.batches.batcher import Batcher, fit_batcher
from as2jax.data.batches.examples import ExampleTable
from as2jax.data.datasets import dataset as datasets
from as2jax.data.datasets import holdout, load
from as2jax.data.inputs import document_frequency, first_stage_ranking, word_overlap
from as2jax.data.inputs import first_stage_ranking as rankings
from as2jax.data.record import Question
from as2jax.data.text.token_table import UnitTable
from as2jax.data.text.tokenise import ROLES, build_units
from as2jax.evaluation import metrics
from as2jax.runtime import folders, processes, registry
from as2jax.runtime.errors import InputError
from as2jax.training import state as states

if TYPE_CHECKING:
  from as2jax.encoders.frozen_vectors import FrozenEncoder
  from as2jax.encoders.open import Source

log = logging.getLogger(__name__)


class Tables(NamedTuple):
  """What batches are cut from.

  `characters` `[word, c]` are those of the words' ids, for ELMo; `features` `[token, …]` frozen
  vectors in place of an encoder; `word_frequency` and `word_keep` `[word]` are for `Words`.
  """

  units: UnitTable
  examples: ExampleTable
  characters: np.ndarray | None = None
  features: np.ndarray | None = None
  word_frequency: np.ndarray | None = None
  word_keep: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Experiment:
  """What a config describes, built once.

  Attributes:
    dataset: the splits (None in mode `predict`).
    source: the encoder, with its tokeniser.
    model: Linen module; loss: its loss.
    pretrained: host arrays by parameter path.
    facts: what results say of the weights.
    frozen: computes the vectors that a model reads in place of the encoder's, or None.
    rarity: of words in the training split, where the model reads overlaps of words, or None.
    frequencies: of words in the questions trained on, where the model reads words, or None.
    ranking: of the candidates, where the model ranks the best of another ranker, or None.

  """

  config: Any
  dataset: datasets.Dataset | None
  source: "Source"
  model: Any
  loss: Any
  pretrained: Mapping[str, np.ndarray]
  facts: dict
  frozen: "FrozenEncoder | None"
  rarity: word_overlap.WordRarity | None
  frequencies: document_frequency.WordFrequencies | None = None
  ranking: rankings.Ranking | None = None

  def train_questions(self) -> tuple[Question, ...]:
    """The training questions that holding out, then the protocol, then the fraction leave."""
    data = self.config.data
    questions = self.dataset.splits["train"]
    labels = [np.asarray([c.label for c in q.candidates]) for q in questions]
    kept = np.flatnonzero(metrics.filter_mask(data.train_filter, labels))
    if not 0 < data.train_fraction <= 1:
      raise InputError(f"data.train_fraction = {data.train_fraction}: give a number in (0, 1]")
    if data.train_fraction < 1:
      # Not the run's seed: every seed of a comparison trains on the same part.
      size = max(int(len(kept) * data.train_fraction), 1)
      kept = np.sort(np.random.default_rng(0).permutation(kept)[:size])
    return tuple(questions[i] for i in kept)

  def tables(
    self, questions: Sequence[Question], layout: str, *, cache: bool = True, **options
  ) -> "Tables":
    """Tokenised units and examples of `questions` in a layout (`sentences` is one, too).

    On several hosts all must ask for it; they find what the first has put into a cache they share
    (none where not `cache`).
    """
    return processes.in_order(lambda: self._tables(questions, layout, cache, **options))

  def examples(
    self, questions: Sequence[Question], layout: str, **options
  ) -> tuple[list[tuple[str, ...]], ExampleTable]:
    """The texts of the units and the examples of `questions` in a layout."""
    function = layouts.sentences if layout == "sentences" else layouts.LAYOUTS[layout]
    known = inspect.signature(function).parameters
    options = {
      "template": self.model.template,
      "tile": self.config.batch.triplet_tile,
      "size": self.config.data.ranking_size,
      **options,
    }
    if layout == "joint":
      options["orders"] = self.orders(questions)
    units, table = function(questions, **{k: v for k, v in options.items() if k in known})
    if self.rarity is not None:
      table = word_overlap.with_features(questions, table, self.rarity)
    return units, table

  def _tables(
    self, questions: Sequence[Question], layout: str, cached: bool, **options
  ) -> "Tables":
    units, table = self.examples(questions, layout, **options)
    data = self.config.data
    cache = str(folders.cache_folder(data.cache)) if cached else ""
    roles = None
    if self.model.template == "single":
      asked = {q.text for q in questions}
      roles = [ROLES["question" if text in asked else "candidate"] for (text,) in units]
    tokenizer, characters = self.source.tokenizer, None
    if self.source.open_vocabulary:
      tokenizer, characters = self.source.open_vocabulary(text for unit in units for text in unit)
    frozen = self.frozen
    built = build_units(
      units,
      tokenizer,
      template=self.model.template,
      roles=roles,
      max_length=data.max_length,
      cache=cache,
      words=self.frequencies is not None or frozen is not None and not frozen.of_words,
    )
    log.log(logging.INFO if cached else logging.DEBUG, "%s: %s", layout, built.report())
    if self.frequencies is not None:
      frequency, keep = document_frequency.weigh(built, self.frequencies)
      log.info(
        "the most words of a text: %s; left out: %s",
        document_frequency.most_words(built, keep),
        self.words_left_out(built, keep),
      )
      return Tables(built, table, characters, word_frequency=frequency, word_keep=keep)
    if frozen is None:
      return Tables(built, table, characters)
    words, features = frozen(built, characters)
    return Tables(words, table, features=features)

  def words_left_out(self, units: UnitTable, keep: np.ndarray) -> dict[str, int]:
    """What the model's limits cost (`word_weights.words_beyond`), where it reads words."""
    model = self.model
    taken = keep if model.stop_words else np.ones_like(keep)
    return document_frequency.words_beyond(
      units, taken, question_words=model.question_words, sentence_words=model.sentence_words
    )

  def orders(self, questions: Sequence[Question]) -> list[np.ndarray]:
    """The candidates of each question, best first, as the other ranker has them."""
    if self.ranking is None:
      raise InputError(
        "this model ranks the best candidates of another ranker again, and there is "
        "no ranking of these questions: name its run file in predict.ranking"
      )
    return [self.ranking.order(question) for question in questions]

  def fresh_state(
    self, batch: Any, seeds: Sequence[int], optimizer: Any, mesh: Any
  ) -> states.TrainState:
    """A state with the pretrained weights in place; `batch` is one micro-batch."""
    return states.create(
      self.model,
      batch,
      seeds=seeds,
      pretrained=self.pretrained,
      lr_multipliers=self.config.optimizer.lr_multipliers,
      optimizer=optimizer,
      mesh=mesh,
    )

  def train_batcher(self) -> Batcher:
    """Batches of the training split, as `config.batch` says."""
    made = self.tables(self.train_questions(), self.model.layout)
    if not len(made.examples):
      raise InputError(
        f"data.train_filter = {self.config.data.train_filter!r} leaves no "
        f"example for the layout {self.model.layout!r}"
      )
    batch = self.config.batch
    return fit_batcher(
      made.units,
      made.examples,
      sampler=batch.sampler,
      examples_per_batch=batch.examples,
      characters=made.characters,
      features=made.features,
      **_of_words(made),
      rows=batch.rows if batch.sampler == "grouped" else 0,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      accumulate=batch.accumulate,
      buckets=batch.num_row_buckets,
    )

  def predict_batcher(
    self, questions: Sequence[Question], layout: str, *, cache: bool = True
  ) -> Batcher:
    """Batches that hold every unit (`sentences`) or every candidate of `questions` once.

    Args:
      cache: whether tokens are kept on disk, to be found the next time.

    """
    made = self.tables(questions, layout, cache=cache, judged=False)
    batch = self.config.batch
    rows = batch.predict_rows
    # Not fitted to the split: every split is predicted in the same shapes. Models of words work on
    # each slot, used or not, and their units are long.
    shortest = 64 if self.frequencies is not None else 8
    slots = (
      rows // batch.shards * (max(batch.row_lengths[-1] // shortest, 1) if batch.packed else 1)
    )
    return fit_batcher(
      made.units,
      made.examples,
      characters=made.characters,
      features=made.features,
      **_of_words(made),
      sampler="ordered" if batch.packed else "by_length",
      examples_per_batch=slots * batch.shards,
      rows=rows,
      unit_slots=slots,
      row_lengths=batch.row_lengths,
      packed=batch.packed,
      shards=batch.shards,
      accumulate=1,
      buckets=1,
    )


def build(config: Any, *, data: bool = True, workdir: epath.PathLike = "") -> Experiment:
  """Builds the parts; everything that can be wrong with a config or its files is found here.

  Args:
    data: whether the data set is loaded.
    workdir: the run's folder, where what a run must remember lies (`sources.MEMORY`).

  Raises:
    InputError: see the parts.

  """
  from as2jax.encoders.open import open_source

  dataset = load.load(config.data, config.evaluation.task) if data else None
  if dataset:
    selection = holdout.selection_split(config.data)
    training = ("train", selection) if config.mode == "train" else ()
    load.require(dataset, (*training, *config.evaluation.splits))
  source = open_source(
    config.encoder,
    texts=lambda *splits: _texts(dataset, splits),
    workdir=workdir,
    root=config.data.root,
  )
  model, loss = model_and_loss(config, source)
  rarity = None
  if getattr(model, "pair_features", False):
    rarity = word_overlap.remembered(workdir, lambda: dataset.splits["train"] if dataset else None)
  if source.max_length is not None and config.data.max_length > source.max_length:
    raise InputError(
      f"data.max_length = {config.data.max_length} exceeds the {source.max_length} "
      f"positions of {config.encoder.pretrained}"
    )
  first = first_stage_ranking.of_config(config, model.layout, model.encodes, dataset)
  pretrained, facts = _weights(source, model)
  if not reads_features(config.model):
    made = Experiment(
      config, dataset, source, model, loss, pretrained, facts, None, rarity, ranking=first
    )
    if not getattr(model, "reads_words", False):
      return made
    train = lambda: made.train_questions() if dataset else None
    return dataclasses.replace(made, frequencies=document_frequency.known(workdir, train))
  from as2jax.encoders.frozen_vectors import FrozenEncoder

  frozen = FrozenEncoder(
    source,
    digest=facts["sha256"],
    storage=model.storage,
    cache=str(folders.cache_folder(config.data.cache)),
    rows=config.batch.predict_rows,
    row_length=config.batch.row_lengths[-1],
  )
  return Experiment(
    config, dataset, source, model, loss, {}, {**facts, "features": frozen.facts}, frozen, rarity
  )


def model_and_loss(config: Any, source: "Source") -> tuple[Any, Any]:
  """The model over the encoder of `source`, and its loss."""
  offered = {k: v for k, v in source.model_fields.items() if _open_field(config.model, k)}
  if not reads_features(config.model):
    offered["encoder"] = source.module
  model = registry.build(registry.MODELS, config.model, "model", **offered)
  return model, registry.build(registry.LOSSES, config.loss, "loss")


def _of_words(made: Tables) -> dict[str, Any]:
  """What `fit_batcher` wants of words."""
  return {
    "words": made.word_keep is not None,
    "word_frequency": made.word_frequency,
    "word_keep": made.word_keep,
  }


def _texts(dataset: datasets.Dataset | None, splits: Sequence[str]) -> Iterator[str]:
  """Every question and candidate of some splits, all if none is named: a new vocabulary's texts.

  A pool's passages are among them.
  """
  found = dataset.splits if dataset else {}
  for name in splits or found:
    for question in found.get(name, ()):
      yield question.text
      yield from (candidate.text for candidate in question.candidates)
    if pool := getattr(dataset, "pools", {}).get(name):
      yield from (passage.text for passage in pool.passages)


def reads_features(section: Any) -> bool:
  """Whether the model reads frozen vectors in place of an encoder (`Tokens.features`)."""
  cls = registry.find(registry.MODELS, section["name"], "model.name")
  return getattr(cls, "features", False)


def _open_field(section: Any, key: str) -> bool:
  """Whether the model has the field `key` and its config leaves it open."""
  cls = registry.find(registry.MODELS, section["name"], "model.name")
  return key in {f.name for f in dataclasses.fields(cls)} and section.get(key) is None


def _weights(source: "Source", model: Any) -> tuple[dict[str, np.ndarray], dict]:
  """Pretrained arrays by the model's parameter paths, and what results say of them."""
  arrays = {f"encoder/{path}": value for path, value in source.params.items()}
  arrays |= source.model_params
  tokenizer = source.tokenizer.fingerprint if source.tokenizer is not None else None
  facts = {
    **source.facts,
    "architecture": source.architecture,
    "tokenizer": tokenizer,
    "pooler": "none",
  }
  if getattr(model, "pooler", False):
    facts["pooler"] = "random" if source.pooler is None else "pretrained"
    arrays.update({f"pooler/{name}": value for name, value in (source.pooler or {}).items()})
  digest = hashlib.sha256()
  for path in sorted(arrays):
    digest.update(path.encode() + np.ascontiguousarray(arrays[path]).tobytes())
  return arrays, {**facts, "sha256": digest.hexdigest()}
