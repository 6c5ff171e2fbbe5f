"""Hyper-parameters of every algorithm, with their presets and sources."""
