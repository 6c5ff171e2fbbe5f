"""Gradients of many functions: truncated, weighed by their staleness and put together."""
