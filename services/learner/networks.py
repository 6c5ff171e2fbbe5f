"""The actor-critic network: two separate tanh MLPs, one for the policy and one for the value.

RLlib's form, which the paper's experiments use: "normc" initialisation, zero biases, no shared
layers, and a Gaussian policy whose log-standard deviations are the second half of the policy's
outputs (or a free vector). All parameters are views into one flat buffer, so that an optimiser step
is one fused operation whatever the number of layers.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.learner import mlp
from services.learner.distributions import Categorical, Distribution, Gaussian
from services.learner.mlp import Activations, Layer
from shared.environment_spec import ContinuousActionSpec, EnvironmentSpec
from shared.hyperparameters import PpoHyperparameters

HIDDEN_INIT_NORM = 1.0
"""Norm of each hidden unit's incoming weights at the start. RLlib `normc_initializer`."""
OUTPUT_INIT_NORM = 0.01
"""The same for output units: small, so that the first policy is nearly the same in every state."""

PolicyPayload = tuple[dict[str, NDArray[np.float32]], dict[str, str]]
"""Named arrays and metadata, as `policy_payload` returns them."""

_ALIGNMENT = 16
"""Floats (64 bytes): parameters start on cache lines, which the fast code paths of BLAS want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Both networks' answers, and what the way back needs."""

    outputs: Tensor  # [N, D], the action distributions' parameters
    value: Tensor  # [N]
    policy: Activations
    critic: Activations


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatGradient:
    """A gradient over all parameters: one flat buffer, and the same memory layer by layer."""

    flat: Tensor  # [P]
    policy: tuple[Layer, ...]
    value: tuple[Layer, ...]
    log_std: Tensor | None


class ActorCritic(nn.Module):
    """Policy and value networks over flattened float observations."""

    flat: Tensor  # [P], every parameter, in `named_parameters` order with gaps for alignment

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
        """Move all parameters into one new flat buffer of the given type and place."""
        size = sum(_padded(parameter.numel()) for parameter in self.parameters())
        flat = torch.zeros(size, dtype=dtype, device=device)
        for parameter, view in zip(self.parameters(), self.views_of(flat).values(), strict=True):
            view.copy_(parameter.data)
            parameter.data = view
        self.flat = flat
        parameters = self.views_of(flat)
        self._policy_layers = self.layers("policy", parameters)
        self._value_layers = self.layers("value", parameters)

    def run(self, observation: Tensor) -> ForwardPass:
        """Run both networks forward at `observation` # [N, O]."""
        policy = mlp.forward(self._policy_layers, observation)
        critic = mlp.forward(self._value_layers, observation)
        return ForwardPass(
            outputs=self.with_log_std(policy.output),
            value=critic.output.squeeze(1),
            policy=policy,
            critic=critic,
        )

    def new_gradient(self) -> FlatGradient:
        """Return a gradient of zeros to hand to `backward`."""
        flat = torch.zeros_like(self.flat)
        views = self.views_of(flat)
        return FlatGradient(
            flat=flat,
            policy=self.layers("policy", views),
            value=self.layers("value", views),
            log_std=views.get("log_std"),
        )

    def backward(
        self, forward: ForwardPass, *, d_outputs: Tensor, d_value: Tensor, gradient: FlatGradient
    ) -> None:
        """Write the gradient of an objective into `gradient`.

        Args:
            forward: What `run` returned, with the parameters unchanged since.
            d_outputs: Derivative of the objective with respect to the outputs. # [N, D]
            d_value: The same with respect to the values. # [N]
            gradient: Overwritten.
        """
        if gradient.log_std is not None:
            width = forward.policy.output.shape[1]
            torch.sum(d_outputs[:, width:], 0, out=gradient.log_std)
            d_outputs = d_outputs[:, :width].contiguous()
        mlp.backward(self._policy_layers, forward.policy, d_outputs, gradients=gradient.policy)
        mlp.backward(
            self._value_layers, forward.critic, d_value.unsqueeze(1), gradients=gradient.value
        )

    def views_of(self, flat: Tensor) -> dict[str, Tensor]:
        """Return `flat` # [P] as one tensor per parameter, by the parameters' names."""
        views, start = {}, 0
        for name, parameter in self.named_parameters():
            end = start + parameter.numel()
            views[name] = flat[start:end].view(parameter.shape)
            start += _padded(parameter.numel())
        return views

    def layers(self, part: str, views: dict[str, Tensor]) -> tuple[Layer, ...]:
        """Return the layers of `policy` or `value` out of the views of a flat buffer."""
        count = len(self.policy) if part == "policy" else len(self.value)
        return tuple(
            Layer(weight=views[f"{part}.{i}.weight"], bias=views[f"{part}.{i}.bias"])
            for i in range(count)
        )

    def policy_outputs(self, observation: Tensor) -> Tensor:
        """Return the action distributions' parameters # [N, D] at `observation` # [N, O]."""
        return self.with_log_std(mlp.forward(self._policy_layers, observation).output)

    def with_log_std(self, raw: Tensor) -> Tensor:
        """Append the free log-standard deviations, if there are any, to the last layer's output."""
        if self.log_std is None:
            return raw
        log_std = self.log_std.detach().expand(raw.shape[0], -1)
        return torch.cat((raw, log_std), dim=1)

    def values(self, observation: Tensor) -> Tensor:
        """Return the state values # [N] at `observation` # [N, O]."""
        return mlp.forward(self._value_layers, observation).output.squeeze(1)


def build_network(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    *,
    seed: int,
    device: torch.device | str = "cpu",
) -> ActorCritic:
    """Return a freshly initialised network, the same for the same seed.

    Draws from a generator of its own: torch's global random state is left alone.
    """
    action = environment.action
    if isinstance(action, ContinuousActionSpec):
        num_actions = len(action.low)
        free = hyperparameters.log_std == "free"
        network = ActorCritic(
            observation_size=math.prod(environment.observation.shape),
            policy_outputs=num_actions if free else 2 * num_actions,
            hidden_sizes=hyperparameters.hidden_sizes,
            distribution=Gaussian(),
            free_log_std=num_actions if free else None,
        )
    else:
        network = ActorCritic(
            observation_size=math.prod(environment.observation.shape),
            policy_outputs=action.n,
            hidden_sizes=hyperparameters.hidden_sizes,
            distribution=Categorical(),
            free_log_std=None,
        )
    generator = torch.Generator().manual_seed(seed)
    views = network.views_of(network.flat)
    for part in ("policy", "value"):
        *hidden, output = network.layers(part, views)
        for layer in hidden:
            layer.weight.copy_(normc(layer.weight, norm=HIDDEN_INIT_NORM, generator=generator))
        output.weight.copy_(normc(output.weight, norm=OUTPUT_INIT_NORM, generator=generator))
    if torch.device(device).type != "cpu":
        network.flatten(device=device)
    return network


def normc(like: Tensor, *, norm: float, generator: torch.Generator) -> Tensor:
    """Return weights # [out, in] of Gaussian direction, each unit's row scaled to length `norm`."""
    weight = torch.randn(like.shape, generator=generator)
    return weight * (norm / weight.square().sum(1, keepdim=True).sqrt())


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
    if network.distribution.name == "categorical":
        log_std = "none"
    else:
        log_std = "state_dependent" if network.log_std is None else "free"
    return arrays, {
        "format": "nitro-policy/1",
        "network": "mlp",
        "activation": "tanh",
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


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
