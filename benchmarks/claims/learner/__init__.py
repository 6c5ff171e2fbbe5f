"""Claims about the learner: updates and measurements."""
