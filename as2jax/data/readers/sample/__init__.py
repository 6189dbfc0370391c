"""A small dataset, which lies in this folder."""
