"""Masked policies, beside distributions over the allowed actions alone, by enumeration."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.data.normalisation import Normalisation
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network, policy_payload
from learning.networks.numpy_mlp import LARGE_PRODUCT
from shared.contracts.environment_spec import (
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.policy.fragment_sampler import FragmentSampler
from shared.policy.numpy_policy import load_policy
from tests.learning.trajectories import make_trajectory

SEEN = 3
SMALL = PpoHyperparameters(hidden_sizes=(16, 16), num_epochs=2, minibatch_size=20)


def environment(*choices: int) -> EnvironmentSpec:
    action = (
        DiscreteActionSpec(n=choices[0])
        if len(choices) == 1
        else MultiDiscreteActionSpec(num_choices=choices)
    )
    return EnvironmentSpec(
        env_id="Masked-v0",
        observation=ObservationSpec(
            shape=(SEEN + sum(choices),), dtype="float32", action_mask=True
        ),
        action=action,
        max_episode_steps=100,
        versions={},
    )


def masks(choices: tuple[int, ...], num: int, rng: np.random.Generator) -> Tensor:
    """Return masks # [num, sum of choices] that allow at least one of each choice."""
    parts = []
    for n in choices:
        part = rng.random((num, n)) < 0.5
        part[np.arange(num), rng.integers(n, size=num)] = True
        parts.append(part)
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def seen(choices: tuple[int, ...], num: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return observations # [num, F] and the masks at their ends."""
    rng = np.random.default_rng(seed)
    mask = masks(choices, num, rng)
    features = torch.from_numpy(rng.standard_normal((num, SEEN)).astype(np.float32))
    return torch.cat((features, mask), dim=1), mask


def network_of(*choices: int, seed: int = 1, hidden: tuple[int, ...] = (16, 16)) -> ActorCritic:
    small = SMALL.model_copy(update={"hidden_sizes": hidden})
    network = build_network(environment(*choices), small, seed=seed)
    with torch.no_grad():
        network.policy[-1].get_parameter("weight").mul_(300.0)  # apart from uniform
    return network


class Plain:
    """The same policy in float64, whose distributions have no other than the allowed actions."""

    def __init__(self, network: ActorCritic, observation: Tensor, mask: Tensor) -> None:
        self.layers = [
            [layer.get_parameter(n).double().clone().requires_grad_() for n in ("weight", "bias")]
            for layer in network.policy
        ]
        x = observation.double()
        for i, (weight, bias) in enumerate(self.layers):
            x = (torch.tanh(x) if i else x) @ weight.T + bias
        self.rows = [
            [torch.log_softmax(part[chosen], dim=0) for part, chosen in _parts(network, *row)]
            for row in zip(x, mask.bool(), strict=True)
        ]
        self.index = [
            [chosen.nonzero().squeeze(1).tolist() for _, chosen in _parts(network, *row)]
            for row in zip(x, mask.bool(), strict=True)
        ]

    def log_prob(self, action: Tensor) -> Tensor:
        chosen = action.reshape(len(self.rows), -1).tolist()
        return torch.stack(
            [
                torch.stack([p[i.index(a)] for p, i, a in zip(row, index, each, strict=True)]).sum()
                for row, index, each in zip(self.rows, self.index, chosen, strict=True)
            ]
        )

    def entropy(self) -> Tensor:
        return torch.stack(
            [-torch.stack([(p.exp() * p).sum() for p in row]).sum() for row in self.rows]
        )

    def kl_to(self, other: "Plain") -> Tensor:
        pairs = zip(self.rows, other.rows, strict=True)
        return torch.stack(
            [
                torch.stack([(p.exp() * (p - q)).sum() for p, q in zip(*pair, strict=True)]).sum()
                for pair in pairs
            ]
        )


def _parts(network: ActorCritic, logits: Tensor, mask: Tensor) -> list[tuple[Tensor, Tensor]]:
    sizes = list(network.spec.head.num_choices)
    return list(zip(torch.split(logits, sizes), torch.split(mask, sizes), strict=True))


def allowed_actions(choices: tuple[int, ...], mask: Tensor, seed: int = 3) -> Tensor:
    rng = np.random.default_rng(seed)
    rows = [
        [rng.choice(np.flatnonzero(part)) for part in torch.split(row, list(choices))]
        for row in mask.bool()
    ]
    action = torch.tensor(rows)
    return action.squeeze(1) if len(choices) == 1 else action


CHOICES = [(4,), (3, 2, 5)]


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_distributions_are_those_of_the_allowed_actions(choices: tuple[int, ...]) -> None:
    network, other = network_of(*choices), network_of(*choices, seed=2)
    observation, mask = seen(choices, 200)
    action = allowed_actions(choices, mask)
    outputs, others = network.policy_outputs(observation), other.policy_outputs(observation)
    plain, plain_other = (Plain(each, observation, mask) for each in (network, other))
    of = network.distribution
    for ours, theirs in (
        (of.log_prob(outputs, action), plain.log_prob(action)),
        (of.entropy(outputs), plain.entropy()),
        (of.kl(outputs, others), plain.kl_to(plain_other)),
        (of.terms(outputs, others, action).kl, plain.kl_to(plain_other)),
        (of.terms(outputs, others, action).log_prob, plain_other.log_prob(action)),
    ):
        np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=1e-4, atol=1e-5)


class Weighted:
    """The loss sum(weight * log-probability) + 0.3 * entropy."""

    def __init__(self, network: ActorCritic, action: Tensor, weight: Tensor) -> None:
        self._of, self._action, self._weight = network.distribution, action, weight

    def policy_gradient(self, outputs: Tensor) -> Tensor:
        terms = self._of.terms(outputs, outputs, self._action)
        entropy = self._of.entropy_gradient(outputs)
        return self._weight[:, None] * terms.score + 0.3 * entropy

    def value_gradient(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
@pytest.mark.parametrize("size", ["small", "large"])
def test_gradients_are_those_of_the_allowed_actions(choices: tuple[int, ...], size: str) -> None:
    num = 40 if size == "small" else LARGE_PRODUCT // (64 * 64) + 1
    network = network_of(*choices, hidden=(16, 16) if size == "small" else (64, 64))
    observation, mask = seen(choices, num)
    action = allowed_actions(choices, mask)
    weight = torch.randn(num, generator=torch.Generator().manual_seed(5))
    gradient = network.new_gradient()
    network.differentiate(observation, Weighted(network, action, weight), gradient=gradient)
    plain = Plain(network, observation, mask)
    total = (weight * plain.log_prob(action) + 0.3 * plain.entropy()).sum()
    leaves = [parameter for layer in plain.layers for parameter in layer]
    theirs = iter(torch.autograd.grad(total, leaves))
    ours = network.views_of(gradient.flat)
    for i in range(len(plain.layers)):
        for name in (f"policy.{i}.weight", f"policy.{i}.bias"):
            np.testing.assert_allclose(ours[name], next(theirs), rtol=2e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_an_actor_samples_allowed_actions_alone_as_likely_as_the_learner_says(
    choices: tuple[int, ...],
) -> None:
    network = network_of(*choices)
    policy = load_policy(*policy_payload(network))
    observation, mask = seen(choices, 8, seed=4)
    rows = observation.numpy()
    np.testing.assert_allclose(policy.outputs(rows), network.policy_outputs(observation), rtol=1e-4)
    steps = 500
    sampler = FragmentSampler(policy, num_steps=steps, num_envs=8, rng=np.random.default_rng(0))
    for step in range(steps):
        sampler.act(step, rows)
    action = torch.from_numpy(sampler.action).reshape(steps, 8, -1)
    of_choices = torch.split(mask.bool(), list(choices), dim=1)
    for i, allowed in enumerate(of_choices):
        assert allowed[torch.arange(8), action[..., i]].all()
        seen_often = torch.stack([(action[..., i] == n).float().mean(0) for n in range(choices[i])])
        logits = torch.split(network.policy_outputs(observation), list(choices), dim=1)[i]
        np.testing.assert_allclose(seen_often.T, logits.softmax(1), atol=0.08)
    mode = torch.from_numpy(policy.mode(rows)).reshape(8, -1)
    assert all(part[torch.arange(8), mode[:, i]].all() for i, part in enumerate(of_choices))


def test_a_mask_is_not_normalised() -> None:
    rule = STANDARD.model_copy(update={"hidden_sizes": (8, 8)})
    made = environment(4)
    network = build_network(made, rule, seed=1)
    trajectory = make_trajectory(made, network, actor_index=0)
    normalisation = Normalisation.initial(made, rule).after([trajectory])
    observation, mask = seen((4,), 50)
    normalised = normalisation.seen(observation)
    assert torch.equal(normalised[:, SEEN:], mask)
    assert not torch.equal(normalised[:, :SEEN], observation[:, :SEEN])
    arrays, metadata = normalisation.payload()
    payload, said = policy_payload(network)
    policy = load_policy(payload | arrays, said | metadata)
    np.testing.assert_allclose(
        policy.outputs(observation.numpy()),
        network.policy_outputs(normalised),
        rtol=1e-4,
        atol=1e-4,
    )
