"""Other people's training loops with Nitro's actors: RLlib's and Stable-Baselines3's.

Each module imports its library, so it is imported by name: `nitro.integrations.rllib`.
"""
