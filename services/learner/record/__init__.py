"""A run's output: checkpoints, its record, metrics."""
