"""Metrics, ties, prediction, the two tasks, comparisons, results."""
