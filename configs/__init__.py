"""Jobs: one short file each; the keys with their defaults are in `as2jax.config`."""
