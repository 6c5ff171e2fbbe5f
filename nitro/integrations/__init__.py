"""Nitro's actors in the training loops of RLlib and Stable-Baselines3.

Each module imports its library, so it is imported by name: `nitro.integrations.rllib`.
"""
