"""Nitro's actors for custom training loops: `nitro.ActorPool` and its parts."""
