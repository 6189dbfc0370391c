"""DistilBERT (Sanh et al. 2019): BERT's network with half of its layers, without token types."""

import re

from as2jax.encoders import bert
from as2jax.encoders.family import Key, Transformer, register
from as2jax.layers import transformer


class DistilBertEncoder(bert.BertEncoder):
  """BERT's network without token types; parameters are those of `BertEncoder`."""

  type_vocab_size: int = 0


DISTILBERT = register(
  Transformer(
    name="distilbert",
    module=DistilBertEncoder,
    token="cls",
    keys=(
      *bert.size_keys("dim", "n_layers", "n_heads", "hidden_dim"),
      Key("max_position_embeddings", "max_positions", 512, largest=1 << 20),
      Key("dropout", "hidden_dropout", 0.1, below=1.0),
      Key("attention_dropout", "attention_dropout", 0.1, below=1.0),
      Key("activation", "activation", "gelu", words=tuple(transformer.ACTIVATIONS)),
    ),
    names={
      **bert.EMBEDDINGS,
      **bert.tensor_names(
        {
          "embeddings/norm": "embeddings.LayerNorm",
          "layers/attention/query": "transformer.layer.{}.attention.q_lin",
          "layers/attention/key": "transformer.layer.{}.attention.k_lin",
          "layers/attention/value": "transformer.layer.{}.attention.v_lin",
          "layers/attention/output": "transformer.layer.{}.attention.out_lin",
          "layers/attention_norm": "transformer.layer.{}.sa_layer_norm",
          "layers/feed_forward/intermediate": "transformer.layer.{}.ffn.lin1",
          "layers/feed_forward/output": "transformer.layer.{}.ffn.lin2",
          "layers/output_norm": "transformer.layer.{}.output_layer_norm",
        }
      ),
    },
    classes="DistilBert",
    prefix="distilbert.",
    ignored=re.compile(
      r"embeddings\.position_ids"
      r"|(vocab_transform|vocab_layer_norm|vocab_projector|pre_classifier|classifier|qa_outputs)\..+"
    ),
    special=bert.BERT.special,
    typed=False,
    classifier=bert.dense_classifier("relu", "pre_classifier", "classifier"),
    published={
      f"distilbert-base-{case}": dict(
        vocab_size=rows, dim=768, n_layers=6, n_heads=12, hidden_dim=3072
      )
      for case, rows in (("uncased", 30522), ("cased", 28996), ("multilingual-cased", 119547))
    },
  )
)
