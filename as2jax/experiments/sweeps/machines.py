"""Machines of Google's Cloud TPUs: how they are asked for, where they are, how their chips lie."""

import dataclasses
import re

from as2jax.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Generation:
  """One kind of chip that Google lets.

  Attributes:
    accelerator: of accelerator types, before the size; version: the runtime.
    zones: that have it for all, by Google's page "TPU regions and zones" of autumn 2025, the
      largest first.
    topologies: {size as in the accelerator type: shape of the slice}.
    cores: a size counts cores, two to a chip.

  """

  accelerator: str
  version: str
  zones: tuple[str, ...]
  topologies: dict[int, str]
  cores: bool = False


_FLAT = {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}
_CUBES = {8: "2x2x1", 16: "2x2x2", 32: "2x2x4", 64: "2x4x4", 128: "4x4x4", 256: "4x4x8"}
GENERATIONS = {
  "v4": Generation("v4", "tpu-ubuntu2204-base", ("us-central2-b",), _CUBES, cores=True),
  "v5e": Generation(
    "v5litepod",
    "v2-alpha-tpuv5-lite",
    ("us-west4-a", "us-central1-a", "us-south1-a", "us-west1-c", "europe-west4-b"),
    _FLAT,
  ),
  "v5p": Generation(
    "v5p", "v2-alpha-tpuv5", ("us-east5-a", "us-central1-a", "europe-west4-b"), _CUBES, cores=True
  ),
  "v6e": Generation(
    "v6e",
    "v2-alpha-tpuv6e",
    ("us-east5-b", "us-east1-d", "us-east5-a", "us-central1-b", "europe-west4-a"),
    _FLAT,
  ),
}


@dataclasses.dataclass(frozen=True)
class Machine:
  """What to ask Google for.

  Attributes:
    accelerator: accelerator type, such as v5litepod-8; version: its runtime.
    topology: as the compiler for absent chips is told, such as v5e:2x4.
    chips: how many.
    zones: in order of preference; spot: preemptible; queued: as a queued resource.

  """

  accelerator: str
  version: str
  topology: str
  chips: int
  zones: tuple[str, ...]
  spot: bool
  queued: bool


def machine(tpu: str, *, zones: str = "", spot: bool = True, queued: bool = False) -> Machine:
  """The machine named `tpu`, such as v5e-8; `zones`, with commas, in place of those that have it.

  Raises:
    InputError: a name or a size that is not known, or words that are no zones.

  """
  match = re.fullmatch(r"(v\w+)-(\d+)", tpu)
  if not match or match[1] not in GENERATIONS:
    raise InputError(
      f"--tpu={tpu}: give a generation ({', '.join(GENERATIONS)}) and a size, such as v5e-8"
    )
  kind, size = GENERATIONS[match[1]], int(match[2])
  if size not in kind.topologies:
    raise InputError(
      f"--tpu={tpu}: {match[1]} comes in {', '.join(map(str, kind.topologies))}"
      + (" (cores, two to a chip)" if kind.cores else "")
    )
  wanted = tuple(zones.split(",")) if zones else kind.zones
  for zone in wanted:
    if not re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z][a-z0-9]*", zone):
      raise InputError(f"--zones={zones}: {zone!r} is no zone; give such as {','.join(kind.zones)}")
  return Machine(
    f"{kind.accelerator}-{size}",
    kind.version,
    f"{match[1]}:{kind.topologies[size]}",
    size // 2 if kind.cores else size,
    wanted,
    spot,
    queued,
  )
