"""Rounds of few long actors or many short ones."""
