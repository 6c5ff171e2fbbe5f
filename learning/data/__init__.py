"""From trajectories to the batches and statistics that updates read."""
