"""Figures of the paper, a module each."""
