"""Results of one actor, and their encoding."""
