"""Actors on the learner's own cores: processes, and their share of a round."""
