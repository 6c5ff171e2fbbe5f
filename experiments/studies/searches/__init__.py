"""Searches, which learn from returns alone."""
