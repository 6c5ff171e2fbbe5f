"""Launching actors, and booking how they ended."""
