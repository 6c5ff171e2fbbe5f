"""Policies in NumPy, with which actors choose actions."""
