"""Hard negatives: candidates that a ranker finds in a pool and that do not answer the question."""
