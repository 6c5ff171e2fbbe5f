"""The network of a job: for vectors, two separate tanh MLPs for the policy and the value.

No shared layers, zero biases at the start, and a Gaussian policy whose log-standard deviations are
the second half of the policy's outputs (RLlib's form) or a free vector (CleanRL's). For images see
`services.learner.conv_network`.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.learner import mlp
from services.learner.actor_critic import ActorCritic, FlatGradient, ForwardPass, SplitLoss
from services.learner.conv_network import ConvActorCritic
from services.learner.distributions import (
    Distribution,
    Gaussian,
    MultiCategorical,
    discrete_distribution,
)
from services.learner.initialisation import Initialisation, Place, initialise
from services.learner.mlp import Activations, Layer
from services.learner.second_lane import Lane
from shared.conv_layers import ConvNetworkName, conv_layers
from shared.environment_spec import ContinuousActionSpec, EnvironmentSpec

__all__ = [
    "ActorCritic",
    "ForwardPass",
    "MlpActorCritic",
    "NetworkRule",
    "PolicyPayload",
    "build_network",
    "policy_payload",
]

PolicyPayload = tuple[dict[str, NDArray[np.float32]], dict[str, str]]
"""Named arrays and metadata, as `policy_payload` returns them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _MlpForwardPass(ForwardPass):
    """Both networks' answers, and what the way back needs."""

    policy: Activations
    critic: Activations


@dataclass(frozen=True, slots=True, kw_only=True)
class _MlpGradient(FlatGradient):
    """A gradient over all parameters: one flat buffer, and the same memory layer by layer."""

    policy: tuple[Layer, ...]
    value: tuple[Layer, ...]
    log_std: Tensor | None


class MlpActorCritic(ActorCritic):
    """Policy and value networks over flattened float observations # [N, O]."""

    def __init__(
        self,
        *,
        observation_size: int,
        policy_outputs: int,
        hidden_sizes: tuple[int, ...],
        distribution: Distribution,
        free_log_std: int | None,
    ) -> None:
        """Lay the network out with all parameters zero; `build_network` initialises them.

        Args:
            observation_size: Numbers per observation.
            policy_outputs: Width of the policy's last layer.
            hidden_sizes: Widths of the tanh layers, of both networks.
            distribution: What the policy's outputs parametrise.
            free_log_std: Size of a free log-standard deviation vector; None without one.
        """
        super().__init__()
        self.distribution = distribution
        self.policy = _dense(observation_size, hidden_sizes, policy_outputs)
        self.value = _dense(observation_size, hidden_sizes, 1)
        self.log_std = None if free_log_std is None else nn.Parameter(torch.zeros(free_log_std))
        self.requires_grad_(False)  # derivatives are written by hand, see mlp.py
        self.flatten()

    def flatten(
        self, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        """See `ActorCritic`."""
        super().flatten(dtype, device)
        parameters = self.views_of(self.flat)
        self._policy_layers = self.layers("policy", parameters)
        self._value_layers = self.layers("value", parameters)

    def run(self, observation: Tensor) -> ForwardPass:
        """See `ActorCritic`."""
        policy = mlp.forward(self._policy_layers, observation)
        critic = mlp.forward(self._value_layers, observation)
        return _MlpForwardPass(
            outputs=self.with_log_std(policy.output),
            value=critic.output.squeeze(1),
            policy=policy,
            critic=critic,
        )

    def new_gradient(self) -> FlatGradient:
        """See `ActorCritic`."""
        flat = torch.zeros_like(self.flat)
        views = self.views_of(flat)
        return _MlpGradient(
            flat=flat,
            policy=self.layers("policy", views),
            value=self.layers("value", views),
            log_std=views.get("log_std"),
        )

    def backward(
        self, forward: ForwardPass, *, d_outputs: Tensor, d_value: Tensor, gradient: FlatGradient
    ) -> None:
        """See `ActorCritic`."""
        if not (isinstance(forward, _MlpForwardPass) and isinstance(gradient, _MlpGradient)):
            raise TypeError("forward pass or gradient of another kind of network")
        self._policy_backward(forward.policy, d_outputs, gradient)
        mlp.backward(
            self._value_layers, forward.critic, d_value.unsqueeze(1), gradients=gradient.value
        )

    def differentiate(
        self,
        observation: Tensor,
        loss: SplitLoss,
        *,
        gradient: FlatGradient,
        lane: Lane | None = None,
    ) -> None:
        """See `ActorCritic`."""
        if not isinstance(gradient, _MlpGradient):
            raise TypeError("gradient of another kind of network")

        def policy_half() -> None:
            activations = mlp.forward(self._policy_layers, observation)
            slope = loss.policy_slope(self.with_log_std(activations.output))
            self._policy_backward(activations, slope, gradient)

        def value_half() -> None:
            activations = mlp.forward(self._value_layers, observation)
            slope = loss.value_slope(activations.output.squeeze(1)).unsqueeze(1)
            mlp.backward(self._value_layers, activations, slope, gradients=gradient.value)

        if lane is None:
            policy_half()
            value_half()
        else:
            lane.both(policy_half, value_half)

    @property
    def separate_multiplications(self) -> int:
        """See `ActorCritic`."""
        return sum(layer.weight.numel() for layer in self._value_layers)

    def _policy_backward(
        self, activations: Activations, d_outputs: Tensor, gradient: _MlpGradient
    ) -> None:
        if gradient.log_std is not None:
            width = activations.output.shape[1]
            torch.sum(d_outputs[:, width:], 0, out=gradient.log_std)
            d_outputs = d_outputs[:, :width].contiguous()
        mlp.backward(self._policy_layers, activations, d_outputs, gradients=gradient.policy)

    def layers(self, part: str, views: dict[str, Tensor]) -> tuple[Layer, ...]:
        """Return the layers of `policy` or `value` out of the views of a flat buffer."""
        count = len(self.policy) if part == "policy" else len(self.value)
        return tuple(
            Layer(weight=views[f"{part}.{i}.weight"], bias=views[f"{part}.{i}.bias"])
            for i in range(count)
        )

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """See `ActorCritic`."""
        return self.with_log_std(mlp.forward(self._policy_layers, observation).output)

    def values(self, observation: Tensor) -> Tensor:
        """See `ActorCritic`."""
        return mlp.forward(self._value_layers, observation).output.squeeze(1)

    def payload_metadata(self) -> dict[str, str]:
        """See `ActorCritic`."""
        return {"network": "mlp", "activation": "tanh"}


class NetworkRule(Protocol):
    """The hyper-parameters that say what a network looks like."""

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """Widths of the tanh layers for vectors."""

    @property
    def initialisation(self) -> Initialisation:
        """Form of the first weights."""

    @property
    def image_network(self) -> ConvNetworkName:
        """Network for images."""

    @property
    def log_std(self) -> Literal["state_dependent", "free"]:
        """Gaussian policies: log-standard deviation as a network output or a free vector."""


def build_network(
    environment: EnvironmentSpec,
    hyperparameters: NetworkRule,
    *,
    seed: int,
    device: torch.device | str = "cpu",
) -> ActorCritic:
    """Return a freshly initialised network, the same for the same seed.

    Draws from a generator of its own: torch's global random state is left alone.
    """
    network = _zero_network(environment, hyperparameters)
    generator = torch.Generator().manual_seed(seed)
    form = hyperparameters.initialisation
    parts: tuple[tuple[Place, nn.ModuleList], ...] = (
        ("policy_output", network.policy),
        ("value_output", network.value),
    )
    for place, layers in parts:
        *hidden, output = (layer.get_parameter("weight") for layer in layers)
        for weight in hidden:
            initialise(weight, form, "hidden", generator=generator)
        initialise(output, form, place, generator=generator)
    if torch.device(device).type != "cpu":
        network.flatten(device=device)
    return network


def _zero_network(
    environment: EnvironmentSpec, hyperparameters: NetworkRule
) -> MlpActorCritic | ConvActorCritic:
    observation, action = environment.observation, environment.action
    distribution: Distribution
    free_log_std = None
    if isinstance(action, ContinuousActionSpec):
        distribution, num_outputs = Gaussian(), 2 * len(action.low)
        if hyperparameters.log_std == "free":
            num_outputs = free_log_std = len(action.low)
    else:
        distribution, num_outputs = discrete_distribution(action)
    if observation.is_image:
        return ConvActorCritic(
            layers=conv_layers(hyperparameters.image_network, observation.shape),
            policy_outputs=num_outputs,
            distribution=distribution,
            free_log_std=free_log_std,
        )
    return MlpActorCritic(
        observation_size=math.prod(observation.shape),
        policy_outputs=num_outputs,
        hidden_sizes=hyperparameters.hidden_sizes,
        distribution=distribution,
        free_log_std=free_log_std,
    )


def policy_payload(network: ActorCritic) -> PolicyPayload:
    """Return the arrays and metadata the actors load the policy from.

    Arrays: `policy.{i}.weight` # [out, in] float32, `policy.{i}.bias` # [out] float32 and, with
    free log-standard deviations, `log_std` # [A] float32; copies, so later updates do not show.
    """
    arrays = {
        name: parameter.detach().cpu().numpy().copy()
        for name, parameter in network.named_parameters()
        if not name.startswith("value.")
    }
    if network.distribution.name != "gaussian":
        log_std = "none"
    else:
        log_std = "state_dependent" if network.log_std is None else "free"
    choices = {}
    if isinstance(network.distribution, MultiCategorical):
        choices["num_choices"] = ",".join(map(str, network.distribution.num_choices))
    return arrays, {
        **choices,
        "format": "nitro-policy/1",
        **network.payload_metadata(),
        "distribution": network.distribution.name,
        "log_std": log_std,
    }


def _dense(inputs: int, hidden_sizes: tuple[int, ...], outputs: int) -> nn.ModuleList:
    """Return one `nn.Linear` per layer, all zero and without a draw from the global generator."""
    sizes = (inputs, *hidden_sizes, outputs)
    layers = nn.ModuleList()
    for i in range(len(sizes) - 1):
        layer = nn.Linear(sizes[i], sizes[i + 1], device="meta").to_empty(device="cpu")
        for parameter in layer.parameters():
            parameter.data.zero_()
        layers.append(layer)
    return layers
