"""Readers of datasets, a file each, and how a config's data are prepared."""
