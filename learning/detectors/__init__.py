"""Detectors: what the newest policy tells about the worth of the next round."""
