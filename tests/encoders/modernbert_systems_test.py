"""Every system of the papers that has a transformer is trained over a ModernBERT and ranks."""

import json

import numpy as np
import pytest
import tiny_encoders
import tiny_systems

from as2jax.inference import modes
from as2jax.runtime.errors import InputError
from as2jax.training import build

# Without a transformer: M²S-Net has frozen vectors, Cross-VAEs the table of a WordPiece vocabulary.
SYSTEMS = [name for name in tiny_systems.SYSTEMS if name not in ("m2snet", "cross_vae")]


@pytest.mark.parametrize(
  "system",
  [
    pytest.param(name, marks=pytest.mark.slow if name == "crossencoder" else pytest.mark.long)
    for name in SYSTEMS
  ],
)
def test_every_system_is_trained_over_a_modernbert(system, tmp_path):
  folder = tiny_encoders.folder("modernbert", tmp_path / "encoder")
  config = tiny_systems.config(system, encoder__pretrained=str(folder), log__steps=1)
  modes.run(config, str(tmp_path / "run"))
  results = json.loads((tmp_path / "run" / "results.json").read_text())
  assert results["weights"]["family"] == "modernbert"
  assert results["seeds"][0]["steps"] > 1
  rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
  losses = [row["loss"] for row in rows if "loss" in row]
  assert len(losses) > 1 and np.isfinite(losses).all() and len(set(losses)) > 1
  assert all(0 < entry["value"] <= 1 for entry in results["seeds"][0]["metrics"].values())


def test_cross_vaes_say_which_tables_they_read(tmp_path):
  folder = tiny_encoders.folder("modernbert", tmp_path / "encoder")
  with pytest.raises(
    InputError, match="no BERT's .WordPiece., so it does not say where words begin"
  ):
    build.load(tiny_systems.config("cross_vae", encoder__pretrained=str(folder)))
