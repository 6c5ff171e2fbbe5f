"""Searches: trials, their values, and when they pause and resume."""
