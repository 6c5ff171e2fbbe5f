"""Rounds: planned once, answered as often as asked."""
