"""The config that a run resolved to: --config=rerun:runs/x/config.json."""

from as2jax.config import jobs


def get_config(argument=None):
  return jobs.of_run(argument)
