"""The policy surrogate objective at the new policy, and its Hessian as products with vectors.

    L(theta) = mean_i A_i pi_theta(a_i|s_i) / pi_theta0(a_i|s_i),   to be maximised,

over the policy's parameters, at theta = theta0. There the ratio is exactly 1, no sample is
clipped, and its Hessian with respect to the policy's outputs has the closed form of
`services.learner.output_hessian`. Products with the Hessian over the parameters follow by
Pearlmutter's R operator in two passes through the network; everything that does not depend on the
direction is computed once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from services.learner import mlp
from services.learner.actor_critic import ActorCritic
from services.learner.arrays import Array, Floats
from services.learner.conv_network import ConvActorCritic
from services.learner.conv_surrogate import ConvSurrogate
from services.learner.distributions import Distribution
from services.learner.gradient_noise import Shares, squared_norms
from services.learner.mlp import Activations, Deltas, Layer, split_layers, split_shapes
from services.learner.mlp_network import MlpActorCritic
from services.learner.output_hessian import OutputHessian


class Surrogate(Protocol):
    """The surrogate over fixed samples at a network's present policy; never changes either."""

    size: int
    """Parameters of the policy."""

    def gradient(self) -> Tensor:
        """Return the gradient of L # [size], not to be written to: it may be kept."""
        ...

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        ...

    def shares(self, num_trajectories: int) -> Shares | None:
        """Return what each trajectory has in L's gradient; None where only the sum is known.

        Args:
            num_trajectories: M; the samples are of so many, equally long, one after the other.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point(Generic[Array]):
    """A network at theta0, with what the passes over the samples left there."""

    layers: tuple[Layer[Array], ...]
    activations: Activations[Array]
    deltas: Deltas[Array]

    def write_product(
        self,
        direction: Array,
        product: Array,
        outputs: Callable[[Array, Array], tuple[Array, Array | None]],
    ) -> None:
        """Write the Hessian times `direction` into `product`, both # [size].

        Args:
            direction: How the parameters move.
            product: Written to.
            outputs: The Hessian with respect to the outputs, as `OutputHessian.product`.
        """
        moves, free_move = split_layers(direction, self.layers)
        gradients, free_gradient = split_layers(product, self.layers)
        moved = mlp.r_forward(self.layers, moves, self.activations, self.deltas.slopes)
        r_delta, r_free_delta = outputs(moved.output, free_move)
        if r_free_delta is not None:
            free_gradient[...] = r_free_delta.sum(0)
        mlp.r_backward(
            self.layers,
            moves,
            self.activations,
            moved,
            self.deltas,
            r_delta,
            gradients=gradients,
        )


def _as_arrays(point: _Point[Tensor]) -> _Point[Floats]:
    """Return the same memory as NumPy takes it: it waits less for the other lane (decision 017)."""

    def arrays(tensors: Iterable[Tensor]) -> tuple[Floats, ...]:
        return tuple(tensor.numpy() for tensor in tensors)

    return _Point(
        layers=tuple(
            Layer(weight=layer.weight.numpy(), bias=layer.bias.numpy()) for layer in point.layers
        ),
        activations=Activations(
            inputs=arrays(point.activations.inputs), output=point.activations.output.numpy()
        ),
        deltas=Deltas(
            deltas=arrays(point.deltas.deltas),
            slopes=arrays(point.deltas.slopes),
            bends=arrays(point.deltas.bends),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPoint:
    """A tanh MLP's policy: theta0."""

    layers: tuple[Layer[Tensor], ...]
    log_std: Tensor | None
    """Free log-standard deviations # [A]."""
    distribution: Distribution

    @property
    def size(self) -> int:
        """Number of parameters."""
        dense = sum(layer.weight.numel() + layer.bias.numel() for layer in self.layers)
        return dense + (0 if self.log_std is None else len(self.log_std))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the layers' weights."""
        return tuple(tuple(layer.weight.shape) for layer in self.layers)

    def write_to(self, vector: Tensor) -> None:
        """Write all parameters into one vector # [size], in the order of `PolicySurrogate`'s."""
        layers, free = split_layers(vector, self.layers)
        for into, layer in zip(layers, self.layers, strict=True):
            into.weight.copy_(layer.weight)
            into.bias.copy_(layer.bias)
        if self.log_std is not None:
            free.copy_(self.log_std)

    @classmethod
    def within(
        cls, vector: Tensor, shapes: Sequence[tuple[int, ...]], distribution: Distribution
    ) -> Self:
        """Return the policy that was written to a vector, as views of it."""
        layers, free = split_shapes(vector, shapes)
        return cls(layers=layers, log_std=free if len(free) else None, distribution=distribution)


def policy_point(network: MlpActorCritic) -> PolicyPoint:
    """Return a network's present policy."""
    views = network.views_of(network.flat)
    return PolicyPoint(
        layers=network.layers("policy", views),
        log_std=views.get("log_std"),
        distribution=network.distribution,
    )


class PolicySurrogate:
    """The surrogate of a tanh MLP.

    Vectors over the policy's parameters are ordered by layer, weight before bias, with a free
    log-standard deviation at the end.
    """

    def __init__(
        self, network: MlpActorCritic, *, observation: Tensor, action: Tensor, advantage: Tensor
    ) -> None:
        """Run the network forward and backward once.

        Args:
            network: Its present policy is theta0.
            observation: # [N, O]
            action: # [N, A] or [N] int64
            advantage: # [N]
        """
        self._look(
            policy_point(network), observation=observation, action=action, advantage=advantage
        )

    @classmethod
    def at(
        cls, point: PolicyPoint, *, observation: Tensor, action: Tensor, advantage: Tensor
    ) -> Self:
        """Return the surrogate at a policy that is no network's."""
        surrogate = cls.__new__(cls)
        surrogate._look(point, observation=observation, action=action, advantage=advantage)
        return surrogate

    def _look(
        self, point: PolicyPoint, *, observation: Tensor, action: Tensor, advantage: Tensor
    ) -> None:
        layers, free = point.layers, point.log_std
        num_free = 0 if free is None else len(free)
        self.size = point.size
        with torch.no_grad():
            activations = mlp.forward(layers, observation)
            outputs = activations.output
            if free is not None:
                outputs = torch.cat((outputs, free.expand(len(outputs), -1)), dim=1)
            self._outputs = OutputHessian(
                point.distribution,
                outputs=outputs,
                action=action,
                advantage=advantage,
                num_free=num_free,
            )
            deltas = mlp.deltas(layers, activations, self._outputs.delta)
        self._point = _Point(layers=layers, activations=activations, deltas=deltas)
        weight = layers[0].weight
        for_numpy = weight.dtype == torch.float32 and weight.device.type == "cpu"
        self._arrays = _as_arrays(self._point) if for_numpy else None
        self._gradient: Tensor | None = None

    def gradient(self) -> Tensor:
        """Return the gradient of L # [size], not to be written to."""
        if self._gradient is None:
            self._gradient = self._new_gradient()
        return self._gradient

    def _new_gradient(self) -> Tensor:
        point, free_delta = self._point, self._outputs.free_delta
        with torch.no_grad():
            gradient = point.layers[0].weight.new_empty(self.size)
            layers, free = split_layers(gradient, point.layers)
            mlp.write_gradients(point.activations, point.deltas, gradients=layers)
            if free_delta is not None:
                torch.sum(free_delta, 0, out=free)
        return gradient

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return the Hessian of L times `direction` # [size], as a new tensor # [size]."""
        with torch.no_grad(), np.errstate(all="ignore"):  # Lanczos looks whether it is finite
            product = torch.empty_like(direction)
            if self._arrays is None:
                self._point.write_product(direction, product, self._outputs.product)
            else:
                arrays = direction.numpy(), product.numpy()
                self._arrays.write_product(*arrays, self._array_product)
        return product

    def _array_product(self, tangent: Floats, free_move: Floats) -> tuple[Floats, Floats | None]:
        """Do what `OutputHessian.product` does, with arrays."""
        curved, free = self._outputs.product(torch.from_numpy(tangent), torch.from_numpy(free_move))
        return curved.numpy(), None if free is None else free.numpy()

    def shares(self, num_trajectories: int) -> Shares:
        """See `Surrogate`."""
        point = self._point
        with torch.no_grad():
            norms = squared_norms(
                point.activations.inputs,
                point.deltas.deltas,
                self._outputs.free_delta,
                num_trajectories=num_trajectories,
            )
        return Shares(norms, self.gradient())


def policy_surrogate(
    network: ActorCritic, *, observation: Tensor, action: Tensor, advantage: Tensor
) -> Surrogate:
    """Return the surrogate of whatever network a job has.

    Args:
        network: Its present policy is theta0.
        observation: # [N, ...]
        action: # [N, A] or [N] int64
        advantage: # [N]

    Raises:
        TypeError: The network is of a kind that has no surrogate.
    """
    if isinstance(network, MlpActorCritic):
        return PolicySurrogate(network, observation=observation, action=action, advantage=advantage)
    if isinstance(network, ConvActorCritic):
        return ConvSurrogate(network, observation=observation, action=action, advantage=advantage)
    raise TypeError(f"no surrogate for a {type(network).__name__}")
