"""ELECTRA's discriminator (Clark et al. 2020): BERT's network over narrower embeddings."""

import re

from as2jax.encoders import bert
from as2jax.encoders.family import Key, Transformer, register
from as2jax.runtime.errors import InputError


class ElectraEncoder(bert.BertEncoder):
  """BERT's network, to whose width embeddings of `embedding_size` are projected behind their norm.

  Parameters: those of `BertEncoder`, and `embeddings_project/{kernel, bias}` where the widths differ.
  """

  embedding_size: int = 128

  def _encode(self, tokens, offset, scan, train):
    if offset is not None and self.embedding_size != self.hidden_size:
      raise InputError(
        f"this ELECTRA's embeddings are {self.embedding_size} wide, its states {self.hidden_size}: vectors "
        "of roles cannot be added to them; take an ELECTRA of base or large size"
      )
    return super()._encode(tokens, offset, scan, train)


_VOCAB = dict(vocab_size=30522, max_position_embeddings=512)
ELECTRA = register(
  Transformer(
    name="electra",
    module=ElectraEncoder,
    token="cls",
    keys=(*bert.KEYS, bert.TYPES, Key("embedding_size", "embedding_size", 128, largest=1 << 16)),
    names={
      **bert.NAMES,
      "embeddings_project/kernel": "embeddings_project.weight",
      "embeddings_project/bias": "embeddings_project.bias",
    },
    rename=bert.todays_name,
    variants=("is_decoder",),
    classes="Electra",
    prefix="electra.",
    ignored=re.compile(
      r"embeddings\.(position_ids|token_type_ids)"
      r"|(discriminator_predictions|generator_predictions|generator_lm_head|classifier|qa_outputs)\..+"
    ),
    special=bert.BERT.special,
    typed=True,
    classifier=bert.dense_classifier("gelu", "classifier.dense", "classifier.out_proj"),
    published={
      f"google/electra-{name}-discriminator": bert.published(*sizes, embedding_size=width, **_VOCAB)
      for name, sizes, width in (
        ("small", (12, 256, 1024, 4), 128),
        ("base", bert.BASE, 768),
        ("large", bert.LARGE, 1024),
      )
    },
  )
)
