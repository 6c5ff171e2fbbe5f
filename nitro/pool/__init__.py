"""Nitro's actors for a training loop of one's own: `nitro.ActorPool` and what it works with."""
