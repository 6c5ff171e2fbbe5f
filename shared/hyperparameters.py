"""Hyper-parameters of each algorithm and where every default comes from.

Both the scaler (which refuses unknown names at submit) and the learner (which uses the values)
read this module, so it needs nothing but pydantic. A *preset* is a complete set of values; a job
names a preset and overrides single fields of it.

Sources cited below: *Table 1* is Table 1 of Yu et al., "Nitro: Boosting Distributed Reinforcement
Learning with Serverless Computing", PVLDB 18(1), 2024. *RLlib* is the default of RLlib's PPO, which
the paper's experiments run on; it fills what Table 1 leaves open.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from shared.message import Message, NonNegativeFloat, Number, PositiveFloat, PositiveInt, plain

Preset = Literal["paper"]


def _plain_or_row(value: object) -> object:
    if not isinstance(value, list | tuple):
        return plain(value)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in value):
        raise ValueError("must be a list of whole numbers")
    return value


HyperparameterValue = Annotated[
    bool | int | float | str | tuple[int, ...], BeforeValidator(_plain_or_row)
]


class PpoHyperparameters(Message):
    """PPO in the form RLlib computes it (adaptive KL penalty beside the clipped surrogate)."""

    learning_rate: PositiveFloat = 5e-5
    """Adam step size. Table 1."""
    discount: Annotated[Number, Field(ge=0, le=1)] = 0.99
    """Discount factor gamma. Table 1."""
    gae_lambda: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """Lambda of generalised advantage estimation. RLlib."""
    clip: PositiveFloat = 0.3
    """Half-width of the interval the probability ratio is clipped to. Table 1."""
    kl_coefficient: NonNegativeFloat = 0.2
    """Initial weight of the KL penalty; 0 leaves the term out for good. Table 1."""
    kl_target: PositiveFloat = 0.01
    """Mean KL per update that the coefficient is steered towards. Table 1."""
    kl_coefficient_max: PositiveFloat = 100.0
    """Upper bound of the adapted coefficient; RLlib has none and can run away to infinity."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy bonus. Table 1."""
    value_coefficient: NonNegativeFloat = 1.0
    """Weight of the value loss. Table 1."""
    value_clip: PositiveFloat = 10.0
    """Upper bound of one sample's squared value error. RLlib."""
    num_epochs: PositiveInt = 30
    """Passes over the round's samples per update. RLlib."""
    minibatch_size: PositiveInt = 128
    """Samples per gradient step. RLlib."""
    hidden_sizes: tuple[PositiveInt, ...] = (256, 256)
    """Widths of the tanh layers of the policy and of the separate value network. Section 8.1."""
    log_std: Literal["state_dependent", "free"] = "state_dependent"
    """Gaussian policies: log-standard deviation as a network output or a free vector. RLlib."""


def resolve(
    algorithm: str, preset: Preset, overrides: Mapping[str, HyperparameterValue]
) -> PpoHyperparameters:
    """Return the full set of hyper-parameters a job trains with.

    Raises:
        ValueError: The algorithm or preset is unknown.
        pydantic.ValidationError: An override has an unknown name or a value out of range.
    """
    if algorithm != "ppo" or preset != "paper":
        raise ValueError(f"no preset {preset!r} for algorithm {algorithm!r}; known: ppo/paper")
    return PpoHyperparameters.model_validate(dict(overrides))
