"""RLlib's PPO with its own sampler, and with Nitro's actors (Figures 12 to 14)."""

from experiments.frameworks.comparison import framework_experiment

EXPERIMENT = framework_experiment(
    "rllib",
    "rllib",
    title="RLlib with Nitro's actors",
    paper="Figures 12 to 14",
    updates=490,
    minibatch=128,
    epochs=10,
)
