"""Actors on the learner's own cores: processes, and what of a round they do."""
