"""The config that a run resolved to: --config=configs/rerun.py:runs/x/config.json."""

from as2jax.config.rerun import get_config as get_config
