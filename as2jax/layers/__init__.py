"""Layers that encoders and models share."""
