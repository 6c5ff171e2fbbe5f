"""Prices, and what rounds cost."""
