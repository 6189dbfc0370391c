"""The results of `launch/benchmarks/benchmark.py` as a readable table."""

from collections.abc import Mapping
from typing import Any

NOUNS = {
  "triplet": ("triplets", "sentences"),
  "crossencoder": ("pairs", "sequences"),
  "encode": ("sentences", "sentences"),
  "crossvae": ("pairs", "texts"),
}


def text(result: Mapping[str, Any]) -> str:
  """What a person reads."""
  if "prepared" in result:
    return f"wrote {result['prepared']} ({result['bytes'] / 2**20:.1f} MiB)"
  lines = [
    f"{result['system']} on {result['data']}, {result['pretrained']}, our sampler "
    f"{result['sampler']}, our dtype {result['dtype']}, dropout {result['dropout']}, "
    f"{result['cores']} cores (load average {result['load_average']:.1f} before)"
  ]
  lines += [f"note: {note}" for note in result["notes"]]
  lines += ["", *_medians(result), "", *_blocks(result), ""]
  if "ratio" in result:
    each = ", ".join(f"{r:.2f}" for r in result["ratio_of_each_block"])
    lines.append(
      f"an epoch is {result['ratio']:.2f}x faster than PyTorch's (medians; block by "
      f"block {each}); in processor time {result['ratio_of_cpu']:.2f}x"
    )
  lines += [f"{side}: {_facts(result[side]['facts'])}" for side in result["sides"]]
  lines += [f"{name}: {value}" for name, value in result.get("processes", {}).items()]
  return "\n".join(lines)


def _medians(result: Mapping[str, Any]) -> list[str]:
  examples, units = NOUNS[result["system"]]
  rows = [
    ("", lambda r: r["name"]),
    (f"{examples}/s", lambda r: f"{r['examples_per_second']:.1f}"),
    (f"{units} encoded/s", lambda r: f"{r['units_per_second']:.1f}"),
    ("an epoch: seconds", lambda r: f"{r['epoch_seconds']:.1f}"),
    (f"an epoch: {examples}", lambda r: f"{r['epoch']['examples']:,}"),
    (f"an epoch: {units} encoded", lambda r: f"{r['epoch']['units']:,}"),
    ("an epoch: token positions", lambda r: f"{r['epoch']['positions']:,}"),
    ("padding", lambda r: f"{r['padding']:.1%}"),
    ("share of matmul peak, real tokens", lambda r: f"{r['share_of_peak']:.1%}"),
    ("  with padding", lambda r: f"{r['share_of_peak_padded']:.1%}"),
    ("matmul peak, GFLOP/s", lambda r: f"{r['peak_flops'] / 1e9:.0f}"),
  ]
  return [
    f"{label:36}"
    + "".join(f"{value({**result[side], 'name': side}):>14}" for side in result["sides"])
    for label, value in rows
  ]


def _blocks(result: Mapping[str, Any]) -> list[str]:
  examples, _ = NOUNS[result["system"]]
  lines = [
    f"{'block':8}{'side':10}{'seconds':>10}{examples + '/s':>14}{'epoch, s':>12}"
    f"{'cores used':>12}{'peak share':>12}{'GFLOP/s peak':>14}"
  ]
  for r in result["blocks"]:
    lines.append(
      f"{r['block'] + 1:<8}{r['side']:10}{r['seconds']:>10.1f}"
      f"{r['examples_per_second']:>14.1f}{r['epoch_seconds']:>12.1f}"
      f"{r['cpu_seconds'] / r['seconds']:>12.2f}"
      f"{r['share_of_peak']:>12.1%}{r['peak_flops'] / 1e9:>14.0f}"
    )
  return lines


def _facts(facts: Mapping[str, Any]) -> str:
  return ", ".join(f"{key} {value}" for key, value in facts.items())
