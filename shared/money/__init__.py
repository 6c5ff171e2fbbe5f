"""Prices and the cost of rounds."""
