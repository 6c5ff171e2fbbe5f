"""Gradients, and the optimiser that applies them."""
