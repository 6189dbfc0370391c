"""Encoders of tokens: transformers, recurrent networks and word vectors."""
