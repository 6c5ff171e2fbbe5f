"""Gradients of many functions: truncated, weighted by staleness and aggregated."""
