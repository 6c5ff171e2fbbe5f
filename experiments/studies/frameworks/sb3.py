"""Stable-Baselines3's PPO with its own sampler, and with Nitro's actors."""

from experiments.frameworks.comparison import framework_experiment

EXPERIMENT = framework_experiment(
    "stable_baselines3",
    "sb3",
    title="Stable-Baselines3 with Nitro's actors",
    paper="none: the paper has RLlib and MSRL (Figures 12 to 14)",
    updates=490,
    minibatch=64,
    epochs=10,
)
