"""The network of a job: for vectors, two separate MLPs for the policy and the value.

No shared layers, zero biases at the start, and a Gaussian policy whose log-standard deviations are
the second half of the policy's outputs (RLlib's form) or a free vector (CleanRL's). For images see
`learning.networks.conv_network`, for a user's own networks `learning.networks.own_network`.
"""

import math
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learning.networks.actor_critic import ActorCritic
from learning.networks.autograd_network import BlocksActorCritic
from learning.networks.conv_network import ConvActorCritic
from learning.networks.mlp_network import MlpActorCritic
from learning.networks.own_network import build_own_network
from learning.networks.recurrent_network import RecurrentActorCritic
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.common import CommonHyperparameters
from shared.policy.blocks import Dense, Parts, dense_blocks
from shared.policy.registry import NETWORKS
from shared.policy.spec import PolicySpec

PolicyPayload = tuple[dict[str, NDArray[Any]], dict[str, str]]
"""Named arrays and metadata, as `policy_payload` returns them."""

Initialisation = Literal["normc", "orthogonal"]
Place = Literal["hidden", "cells", "policy_output", "value_output"]
"""A weight's layer in a network."""

NORMC_NORMS: dict[Place, float] = {
    "hidden": 1.0,
    "cells": 1.0,
    "policy_output": 0.01,
    "value_output": 0.01,
}
"""Lengths of a unit's incoming weights. RLlib `normc_initializer`; the outputs are small, so that
the first policy is nearly the same in every state."""
ORTHOGONAL_GAINS: dict[Place, float] = {
    "hidden": math.sqrt(2.0),
    "cells": 1.0,
    "policy_output": 0.01,
    "value_output": 1.0,
}
"""Gains of orthogonal weights. Huang et al., "The 37 implementation details of proximal policy
optimization", ICLR blog track 2022, detail 2."""


KEEPING_BIAS = 1.0
"""First bias of the gates that keep a recurrent state: with 0 half of it would be lost with each
step. Jozefowicz et al., "An empirical exploration of recurrent network architectures", ICML 2015,
section 4."""


def build_network(
    environment: EnvironmentSpec,
    hyperparameters: CommonHyperparameters,
    *,
    seed: int,
    device: torch.device | str = "cpu",
) -> ActorCritic:
    """Return a freshly initialised network, the same for the same seed.

    Draws from a generator of its own: torch's global random state is left alone.
    """
    network: ActorCritic
    if hyperparameters.network and hyperparameters.network not in NETWORKS:
        spec = PolicySpec.of(environment, hyperparameters)
        network = build_own_network(hyperparameters.network, environment, spec, seed=seed)
    else:
        network = _initialised(_zero_network(environment, hyperparameters), hyperparameters, seed)
    if torch.device(device).type != "cpu":
        network.flatten(device=device)
    return network


def _initialised(
    network: ActorCritic, hyperparameters: CommonHyperparameters, seed: int
) -> ActorCritic:
    generator = torch.Generator().manual_seed(seed)
    form = hyperparameters.initialisation
    parts: tuple[tuple[Place, nn.ModuleList], ...] = (
        ("policy_output", network.policy),
        ("value_output", network.value),
    )
    for place, layers in parts:
        *hidden, output = (layer.get_parameter("weight") for layer in layers)
        recurrent = network.spec.recurrent if place == "policy_output" else None
        for i, weight in enumerate(hidden):
            if weight.ndim > 1:
                cells = recurrent is not None and i == len(hidden) - 1
                where: Place = "cells" if cells else "hidden"
                initialise(weight, form, where, generator=generator)
        initialise(output, form, place, generator=generator)
    if recurrent := network.spec.recurrent:
        network.policy[-2].get_parameter("bias")[recurrent.keeping] = KEEPING_BIAS
    return network


def _zero_network(
    environment: EnvironmentSpec, hyperparameters: CommonHyperparameters
) -> ActorCritic:
    spec = PolicySpec.of(environment, hyperparameters)
    if spec.network in NETWORKS:
        return BlocksActorCritic(spec, NETWORKS[spec.network](spec.observation_shape, 1))
    if environment.observation.is_image:
        last = spec.layers[-1]
        assert isinstance(last, Dense), "what gives the outputs"
        return ConvActorCritic(spec, (Dense(inputs=last.inputs, outputs=1),))
    if spec.recurrent:
        heads = dense_blocks(
            (spec.recurrent.units, *hyperparameters.value_hidden_sizes, 1),
            activation=hyperparameters.activation,
            layer_norm=hyperparameters.layer_norm,
        )
        return RecurrentActorCritic(spec, heads)
    first = spec.blocks[0]
    inputs = (first.outputs,) if isinstance(first, Parts) else spec.observation_shape
    value = dense_blocks(
        (*inputs, *(hyperparameters.value_hidden_sizes or hyperparameters.hidden_sizes), 1),
        activation=hyperparameters.activation,
        layer_norm=hyperparameters.layer_norm,
    )
    return (ConvActorCritic if isinstance(first, Parts) else MlpActorCritic)(spec, value)


def policy_payload(network: ActorCritic) -> PolicyPayload:
    """Return the arrays and metadata the actors load the policy from, see `shared.policy.spec`.

    Arrays are copies, so later updates do not show; what normalises observations is not the
    network's.
    """
    return network.arrays(), network.spec.metadata()


def initialise(
    weight: Tensor, form: Initialisation, place: Place, *, generator: torch.Generator
) -> None:
    """Overwrite a weight # [out, ...], on the CPU, with a first value."""
    if form == "normc":
        weight.copy_(normc(weight, norm=NORMC_NORMS[place], generator=generator))
    else:
        nn.init.orthogonal_(weight, ORTHOGONAL_GAINS[place], generator=generator)


def normc(like: Tensor, *, norm: float, generator: torch.Generator) -> Tensor:
    """Return weights # [out, ...] of Gaussian direction, each unit's scaled to length `norm`."""
    weight = torch.randn(like.shape, generator=generator)
    lengths = weight.flatten(1).square().sum(1).sqrt()
    return weight * (norm / lengths).view(-1, *[1] * (weight.ndim - 1))
