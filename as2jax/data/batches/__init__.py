"""Packed batches, samplers and the order of an epoch."""
