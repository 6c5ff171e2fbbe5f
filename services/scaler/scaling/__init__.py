"""Scaling policies, one per file, all pure."""
