"""The detector on policies of others: against the exact Hessian of the surrogate objective."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from nitro.errors import CommandError
from nitro.pool.batch import Batch
from nitro.pool.curvature import measure_curvature
from nitro.pool.policy_maps import policy_of
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)

STEPS, COLUMNS = 6, 8
ALL = DetectorRule(num_samples=STEPS * COLUMNS, tolerance=1e-5)


def made_batch(module: nn.Module, action: ActionSpec) -> Batch:
    """A batch of random observations, with actions of the module's policy."""
    where = EnvironmentSpec(
        env_id="Any-v0",
        observation=ObservationSpec(shape=(3,), dtype="float32"),
        action=action,
        max_episode_steps=None,
        versions={},
    )
    rng, shape = np.random.default_rng(0), (STEPS, COLUMNS)
    policy = policy_of(module, environment=where)
    observations = rng.standard_normal((*shape, 3)).astype(np.float32)
    actions, log_probs = policy.numpy(where).sample(observations, rng)
    nothing = np.zeros(0, np.int64)
    return Batch(
        observations=observations,
        last_observations=observations[0],
        actions=actions,
        log_probs=log_probs,
        rewards=rng.standard_normal(shape).astype(np.float32),
        terminated=np.zeros(shape, np.bool_),
        truncated=np.zeros(shape, np.bool_),
        final_observations=np.zeros((0, 3), np.float32),
        final_steps=nothing,
        final_columns=nothing,
        actors=np.arange(COLUMNS),
        versions=np.zeros(COLUMNS, np.int64),
        returns=nothing.astype(np.float32),
        lengths=nothing.astype(np.int32),
        round=0,
        num_launched=COLUMNS,
        environment=where,
        policy=policy,
        bill=lambda: None,
    )


def exact_ends(
    module: nn.Module, log_prob: Callable[[Tensor, Tensor], Tensor], batch: Batch, gains: Tensor
) -> tuple[float, float]:
    """Both ends of the whole Hessian's spectrum, by autograd over one flat vector."""
    named = dict(module.named_parameters())
    sizes = [p.numel() for p in named.values()]
    flat = torch.cat([p.detach().reshape(-1) for p in named.values()])
    seen, taken = torch.tensor(batch.observations), torch.tensor(batch.actions)

    def objective(vector: Tensor) -> Tensor:
        parts = [
            part.view(p.shape)
            for part, p in zip(torch.split(vector, sizes), named.values(), strict=True)
        ]
        values = dict(zip(named, parts, strict=True))
        outputs = torch.func.functional_call(module, values, (seen,))
        if "log_std" in values:
            outputs = torch.cat([outputs, values["log_std"].expand_as(outputs)], dim=-1)
        new = log_prob(outputs, taken)
        return (gains * torch.exp(new - new.detach())).mean()

    hessian = torch.autograd.functional.hessian(objective, flat)  # type: ignore[no-untyped-call]
    ends = torch.linalg.eigvalsh(hessian.double())
    return float(ends[-1]), float(ends[0])


def by_logits(outputs: Tensor, action: Tensor) -> Tensor:
    found: Tensor = Categorical(logits=outputs).log_prob(action)  # type: ignore[no-untyped-call]
    return found


def by_normal(outputs: Tensor, action: Tensor) -> Tensor:
    mean, log_std = outputs.chunk(2, dim=-1)
    found: Tensor = Normal(mean, log_std.exp()).log_prob(action)  # type: ignore[no-untyped-call]
    return found.sum(-1)


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.GELU])
def test_of_a_categorical_policy(activation: type[nn.Module]) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 3))
    batch = made_batch(module, DiscreteActionSpec(n=3))
    gains = torch.tensor(np.random.default_rng(2).standard_normal((STEPS, COLUMNS)))
    highest, lowest = exact_ends(module, by_logits, batch, gains.float())
    found = measure_curvature(module, batch, gains, detector=ALL)
    assert found is not None
    assert found.lambda_max == pytest.approx(highest, rel=1e-2)
    assert found.lambda_min == pytest.approx(lowest, rel=1e-2)
    assert found.gradient_noise is not None
    assert found.fragment_noise is not None
    assert found.fragment_noise.variance > 0


@pytest.mark.parametrize("activation", [nn.Tanh, nn.GELU])
def test_of_a_gaussian_policy_with_a_free_deviation(activation: type[nn.Module]) -> None:
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))
    module.register_parameter("log_std", nn.Parameter(torch.tensor([-0.3, 0.2])))
    batch = made_batch(module, ContinuousActionSpec(low=(-1.0, -1.0), high=(1.0, 1.0)))
    gains = np.random.default_rng(3).standard_normal((STEPS, COLUMNS))
    highest, lowest = exact_ends(module, by_normal, batch, torch.tensor(gains).float())
    found = measure_curvature(module, batch, gains, detector=ALL)
    assert found is not None
    assert found.lambda_max == pytest.approx(highest, rel=1e-2)
    assert found.lambda_min == pytest.approx(lowest, rel=1e-2)


def test_without_advantages_the_rewards_to_come_are_taken() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 2))
    batch = made_batch(module, DiscreteActionSpec(n=2))
    discounts = 0.99 ** np.arange(STEPS)
    to_come = np.stack(
        [(discounts[: STEPS - t, np.newaxis] * batch.rewards[t:]).sum(0) for t in range(STEPS)]
    )
    to_come -= to_come.mean(axis=1, keepdims=True)
    explicit = measure_curvature(module, batch, to_come, detector=ALL)
    implied = measure_curvature(module, batch, detector=ALL)
    assert explicit is not None
    assert implied is not None
    assert implied.lambda_max == pytest.approx(explicit.lambda_max, rel=1e-4)


def test_advantages_of_another_shape_are_refused() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    batch = made_batch(module, DiscreteActionSpec(n=2))
    with pytest.raises(CommandError, match=r"shape \(3,\), and the batch's steps are \(6, 8\)"):
        measure_curvature(module, batch, np.zeros(3))


def test_nothing_is_measured_without_advantages() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    batch = made_batch(module, DiscreteActionSpec(n=2))
    assert measure_curvature(module, batch, np.zeros((STEPS, COLUMNS))) is None


def test_an_actors_environments_are_one_fragment() -> None:
    """The noise of four actors with two columns each is that of four columns twice as long."""
    module = nn.Sequential(nn.Linear(3, 2))
    batch = made_batch(module, DiscreteActionSpec(n=2))
    gains = np.random.default_rng(4).standard_normal((STEPS, COLUMNS))

    def one_after_the_other(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array[:, ::2], array[:, 1::2]])

    names = ("observations", "actions", "log_probs", "rewards", "terminated", "truncated")
    longer: dict[str, Any] = {name: one_after_the_other(getattr(batch, name)) for name in names}
    four = np.arange(4)
    side_by_side = replace(batch, actors=np.repeat(four, 2))
    found = measure_curvature(module, side_by_side, gains, detector=ALL)
    expected = measure_curvature(
        module, replace(batch, actors=four, **longer), one_after_the_other(gains), detector=ALL
    )
    assert found is not None
    assert expected is not None
    assert found.fragment_noise is not None
    assert expected.fragment_noise is not None
    for name in ("squared_norm", "variance"):
        theirs = getattr(expected.fragment_noise, name)
        assert getattr(found.fragment_noise, name) == pytest.approx(theirs, rel=1e-4)
