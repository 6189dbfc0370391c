"""Every system's loss in PyTorch, from the papers' equations: what our training steps must equal.

A model is a function of `p`, parameters by path as a run has them (a kernel is [in, out], layers of
a transformer lie on the first axis), and of `Inputs`, one text a row, without
packing, shards or examples that are padding. Autograd and `torch.optim` do the rest, in float64: what is left between
the two sides is the rounding of ours.

PYTHONPATH=. python tests/torch_steps.py [CASE …]     (all of tests/tiny_steps.py by default)

records losses, gradients and parameters: again where a tiny config, the embedded sample or a tokeniser
changes on purpose.
"""

import dataclasses
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import tiny_steps
import torch
from torch.nn import functional as F

from as2jax.data.inputs.document_position import DocumentPosition
from as2jax.data.inputs.word_overlap import DocumentFrequency, StopWords, WordOverlap
from as2jax.encoders import hub
from as2jax.encoders.frozen_vectors import FrozenVectors

Params = Mapping[str, torch.Tensor]
UNKNOWN_WORD = 1  # of a vocabulary of words; 0 is padding
SIDES = ("question", "answer")

# A batch without packing and padding


@dataclasses.dataclass(frozen=True)
class Inputs:
  """The content of a batch: texts `[text, …]` of lengths, and examples over them.

  `words` lists, for each text and role, (first token, tokens, frequency) of the words that count.
  `noise` has the latents' by side `[example, z]`, `vectors` frozen ones `[text, token, d]`,
  `overlap` the numbers `[example, 2]` that M²S-Net reads, `place` ln(1 + place) `[example]`.
  """

  ids: torch.Tensor
  type: torch.Tensor
  role: torch.Tensor
  length: torch.Tensor
  number: torch.Tensor
  members: torch.Tensor
  labels: torch.Tensor
  answer: torch.Tensor
  progress: float
  words: tuple[tuple[list[tuple[int, int, float]], ...], ...] = ()
  noise: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
  vectors: torch.Tensor | None = None
  overlap: torch.Tensor | None = None
  place: torch.Tensor | None = None

  @property
  def real(self) -> torch.Tensor:
    """Which tokens are of a text, `[text, token]`."""
    return torch.arange(self.ids.shape[1])[None] < self.length[:, None]


def named_inputs(batch: Any) -> dict[str, Any]:
  """What a batch has beside tokens, units and examples; None where it has it not."""
  inputs = dict(batch.inputs)
  return {
    "vectors": inputs.get(FrozenVectors.name),
    "overlap": inputs.get(WordOverlap.name),
    "place": inputs.get(DocumentPosition.name),
    "frequency": inputs.get(DocumentFrequency.name),
    "keep": None if StopWords.name not in inputs else inputs[StopWords.name] == 0,
  }


def read(case: tiny_steps.Case, number: int) -> Inputs:
  """The content of one of a case's batches."""
  batch = jax.tree.map(lambda x: np.asarray(x)[0], case.batches[number])  # the only micro-batch
  tokens, units, examples, more = batch.tokens, batch.units, batch.examples, named_inputs(batch)
  shards, slots = units.length.shape
  used = np.argwhere(units.length > 0)
  longest = int(units.length.max())
  at = lambda array, s, u: array[s, units.row[s, u], units.start[s, u] :][: units.length[s, u]]

  def texts(array):
    padded = np.zeros((len(used), longest, *array.shape[3:]), array.dtype)
    for n, (s, u) in enumerate(used):
      padded[n, : units.length[s, u]] = at(array, s, u)
    return torch.tensor(padded)

  place = np.full((shards, slots), -1)
  place[tuple(used.T)] = np.arange(len(used))
  shard, slot = np.nonzero(examples.mask > 0)
  of = lambda array: torch.tensor(np.asarray(array)[shard, slot])
  optional = {}
  if case.system in tiny_steps.CROSSING:
    shape = (*examples.mask.shape, case.config.model.latent_size)
    optional["noise"] = {side: of(tiny_steps.noise(side, shape)).double() for side in SIDES}
  if more["vectors"] is not None:
    optional["vectors"] = texts(np.asarray(more["vectors"])).double()
  for name in ("overlap", "place"):
    if more[name] is not None:
      optional[name] = of(more[name]).double()
  if batch.words is not None:
    optional["words"] = _words(batch, more, used)
  return Inputs(
    ids=texts(tokens.ids).long(),
    type=texts(tokens.type).long(),
    role=texts(tokens.role).long(),
    length=torch.tensor(units.length[tuple(used.T)]).long(),
    number=torch.tensor(units.id[tuple(used.T)]).long(),
    members=torch.tensor(place[shard[:, None], examples.members[shard, slot]]).long(),
    labels=of(examples.labels).long(),
    answer=of(examples.answer).long(),
    progress=case.progress[number],
    **optional,
  )


def _words(batch: Any, more: Mapping[str, Any], used: np.ndarray) -> tuple:
  """The words of each text that stop words do not leave out, by role."""
  words, by_text = batch.words, []
  for s, u in used:
    mine = np.flatnonzero((words.unit[s] == u) & (words.length[s] > 0) & (more["keep"][s] > 0))
    roles = [[], [], [], []]
    for w in mine:
      span = int(words.start[s, w]), int(words.length[s, w]), float(more["frequency"][s, w])
      roles[words.role[s, w]].append(span)
    by_text.append(tuple(roles))
  return tuple(by_text)


# Layers


def dense(p: Params, name: str, x: torch.Tensor) -> torch.Tensor:
  return F.linear(x, p[f"{name}/kernel"].mT, p.get(f"{name}/bias"))


def norm(p: Params, name: str, x: torch.Tensor, eps: float) -> torch.Tensor:
  return F.layer_norm(x, x.shape[-1:], p[f"{name}/scale"], p[f"{name}/bias"], eps)


def below(p: Params, prefix: str, layer: int | None = None) -> dict[str, torch.Tensor]:
  """The parameters under a prefix, of one layer where they are stacked."""
  cut = {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}
  return cut if layer is None else {name: value[layer] for name, value in cut.items()}


def attention(p: Params, name: str, x: torch.Tensor, real: torch.Tensor, heads: int):
  """Multi-head self-attention (Vaswani et al. 2017)."""
  split = lambda y: y.unflatten(-1, (heads, -1)).transpose(1, 2)
  query, key, value = (split(dense(p, f"{name}/{part}", x)) for part in ("query", "key", "value"))
  mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=real[:, None, None])
  return dense(p, f"{name}/output", mixed.transpose(1, 2).flatten(2))


def bert(
  case: tiny_steps.Case, p: Params, x: Inputs, offset: torch.Tensor | float = 0.0
) -> torch.Tensor:
  """Token vectors of BERT (Devlin et al. 2019); `offset` is added to the input embeddings."""
  folder = pathlib.Path(hub.resolve(case.config.encoder.pretrained))
  sizes = json.loads((folder / "config.json").read_text())
  eps, p = sizes["layer_norm_eps"], below(p, "encoder/")
  tables = {name: p[f"embeddings/{name}"] for name in ("word", "position", "type")}
  h = tables["word"][x.ids] + tables["type"][x.type] + tables["position"][: x.ids.shape[1]]
  h = norm(p, "embeddings/norm", h + offset, eps)
  for n in range(sizes["num_hidden_layers"]):
    layer = below(p, "layers/", n)
    attended = attention(layer, "attention", h, x.real, sizes["num_attention_heads"])
    h = norm(layer, "attention_norm", h + attended, eps)
    inner = F.gelu(dense(layer, "feed_forward/intermediate", h))
    h = norm(layer, "output_norm", h + dense(layer, "feed_forward/output", inner), eps)
  return h


def mean(h: torch.Tensor, x: Inputs) -> torch.Tensor:
  """The mean of each text's token vectors."""
  return (h * x.real[..., None]).sum(1) / x.length[:, None]


def gru(p: Params, words: torch.Tensor, length: torch.Tensor, state: torch.Tensor, backward=False):
  """The states of a GRU over texts of a length, from the last word where `backward`; else 0."""
  weights = (p["input_kernel"].T, p["recurrent_kernel"].T, p["input_bias"], p["recurrent_bias"])
  steps_ = range(words.shape[1])
  outputs = {}
  for t in reversed(steps_) if backward else steps_:
    there = (t < length)[:, None]
    state = torch.where(there, torch.gru_cell(words[:, t], state, *weights), state)
    outputs[t] = torch.where(there, state, torch.zeros_like(state))
  return torch.stack([outputs[t] for t in steps_], 1)


# Systems: each gives the loss


def crossencoder(case, p, x, offset=0.0):
  """Cross entropy of a softmax over tanh(W h_cls) (CETE 3.2)."""
  first = bert(case, p, x, offset)[:, 0][x.members[:, 0]]
  return F.cross_entropy(dense(p, "head", torch.tanh(dense(p, "pooler", first))), x.labels[:, 0])


def cosine(case, p, x):
  """Cross entropy of 20 cos(u, v) + w · [u, v, |u − v|, u · v] + b, with means u and v of one text
  each, and of c · ln(1 + place)."""
  h = bert(case, p, dataclasses.replace(x, type=torch.zeros_like(x.type)))
  parts = (x.role[..., None] == torch.arange(2)) & x.real[..., None]
  u, v = ((h * part).sum(1) / part.sum(1) for part in parts[..., None].unbind(2))
  u, v = u[x.members[:, 0]], v[x.members[:, 0]]
  logit = (
    20 * F.cosine_similarity(u, v)
    + dense(p, "head", torch.cat([u, v, (u - v).abs(), u * v], 1))[:, 0]
    + p["position"] * x.place
  )
  return F.binary_cross_entropy_with_logits(logit, x.labels[:, 0].double())


def loct(case, p, x):
  """The cross-encoder over the sentences around the candidate, with embeddings by role."""
  return crossencoder(case, p, x, p["segment_embeddings/embedding"][x.role])


def triplet(case, p, x):
  """Σ max(‖a − p‖² − ‖a − n‖² + m, 0) (ASBERT 3.2)."""
  a, b, c = mean(bert(case, p, x), x)[x.members].unbind(1)
  apart = (a - b).square().sum(-1) - (a - c).square().sum(-1)
  return F.relu(apart + case.config.loss.margin).sum()


def siamese(case, p, x):
  """Binary cross entropy of a linear layer over [u; v; |u − v|] (ASBERT 3.1)."""
  u, v = mean(bert(case, p, x), x)[x.members].unbind(1)
  logits = dense(p, "head", torch.cat([u, v, (u - v).abs()], -1))[:, 0]
  return F.binary_cross_entropy_with_logits(logits, x.labels[:, 0].double())


def cete(case, p, x):
  """Squared error of the cosine of means of an encoder's outputs over frozen vectors (CETE 3.1)."""
  h, eps = x.vectors, 1e-6
  width = h.shape[-1]
  angle = torch.arange(h.shape[1])[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
  h = h + torch.stack([angle.sin(), angle.cos()], -1).flatten(1).double()
  layer = below(p, "layer_0/")
  heads = case.config.model.num_heads
  h = h + attention(layer, "attention", norm(layer, "attention_norm", h, eps), x.real, heads)
  inner = dense(layer, "feed_forward/intermediate", norm(layer, "feed_forward_norm", h, eps))
  h = norm(p, "output_norm", h + dense(layer, "feed_forward/output", F.relu(inner)), eps)
  q, c = mean(h, x)[x.members].unbind(1)
  return F.mse_loss(F.cosine_similarity(q, c), x.labels[:, 0].double())


def m2snet(case, p, x, statistics):
  """Convolutions over similarities, batch norm over valid pairs (M²S-Net eqs. 1 to 5)."""
  m, sides = case.config.model, []
  for member, size in zip(x.members.unbind(1), (m.question_length, m.candidate_length)):
    ids = F.pad(x.ids, (0, size))[:, :size][member]
    there = torch.arange(size) < x.length[member][:, None]
    sides.append((p["encoder/embeddings/word"][ids] * there[..., None], there.double()))
  (left, rows), (right, columns) = sides
  valid = (rows[:, :, None] * columns[:, None])[:, None]
  h = torch.einsum("nid,kde,nje->nkij", left, p["grid/U"], right) + p["grid/B"]
  h = h * valid
  for n in range(len(m.filters)):
    kernel = p[f"convolution_{n}/kernel"].permute(3, 2, 0, 1)
    h = F.conv2d(h, kernel)
    valid = (F.conv2d(valid, torch.ones_like(kernel[:1, :1])) > 0).double()
    real = h.transpose(0, 1)[:, valid[:, 0] > 0]  # [channel, valid pairs]
    center, spread = real.mean(1), real.var(1, correction=0)
    for name, new in (("mean", center), ("var", real.var(1, correction=1))):
      path = f"norm_{n}/{name}"
      statistics[path] = m.momentum * statistics[path] + (1 - m.momentum) * new.detach()
    wide = lambda v: v[None, :, None, None]
    h = (h - wide(center)) / wide(spread + m.eps).sqrt()
    h = h * wide(p[f"norm_{n}/scale"]) + wide(p[f"norm_{n}/bias"])
    h = F.avg_pool2d(torch.tanh(h) * valid, m.pool_size)
    valid = (F.avg_pool2d(valid, m.pool_size) > 0).double()
  hidden = torch.tanh(dense(p, "hidden", h.flatten(1)))
  logits = dense(p, "head", torch.cat([hidden, x.overlap], 1))[:, 0]
  entropy = F.binary_cross_entropy_with_logits(logits, x.labels[:, 0].double())
  return entropy + case.config.loss.weight * (
    p["grid/U"].square().sum() + p["grid/B"].square().sum()
  )


def sinkhorn(cost: torch.Tensor, a: torch.Tensor, b: torch.Tensor, eps: float, iterations: int):
  """The plan of ⟨D, π⟩ + ε KL(π | a bᵀ) after so many turns, from potentials 0; rows fit last."""
  f = torch.zeros_like(a)
  for _ in range(iterations):
    g = eps * (b.log() - torch.logsumexp((f[:, None] - cost) / eps, 0))
    f = eps * (a.log() - torch.logsumexp((g[None] - cost) / eps, 1))
  return torch.exp((f[:, None] + g[None] - cost) / eps)


def align(case, h: torch.Tensor, question: list, sentence: list):
  """(r, d) of one sentence: the mean of its relevant context, Σ D·π with π held constant."""
  m = case.config.model
  vectors = lambda words: torch.stack([h[start : start + n].mean(0) for start, n, _ in words])
  weights = lambda words: torch.tensor([w for *_, w in words], dtype=h.dtype)
  question, sentence = question[: m.question_words], sentence[: m.sentence_words]
  x, y = vectors(question), vectors(sentence)
  a, b = (weights(words) / weights(words).sum() for words in (question, sentence))
  difference = x[:, None] - y[None]
  same = (difference == 0).all(-1)
  cost = torch.where(same, 0.0, torch.where(same[..., None], 1.0, difference).norm(dim=-1))
  with torch.no_grad():
    plan = sinkhorn(cost / cost.mean(), a, b, m.epsilon, m.iterations)
  return y[sorted(set(plan.argmax(1).tolist()))].mean(0), (cost * plan).sum()


def cassie(case, p, x):
  """L_AS2 + γ L_MI over graphs of aligned sentences (CASSIE 3.1 to 3.4)."""
  hidden = bert(case, p, x, p["segment_embeddings/embedding"][x.role])
  ffn = lambda name, v: dense(p, f"{name}/output", F.relu(dense(p, f"{name}/hidden", v)))[..., 0]
  entropy, information = [], 0.0
  for text, labels in zip(x.members[:, 0].tolist(), x.labels.tolist(), strict=True):
    question, *sentences = x.words[text]
    there = [k for k, words in enumerate(sentences) if words and question]
    assert 0 in there and labels[0] >= 0, "a candidate without words or label"
    pairs = [align(case, hidden[text], question, sentences[k]) for k in there]
    h, d = torch.stack([r for r, _ in pairs]), torch.stack([d for _, d in pairs])[:, None]
    n = len(there)
    left, right = lambda v: v[:, None].expand(n, n, -1), lambda v: v[None].expand(n, n, -1)
    edges = torch.cat([left(h) * right(h), left(d), right(d)], -1)
    alpha = ffn("edge_weights/score", edges).softmax(1)
    for layer in range(case.config.model.graph_layers):
      name = f"convolutions_{layer}"
      h = F.relu(alpha @ dense(p, f"{name}/map", h) + p[f"{name}/bias"])
    entropy.append(
      F.binary_cross_entropy_with_logits(ffn("head", h[0]), torch.tensor(float(labels[0])).double())
    )
    u = ffn("discriminator", torch.cat([left(h), right(h)], -1))
    own = [labels[k] for k in there]
    for i in range(n):
      for j in range(n):
        if own[i] == 1 and own[j] >= 0:
          information = information - F.logsigmoid(u[i, j] if own[j] == 1 else -u[i, j])
  gamma = case.config.loss.gamma
  return torch.stack(entropy).mean() + gamma * information / len(entropy)


def cross_vae(case, p, x):
  """α L_cross + β L_KL + γ L_matching (Cross-VAEs eqs. 1 to 7), and that of its siblings."""
  m, loss, table = case.config.model, case.config.loss, p["encoder/embeddings/word"]
  texts, latents, total = {}, {}, 0.0
  aligned = x.labels[:, 0] == 1
  share = min(2 * x.progress / case.config.epochs, 1.0)
  for k, side in enumerate(SIDES):
    size = getattr(m, f"{side}_length")
    ids = F.pad(x.ids, (0, size))[x.members[:, k], :size]
    texts[side] = ids, x.length[x.members[:, k]].clamp(max=size)
    mu, log_variance = posterior(below(p, f"{side}_encoder/"), table[ids], texts[side][1])
    latents[side] = mu
    if m.crossing != "none":
      latents[side] = mu + (log_variance / 2).exp() * x.noise[side]
      kl = 0.5 * (mu.square() + log_variance.exp() - 1 - log_variance).sum(1)
      total = total + loss.beta * share * kl[aligned].mean()
  sources = {"cross": SIDES[::-1], "dual": SIDES, "none": ()}[m.crossing]
  for side, source in zip(SIDES, sources):
    likelihood = generate(
      below(p, f"{side}_decoder/"), latents[source], *texts[side], table, case.experiment.model
    )
    total = total - loss.alpha * likelihood[aligned].mean()
  cosines = F.cosine_similarity(latents["question"][:, None], latents["answer"][None], dim=-1)
  logits = p["match_scale"] * cosines + p["match_bias"]
  own = torch.eye(len(logits), dtype=torch.bool)
  text = x.number[x.members[:, 0]]
  other = (x.answer[:, None] != x.answer[None]) & (text[:, None] != text[None])
  negative = (own & (x.labels == 0)) | (other & ~own)
  positive = own & aligned[:, None]
  actual = F.softplus(-logits[positive]).mean(), F.softplus(logits[negative]).mean()
  return total + loss.gamma / 2 * sum(actual)


def posterior(p: Params, words: torch.Tensor, length: torch.Tensor):
  """μ and log σ²: GRU in both directions → structured self-attention (Lin et al. 2017) → linear."""
  zero = words.new_zeros(len(words), p["gru/forward/recurrent_kernel"].shape[0])
  h = torch.cat(
    [
      gru(below(p, f"gru/{d}/"), words, length, zero, d == "backward")
      for d in ("forward", "backward")
    ],
    -1,
  )
  scores = dense(p, "attention/hops", torch.tanh(dense(p, "attention/hidden", h)))
  there = torch.arange(words.shape[1]) < length[:, None]
  weights = scores.masked_fill(~there[..., None], -torch.inf).softmax(1)
  pooled = (weights.mT @ h).flatten(1)
  return dense(p, "mean", pooled), dense(
    p, "log_variance", pooled
  ) if "log_variance/bias" in p else None


def generate(p: Params, z, ids, length, table, model) -> torch.Tensor:
  """Log p(text | z) [n] by a GRU that starts from z and reads it at each word, with tied softmax.

  Words that are unknown or beyond those of the training text are read, and not counted.
  """
  words = torch.cat([table[ids[:, :-1]], z[:, None].expand(-1, ids.shape[1] - 1, -1)], -1)
  h = gru(below(p, "layer/forward/"), words, length - 1, torch.tanh(dense(p, "start", z)))
  logits = dense(p, "words/width", h) @ table[: model.output_size].T + p["words/bias"]
  target = ids[:, 1:]
  counts = (torch.arange(1, ids.shape[1]) < length[:, None]) & (target != UNKNOWN_WORD)
  counts &= target < model.output_size
  actual = logits.log_softmax(-1).gather(-1, target.clamp(max=model.output_size - 1)[..., None])
  return (actual[..., 0] * counts).sum(1)


LOSSES: dict[str, Callable] = {
  "crossencoder": crossencoder,
  "cosine": cosine,
  "triplet": triplet,
  "siamese": siamese,
  "loct": loct,
  "cete": cete,
  "cassie": cassie,
  "m2snet": m2snet,
  **dict.fromkeys(tiny_steps.CROSSING, cross_vae),
}


def optimizer(case: tiny_steps.Case, leaves: list[torch.Tensor]) -> torch.optim.Optimizer:
  o = case.config.optimizer
  if o.name == "adadelta":
    return torch.optim.Adadelta(leaves, lr=o.rate, rho=o.b2, eps=o.eps)
  return torch.optim.Adam(leaves, lr=o.rate, betas=(o.b1, o.b2), eps=o.eps)


def reference(case: tiny_steps.Case) -> dict[str, Any]:
  """What `tiny_steps.ours` gives."""
  p = {
    path: torch.tensor(v, dtype=torch.float64).requires_grad_() for path, v in case.params.items()
  }
  statistics = {}
  if case.system == "m2snet":
    for n, filters in enumerate(case.config.model.filters):
      statistics[f"norm_{n}/mean"] = torch.zeros(filters).double()
      statistics[f"norm_{n}/var"] = torch.ones(filters).double()
  losses, gradients, rule = [], [], optimizer(case, list(p.values()))
  for number, rate in enumerate(case.rates()):
    for value in p.values():
      value.grad = torch.zeros_like(value)
    extra = (statistics,) if case.system == "m2snet" else ()
    loss = LOSSES[case.system](case, p, read(case, number), *extra)
    loss.backward()
    losses.append(float(loss.detach()))
    gradients.append({path: value.grad.numpy().copy() for path, value in p.items()})
    if case.config.optimizer.clip_norm:
      torch.nn.utils.clip_grad_norm_(list(p.values()), case.config.optimizer.clip_norm)
    for group in rule.param_groups:
      group["lr"] = rate
    rule.step()
  return {
    "loss": np.asarray(losses),
    "rate": np.asarray(case.rates()),
    "gradients": gradients,
    "after": {path: v.detach().numpy() for path, v in p.items()},
    "statistics": {path: v.numpy() for path, v in statistics.items()},
  }


def record(names: tuple[str, ...]) -> None:
  """Writes the recordings of these cases in place of those that `tiny_steps.GOLDEN` has of them."""
  with np.load(tiny_steps.GOLDEN) as file:
    kept = {key: file[key] for key in file.files if key.partition("/")[0] not in names}
  for name in names:
    case = tiny_steps.case(name)
    actual = reference(case)
    recording = tiny_steps.recording(case, actual, tiny_steps.choose(case, actual))
    kept |= {f"{name}/{key}": value for key, value in recording.items()}
  np.savez_compressed(tiny_steps.GOLDEN, **kept)


if __name__ == "__main__":
  with tempfile.TemporaryDirectory() as cache:
    os.environ["AS2JAX_CACHE"] = cache
    record(tuple(sys.argv[1:]) or (*tiny_steps.TINY, *tiny_steps.MINILM))
