"""Actors and what they bring back, as subjects of benchmarks."""
