"""The result tables of the five papers: one file a table, its rows as configs of this repository.

A file has TITLE (the paper and its table), SCALE (100 where the paper prints per cent), COLUMNS and
ROWS. `as2jax lab paper NAME` runs them and prints them beside the published figures.
"""
