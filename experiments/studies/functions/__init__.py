"""A learner made of functions (Stellaris)."""
