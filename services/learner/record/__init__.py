"""What a run leaves behind: checkpoints, its record, metrics."""
