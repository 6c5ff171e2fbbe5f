"""Training MinionsRL's scheduler."""
