"""How long a test waits for an answer over HTTP."""

ANSWER_S = 60.0
"""Seconds, far beyond any answer here: the client's own five pass on a machine busy elsewhere."""
