"""MSRL's PPO with its own environments, and with Nitro's actors (Figures 12 to 14).

A batch of MSRL's is of whole episodes, and its loss takes all of it at once.
"""

from experiments.frameworks.comparison import framework_experiment

EXPERIMENT = framework_experiment(
    "msrl",
    "msrl",
    title="MSRL with Nitro's actors",
    paper="Figures 12 to 14",
    updates=28,
    minibatch=8 * 1000,
    epochs=25,
    env_id="HalfCheetah-v4",
    quick_env_id="HalfCheetah-v4",
    fragment=1000,
    starts="each update is of whole episodes",
)
