"""Lanczos as PyHessian does it for a spectrum's density: the way the paper's detector measures.

Yao et al., "PyHessian: Neural Networks Through the Lens of the Hessian", 2020, algorithm 2. What
makes it of its kind: Hessian-vector products by differentiating the gradient's graph, vectors as
lists of one tensor per parameter, a fixed number of steps, one pass of orthogonalisation against
every earlier vector, tensor by tensor, and a dense eigen-solve for general matrices. Written anew,
because the released `density()` does not run on current torch; the objective is ours, over the
policy's parameters.
"""

import torch
from torch import Tensor

from learning.networks.actor_critic import ActorCritic
from learning.networks.conv_network import ConvActorCritic
from learning.networks.mlp_network import MlpActorCritic
from shared.trajectory.columns import Columns

STEPS = 100
"""PyHessian's default."""

Vector = list[Tensor]


def extreme_eigenvalues(
    network: ActorCritic, batch: Columns[Tensor], samples: Tensor, *, seed: int = 0
) -> tuple[float, float]:
    """Return (λmax, λmin) of the surrogate's Hessian over these samples.

    Args:
        network: The policy; its log-standard deviations are outputs.
        batch: The round's samples.
        samples: Indices of those to use # [n]
        seed: Of the starting vector.
    """
    parameters, gradient = _gradient(network, batch, samples)

    def product(vector: Vector) -> Vector:
        return list(
            torch.autograd.grad(gradient, parameters, grad_outputs=vector, retain_graph=True)
        )

    generator = torch.Generator().manual_seed(seed)
    signs = [torch.randint(0, 2, p.shape, generator=generator) for p in parameters]
    basis = [_normalised([2.0 * sign - 1.0 for sign in signs])]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for step in range(STEPS):
        remainder = product(basis[-1])
        diagonal.append(float(_dot(remainder, basis[-1])))
        remainder = _plus(remainder, basis[-1], -diagonal[-1])
        if step > 0:
            remainder = _plus(remainder, basis[-2], -off_diagonal[-1])
        if step + 1 < STEPS:
            off_diagonal.append(float(_dot(remainder, remainder).sqrt()))
            basis.append(_orthonormal(remainder, basis))
    tridiagonal = torch.diag(torch.tensor(diagonal))
    tridiagonal += torch.diag(torch.tensor(off_diagonal), 1)
    tridiagonal += torch.diag(torch.tensor(off_diagonal), -1)
    values = torch.linalg.eig(tridiagonal).eigenvalues.real
    return float(values.max()), float(values.min())


def _gradient(
    network: ActorCritic, batch: Columns[Tensor], samples: Tensor
) -> tuple[Vector, Vector]:
    """Return the policy's parameters and the surrogate's gradient with its graph."""
    observation = batch.observation[samples]
    if isinstance(network, MlpActorCritic):
        parameters, outputs = _mlp_outputs(network, observation)
    elif isinstance(network, ConvActorCritic):
        parameters, outputs = _conv_outputs(network, observation)
    else:
        raise TypeError(f"no gradient here for a {type(network).__name__}")
    log_prob = network.distribution.log_prob(outputs, batch.action[samples])
    ratio = torch.exp(log_prob - log_prob.detach())
    objective = (batch.advantage[samples] * ratio).mean()
    return parameters, list(torch.autograd.grad(objective, parameters, create_graph=True))


def _mlp_outputs(network: MlpActorCritic, observation: Tensor) -> tuple[Vector, Tensor]:
    layers = network.layers("policy", network.views_of(network.flat.detach()))
    parameters = [
        t.clone().requires_grad_() for layer in layers for t in (layer.weight, layer.bias)
    ]
    hidden = observation
    for i in range(0, len(parameters) - 2, 2):
        hidden = torch.nn.functional.linear(hidden, parameters[i], parameters[i + 1]).tanh()
    return parameters, torch.nn.functional.linear(hidden, parameters[-2], parameters[-1])


def _conv_outputs(network: ConvActorCritic, observation: Tensor) -> tuple[Vector, Tensor]:
    parameters = {
        name: parameter.detach().clone().requires_grad_()
        for name, parameter in network.named_parameters()
        if name.startswith("policy.")
    }
    return list(parameters.values()), network.outputs_at(parameters, observation)


def _orthonormal(vector: Vector, basis: list[Vector]) -> Vector:
    for other in basis:
        vector = _plus(vector, other, -float(_dot(vector, other)))
    return _normalised(vector)


def _normalised(vector: Vector) -> Vector:
    norm = _dot(vector, vector).sqrt() + 1e-6
    return [part / norm for part in vector]


def _plus(vector: Vector, other: Vector, factor: float) -> Vector:
    return [torch.add(x, y, alpha=factor) for x, y in zip(vector, other, strict=True)]


def _dot(a: Vector, b: Vector) -> Tensor:
    return torch.stack([(x * y).sum() for x, y in zip(a, b, strict=True)]).sum()
