"""Training: the loop, the step, the optimizer, checkpoints, and building a run from its config."""
