"""Actor-critic networks and their action distributions."""
