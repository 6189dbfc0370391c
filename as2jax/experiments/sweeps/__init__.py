"""Sweeps: their points, executors on this machine and in the cloud, their tables."""
