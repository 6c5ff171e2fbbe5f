"""The surrogate's Hessian products against plain layers in float64 and against the closed form."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.detectors.surrogate import Objective, surrogate
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from learning.networks.mlp_network import MlpActorCritic
from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from tests.learning.trajectories import CONTINUOUS, DISCRETE

STATE_DEPENDENT = PpoHyperparameters(hidden_sizes=(6, 5))
FREE = PpoHyperparameters(hidden_sizes=(6, 5), log_std="free")
CASES = [(CONTINUOUS, STATE_DEPENDENT), (CONTINUOUS, FREE), (DISCRETE, STATE_DEPENDENT)]


def network_of(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, dtype: torch.dtype
) -> MlpActorCritic:
    """A network well away from its initial, nearly state-independent policy."""
    network = build_network(environment, hyperparameters, seed=0)
    assert isinstance(network, MlpActorCritic)
    network.flatten(dtype=torch.float64)
    noise = torch.randn(
        network.flat.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    network.flat.add_(noise, alpha=0.4)
    network.flatten(dtype=dtype)
    return network


def samples_of(
    environment: EnvironmentSpec, dtype: torch.dtype, count: int = 40
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    size = int(np.prod(environment.observation.shape))
    observation = torch.randn(count, size, generator=generator, dtype=torch.float64).to(dtype)
    advantage = torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
    if isinstance(environment.action, DiscreteActionSpec):
        action = torch.randint(environment.action.n, (count,), generator=generator)
    else:
        action = torch.randn(count, 2, generator=generator, dtype=torch.float64).to(dtype)
    return observation, action, advantage


def objective_of(
    network: ActorCritic, observation: Tensor, action: Tensor, advantage: Tensor
) -> Objective:
    return Objective(
        network,
        lambda parameters: surrogate(
            network, parameters, observation=observation, action=action, advantage=advantage
        ),
    )


def surrogate_log_prob(
    network: MlpActorCritic, observation: Tensor, action: Tensor
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Log pi(a|s) # [N] as a function of the policy's parameters, and the network's own # [P].

    Torch's own layers in float64; parameters in the surrogate's order: layers first, the free
    log-standard deviation last.
    """
    named = {
        name: parameter.detach().double()
        for name, parameter in network.named_parameters()
        if not name.startswith("value.")
    }
    order = sorted(named, key=lambda name: name == "log_std")
    sizes = [named[name].numel() for name in order]
    observation = observation.double()
    action = action if action.dtype == torch.int64 else action.double()
    num_layers = len(network.policy)

    def log_prob(flat: Tensor) -> Tensor:
        parts = torch.split(flat, sizes)
        new = {name: part.view(named[name].shape) for name, part in zip(order, parts, strict=True)}
        h = observation
        for i in range(num_layers):
            h = torch.nn.functional.linear(h, new[f"policy.{i}.weight"], new[f"policy.{i}.bias"])
            if i < num_layers - 1:
                h = torch.tanh(h)
        if "log_std" in new:
            h = torch.cat((h, new["log_std"].expand(len(h), -1)), dim=1)
        return network.distribution.log_prob(h, action)

    return log_prob, torch.cat([named[name].flatten() for name in order])


def autograd_hessian(
    network: MlpActorCritic, observation: Tensor, action: Tensor, advantage: Tensor
) -> Tensor:
    """Hessian of mean(A * pi_theta / pi_theta0) by autograd."""
    log_prob, start = surrogate_log_prob(network, observation, action)
    old, weight = log_prob(start).detach(), advantage.double()

    def objective(flat: Tensor) -> Tensor:
        return (weight * torch.exp(log_prob(flat) - old)).mean()

    hessian: Tensor = torch.autograd.functional.hessian(  # type: ignore[no-untyped-call]
        objective, start
    )
    return hessian


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
def test_products_agree_with_the_exact_hessian(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    network = network_of(environment, hyperparameters, dtype)
    observation, action, advantage = samples_of(environment, dtype)
    objective = objective_of(network, observation, action, advantage)
    exact = autograd_hessian(network, observation, action, advantage)
    assert exact.shape == (objective.size, objective.size)
    columns = [objective.hessian_product(e) for e in torch.eye(objective.size, dtype=dtype)]
    error = torch.stack(columns, dim=1).double() - exact
    assert error.abs().max() <= tolerance * torch.linalg.matrix_norm(exact, 2)


def test_linear_softmax_policy_has_the_closed_form_hessian() -> None:
    """Hessian = E[A (d2 log pi + d log pi d log pi^T)], written out in NumPy.

    For logits W s + b with s extended by a 1: d log pi = (onehot(a) - p) x s and
    d2 log pi = -(diag(p) - p p^T) x s s^T.
    """
    environment = EnvironmentSpec(
        env_id="Toy-v0",
        observation=ObservationSpec(shape=(2,), dtype="float32"),
        action=DiscreteActionSpec(n=3),
        max_episode_steps=None,
        versions={},
    )
    linear = STATE_DEPENDENT.model_copy(update={"hidden_sizes": ()})
    network = build_network(environment, linear, seed=0)
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, 2)), rng.normal(size=3)
    network.flatten(dtype=torch.float64)
    views = network.views_of(network.flat)
    views["policy.0.weight"].copy_(torch.from_numpy(weight))
    views["policy.0.bias"].copy_(torch.from_numpy(bias))
    s, advantage = rng.normal(size=(30, 2)), rng.normal(size=30)
    action = rng.integers(3, size=30)

    expected = np.zeros((9, 9))
    for i in range(30):
        logits = weight @ s[i] + bias
        p = np.exp(logits) / np.exp(logits).sum()
        features = np.append(s[i], 1.0)
        score = np.outer(np.eye(3)[action[i]] - p, features).reshape(-1)
        curved = -np.kron(np.diag(p) - np.outer(p, p), np.outer(features, features))
        expected += advantage[i] * (curved + np.outer(score, score)) / 30
    # from (action, feature) order to all weights, then all biases
    order = [3 * a + f for a in range(3) for f in range(2)] + [3 * a + 2 for a in range(3)]
    expected = expected[np.ix_(order, order)]

    arrays = (torch.from_numpy(each) for each in (s, action, advantage))
    objective = objective_of(network, *arrays)
    found = [objective.hessian_product(e) for e in torch.eye(9, dtype=torch.float64)]
    np.testing.assert_allclose(torch.stack(found).numpy(), expected, atol=1e-14)
