"""Tokenisers, templates and rules of text."""
