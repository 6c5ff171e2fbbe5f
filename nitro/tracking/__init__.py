"""Runs in experiment trackers, logged from their record on the user's machine."""
