"""What the detector measures on, and what that changes."""
