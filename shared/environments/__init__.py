"""Environments: building them, their spaces, wrappers and games."""
