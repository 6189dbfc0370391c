"""What clients of the service send and get: one model a form of request.

`RerankBody` speaks as Text Embeddings Inference (`texts`) and as Cohere and Jina do (`documents`), `EmbedBody` as
the first, `EmbeddingsBody` as OpenAI. A field or value that cannot be honoured is refused by its name; a null asks
for nothing, but as the threshold of `PruneBody`.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pydantic

from as2jax.inference.index import Hit


def _check_text(text: str) -> str:
  text.encode()  # a ValueError for half a surrogate pair, which JSON can hold
  if not text.strip():
    raise ValueError("the text is empty")
  return text


def _text_of(document: Any) -> Any:
  if isinstance(document, (int, list)):
    raise ValueError("numbers of tokens are not read: send texts")
  return document.get("text") if isinstance(document, dict) else document


def _list_of(texts: Any) -> Any:
  return [texts] if isinstance(texts, str) else texts


Text = Annotated[str, pydantic.AfterValidator(_check_text)]
Texts = Annotated[
  list[Annotated[Text, pydantic.BeforeValidator(_text_of)]], pydantic.Field(min_length=1)
]
OneOrMore = Annotated[Texts, pydantic.BeforeValidator(_list_of)]
Count = Annotated[int, pydantic.Field(ge=1)]
Side = Literal["query", "document"]  # of which a text is: a model may have a prompt for each


class _Body(pydantic.BaseModel):
  model_config = pydantic.ConfigDict(strict=True, extra="forbid")
  nullable: ClassVar[tuple[str, ...]] = ()  # fields of which a null says something

  @pydantic.model_validator(mode="before")
  @classmethod
  def _without_nulls(cls, fields: Any) -> Any:
    if not isinstance(fields, dict):
      return fields
    return {k: value for k, value in fields.items() if value is not None or k in cls.nullable}


class _CutBody(_Body):
  """Texts are always cut to what the model reads, at their end."""

  truncate: Literal[True] | None = None
  truncation_direction: Literal["Right", "right"] | None = None


class RerankBody(_CutBody):
  """The body of `/rerank`, `/v1/rerank` and `/v2/rerank`; one model is served, whatever `model` says."""

  query: Text
  texts: Texts | None = None
  documents: Texts | None = None
  rank_fields: list[Literal["text"]] | None = None
  top_n: Count | None = None
  max_tokens_per_doc: Count | None = None
  raw_scores: bool | None = None
  return_text: bool | None = None
  return_documents: bool | None = None
  model: Text | None = None

  @pydantic.model_validator(mode="after")
  def _of_one_form(self) -> "RerankBody":
    if (self.texts is None) == (self.documents is None):
      raise ValueError("give the candidates as `texts` or as `documents`")
    return self

  def answer(self, hits: Sequence[Hit], model: str) -> Any:
    """Returns the answer in the form of the service that the body is of."""
    score_name = "score" if self.documents is None else "relevance_score"
    results = []
    for hit in hits:
      result: dict[str, Any] = {"index": hit.index, score_name: hit.score}
      if self.return_text:
        result["text"] = hit.text
      if self.return_documents:
        result["document"] = {"text": hit.text}
      results.append(result)
    return results if self.documents is None else {"model": self.model or model, "results": results}


class SearchBody(_Body):
  """The body of `/search`."""

  query: Text
  top_k: Count = pydantic.Field(10, validation_alias=pydantic.AliasChoices("top_k", "k"))
  rerank: bool = False


class PruneBody(_Body):
  """The body of `/prune`, whose documents are cut into sentences; see `Ranker.select`."""

  nullable = ("threshold",)
  query: Text
  documents: OneOrMore
  top_k: Count | None = None
  threshold: float | str | None = "calibrated"


class EmbedBody(_CutBody):
  """The body of `/embed`."""

  texts: OneOrMore = pydantic.Field(alias="inputs")
  side: Side = pydantic.Field("document", alias="prompt_name")
  normalize: bool = True

  def answer(self, vectors: np.ndarray, model: str, tokens: int) -> Any:
    """Returns the vectors `[n, d]`, of unit length if `normalize`."""
    if self.normalize:
      norms = np.linalg.norm(vectors, axis=1, keepdims=True)
      vectors = vectors / np.where(norms > 0, norms, 1)
    return vectors.tolist()


class EmbeddingsBody(_Body):
  """The body of `/v1/embeddings`; `input_type` is not OpenAI's, and `user` changes nothing there either."""

  texts: OneOrMore = pydantic.Field(alias="input")
  side: Side = pydantic.Field("document", alias="input_type")
  encoding_format: Literal["float", "base64"] = "float"
  model: Text | None = None
  user: str | None = None

  def answer(self, vectors: np.ndarray, model: str, tokens: int) -> Any:
    """Returns the vectors `[n, d]` as they are; `base64` has little-endian float32."""
    data = []
    for i, vector in enumerate(vectors):
      embedding: Any = vector.tolist()
      if self.encoding_format == "base64":
        embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()
      data.append({"object": "embedding", "index": i, "embedding": embedding})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}
