"""Capacity: warm environments and learners."""
