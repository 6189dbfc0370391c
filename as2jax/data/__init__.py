"""Datasets, text, batches, and what models read beside token ids."""
