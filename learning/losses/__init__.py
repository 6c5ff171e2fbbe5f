"""Losses of the algorithms."""
