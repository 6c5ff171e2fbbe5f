"""Training a job round by round: synchronous, or several rounds at a time."""
