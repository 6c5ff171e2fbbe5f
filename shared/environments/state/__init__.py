"""An environment's state as plain arrays: left by one process, taken up by another, bit for bit."""
