"""The systems: each with its model and its own loss."""
