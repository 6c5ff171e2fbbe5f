"""Claims about actors: rollouts, and episodes that continue."""
