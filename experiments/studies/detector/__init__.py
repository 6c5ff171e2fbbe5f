"""Studies of the samples that the detector measures on, and their effect."""
