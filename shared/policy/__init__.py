"""Policies in NumPy: what an actor needs to act."""
