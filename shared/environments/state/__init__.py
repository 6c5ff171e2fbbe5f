"""An environment's state as plain arrays: one process saves it, another resumes it bit for bit."""
