"""The `as2jax` command: a verb for each thing a person does."""
