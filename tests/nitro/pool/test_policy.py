"""Policies: the same numbers in NumPy as in torch, and refusals that say what is supported."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from nitro.pool.policy import Policy, PolicyNotSupportedError
from nitro.pool.policy_maps import policy_of
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.policy.numpy_policy import load_policy
from shared.trajectory import codec

BOX = ContinuousActionSpec(low=(-1.0, -1.0, -1.0), high=(1.0, 1.0, 1.0))


def environment(action: ActionSpec, *, size: int = 5) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="Any-v0",
        observation=ObservationSpec(shape=(size,), dtype="float32"),
        action=action,
        max_episode_steps=None,
        versions={},
    )


def net(outputs: int, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(outputs)
    return nn.Sequential(
        nn.Linear(5, 8), activation(), nn.Linear(8, 8), activation(), nn.Linear(8, outputs)
    )


def normal(size: int, log_std: float | None) -> Callable[[Tensor, Tensor], Tensor]:
    def log_prob(outputs: Tensor, action: Tensor) -> Tensor:
        mean = outputs[..., :size]
        free = outputs[..., size:] if log_std is None else torch.full((size,), log_std)
        densities: Tensor = Normal(mean, free.exp()).log_prob(action)  # type: ignore[no-untyped-call]
        return densities.sum(-1)

    return log_prob


def categorical(*choices: int) -> Callable[[Tensor, Tensor], Tensor]:
    def log_prob(outputs: Tensor, action: Tensor) -> Tensor:
        columns = action if len(choices) > 1 else action.unsqueeze(-1)
        logits = torch.split(outputs, list(choices), dim=-1)
        total = torch.zeros(outputs.shape[:-1])
        for i, each in enumerate(logits):
            total += Categorical(logits=each).log_prob(columns[..., i])  # type: ignore[no-untyped-call]
        return total

    return log_prob


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize(
    ("action", "outputs", "log_std", "expected"),
    [
        (BOX, 3, -0.7, normal(3, -0.7)),
        (BOX, 6, None, normal(3, None)),
        (DiscreteActionSpec(n=4), 4, None, categorical(4)),
        (MultiDiscreteActionSpec(num_choices=(3, 2)), 5, None, categorical(3, 2)),
    ],
)
def test_log_probabilities_are_torchs(
    action: ActionSpec,
    outputs: int,
    log_std: float | None,
    expected: Callable[[Tensor, Tensor], Tensor],
    activation: type[nn.Module],
) -> None:
    module = net(outputs, activation)
    if log_std is not None:
        module.register_parameter("log_std", nn.Parameter(torch.full((1, 3), log_std)))
    policy = policy_of(module)
    seen = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    taken, log_probs = policy.numpy(environment(action)).sample(seen, np.random.default_rng(1))
    with torch.no_grad():
        theirs = expected(module(torch.tensor(seen)), torch.tensor(taken))
    np.testing.assert_allclose(log_probs, theirs.numpy(), rtol=0, atol=1e-5)


def test_what_actors_fetch_is_the_policy() -> None:
    policy, where = policy_of(net(4)), environment(DiscreteActionSpec(n=4))
    payload = codec.decode(policy.encoded(where), max_bytes=2**20)
    fetched = load_policy(payload.arrays, payload.metadata)
    seen = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(fetched.outputs(seen), policy.numpy(where).outputs(seen))


def test_actors_obey_the_mask_at_the_end_of_observations() -> None:
    policy, plain = policy_of(net(4)), environment(DiscreteActionSpec(n=4))
    masked = plain.model_copy(
        update={"observation": plain.observation.model_copy(update={"action_mask": True})}
    )
    seen = np.random.default_rng(0).random((64, 5), np.float32)
    seen[:, 1:] = np.resize(np.eye(4), (64, 4))
    actions, log_probs = policy.numpy(masked).sample(seen, np.random.default_rng(1))
    np.testing.assert_array_equal(actions, np.arange(64) % 4)
    np.testing.assert_array_equal(log_probs, 0.0)
    assert len(set(policy.numpy(plain).act(seen).tolist())) < 4
    moved = replace(
        policy,
        observation_mean=np.full(5, 0.5, np.float32),
        observation_scale=np.ones(5, np.float32),
    )
    with pytest.raises(PolicyNotSupportedError, match="must leave the mask"):
        moved.numpy(masked)


def test_normalised_observations_are_those_of_the_network() -> None:
    plain, where = policy_of(net(4)), environment(DiscreteActionSpec(n=4))
    mean, scale = np.full(5, 0.5, np.float32), np.full(5, 2.0, np.float32)
    scaled = Policy(
        weights=plain.weights,
        biases=plain.biases,
        observation_mean=mean,
        observation_scale=scale,
        observation_clip=3.0,
    )
    seen = np.random.default_rng(0).normal(size=(6, 2, 5)).astype(np.float32)
    normalised = np.clip((seen - mean) * scale, -3.0, 3.0)
    np.testing.assert_allclose(scaled.seen(seen, where), normalised, rtol=1e-6)
    np.testing.assert_allclose(
        scaled.numpy(where).outputs(seen), plain.numpy(where).outputs(normalised), rtol=1e-5
    )
    np.testing.assert_array_equal(plain.seen(seen, where), seen)


@pytest.mark.parametrize(
    ("action", "outputs", "told"),
    [
        (DiscreteActionSpec(n=3), 4, "expected 3 logits"),
        (MultiDiscreteActionSpec(num_choices=(3, 3)), 4, "expected 6 logits"),
        (BOX, 4, "expected 3 outputs beside a log_std of 3"),
        (BOX, 3, "squashed"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_with_what_would(
    action: ActionSpec, outputs: int, told: str
) -> None:
    with pytest.raises(PolicyNotSupportedError, match=told):
        policy_of(net(outputs)).encoded(environment(action))


def test_other_observations_are_refused() -> None:
    with pytest.raises(PolicyNotSupportedError, match=r"shape \(5,\), but Any-v0 gives \(7,\)"):
        policy_of(net(3)).encoded(environment(DiscreteActionSpec(n=3), size=7))


def test_images_are_refused() -> None:
    where = environment(DiscreteActionSpec(n=3)).model_copy(
        update={"observation": ObservationSpec(shape=(4, 84, 84), dtype="uint8")}
    )
    with pytest.raises(PolicyNotSupportedError, match=r"images \(4, 84, 84\): supported are"):
        policy_of(net(3)).encoded(where)


def test_a_policy_that_diverged_is_refused() -> None:
    module = net(3)
    nn.init.constant_(module.get_parameter("0.bias"), float("nan"))
    with pytest.raises(PolicyNotSupportedError, match=r"'policy.0.bias' is not finite"):
        policy_of(module).encoded(environment(DiscreteActionSpec(n=3)))


def test_what_happens_to_the_arrays_later_does_not_show() -> None:
    weight, bias = np.ones((2, 5), np.float32), np.zeros(2, np.float32)
    policy = Policy(weights=(weight,), biases=(bias,))
    weight[:] = 2.0
    assert policy.weights[0].tolist() == [[1.0] * 5] * 2


def test_half_a_normalisation_is_refused() -> None:
    with pytest.raises(PolicyNotSupportedError, match="give both, or neither"):
        Policy(
            weights=(np.ones((2, 5), np.float32),),
            biases=(np.zeros(2, np.float32),),
            observation_mean=np.zeros(5, np.float32),
        )
