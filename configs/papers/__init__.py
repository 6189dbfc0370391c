"""The five papers and our recipes: a TOML file each, which `as2jax.experiments.papers.rows` reads.

`tables` are a paper's, with its published figures: `as2jax lab paper NAME` runs them. `measured` are our own,
made by `as2jax lab measured` from what `results/` keeps of each row.
"""
