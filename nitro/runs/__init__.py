"""Reading, drawing and using a run's folder."""
