"""Learning: networks, losses, returns, updates, detectors and algorithms."""
