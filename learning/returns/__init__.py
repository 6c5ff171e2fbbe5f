"""Returns and advantages along time."""
