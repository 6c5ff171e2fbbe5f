"""Pictures and films of runs."""
