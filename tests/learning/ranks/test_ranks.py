"""Several processes that step one network, against one process: real processes, over gloo."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from learning.algorithms.network_steps import NetworkSteps
from learning.algorithms.ppo import Ppo
from learning.data.batch_building import on_policy_batch
from learning.losses.impact import ImpactRule
from learning.losses.impala import ImpalaRule
from learning.losses.loss_terms import LossRule
from learning.losses.ppo import PpoRule
from learning.networks.building import build_network
from learning.ranks.process import NetworkForm, flats_of
from learning.ranks.ranks import RankedSteps, RankLostError, Ranks
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import STANDARD as IMPACT
from shared.hyperparameters.impala import STANDARD as IMPALA
from shared.hyperparameters.ppo import STANDARD, STANDARD_IMAGES, PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.algorithms import test_gradient_learner as images
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

UPDATES = 3
SMALL = {"hidden_sizes": (8, 7), "num_epochs": 2, "minibatch_size": 25}
PPO = STANDARD.model_copy(update=SMALL)
SUMMED = IMPALA.model_copy(update={**SMALL, "loss_reduction": "sum"})
RULES: dict[str, tuple[LossRule, EnvironmentSpec]] = {
    "ppo": (PpoRule(hyperparameters=PPO, kl_coefficient=0.2), CONTINUOUS),
    "ppo, discrete": (PpoRule(hyperparameters=PPO, kl_coefficient=0.0), DISCRETE),
    "impact": (
        ImpactRule(hyperparameters=IMPACT.model_copy(update=SMALL), kl_coefficient=0.2),
        CONTINUOUS,
    ),
    "impala, summed": (ImpalaRule(hyperparameters=SUMMED), CONTINUOUS),
}


class Case:
    """A network, its steps and the batches it learns from."""

    def __init__(self, name: str, dtype: torch.dtype, **settings: object) -> None:
        rule, environment = RULES[name]
        hyperparameters = _with(rule, settings)
        self.rule: LossRule = replace(rule, hyperparameters=hyperparameters)  # type: ignore[type-var]
        self.form = NetworkForm(
            environment=environment, hyperparameters=hyperparameters, dtype=dtype
        )
        network = build_network(environment, hyperparameters, seed=5)
        trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(2)]
        made = on_policy_batch(trajectories, network, discount=0.99, gae_lambda=0.95)
        weight = torch.linspace(0.0, 1.0, made.num_samples)
        self.batch = _cast(made.replaced(weight=weight), dtype)
        network.flatten(dtype)
        self.steps = NetworkSteps(network, hyperparameters)
        self.generator = torch.Generator().manual_seed(7)

    def learn(self, ranks: Ranks | None) -> tuple[list[Tensor], list[dict[str, float]]]:
        """Return parameters and moments after some updates, and what each of them said."""
        steps = self.steps if ranks is None else RankedSteps(self.steps, ranks, self.form)
        said = [
            steps.take(self.batch, self.rule, generator=self.generator)
            for version in range(UPDATES)
        ]
        return [flat.clone() for flat in flats_of(self.steps.adam)], said


def _with(rule: LossRule, settings: dict[str, object]) -> PpoHyperparameters:
    return rule.hyperparameters.model_copy(update=settings)  # type: ignore[attr-defined,no-any-return]


def _cast(batch: Columns[Tensor], dtype: torch.dtype) -> Columns[Tensor]:
    cast = {
        name: column.to(dtype)
        for name, column in batch.arrays.items()
        if column.is_floating_point()
    }
    return batch.replaced(**cast)


@pytest.fixture(scope="module", params=[1, 2, 3])
def ranks(request: pytest.FixtureRequest) -> Iterator[Ranks]:
    with Ranks(request.param) as opened:
        yield opened


@pytest.mark.parametrize("name", RULES)
def test_updates_are_those_of_one_process_up_to_rounding(ranks: Ranks, name: str) -> None:
    alone, told_alone = Case(name, torch.float64).learn(None)
    shared, told = Case(name, torch.float64).learn(ranks)
    # Every rank answers with a digest of its own, and another one would have ended the update.
    for ours, expected in zip(shared, alone, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(told, told_alone, strict=True):
        assert one == pytest.approx(other, rel=1e-10, abs=1e-12)
        assert one["skipped_steps"] == 0.0


@pytest.mark.parametrize("size", [1, 2, 4, 7, 95, 96])
def test_minibatches_that_ranks_cannot_share_evenly(ranks: Ranks, size: int) -> None:
    """Of one sample, of fewer than there are ranks, of uneven numbers, and of all."""
    settings = {"minibatch_size": size, "advantage_normalisation": "batch"}
    alone, _ = Case("ppo", torch.float64, **settings).learn(None)
    shared, _ = Case("ppo", torch.float64, **settings).learn(ranks)
    for ours, expected in zip(shared, alone, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-11, atol=1e-12)


def test_in_numpy_too_and_equal_runs_have_equal_bits(ranks: Ranks) -> None:
    alone, told_alone = Case("ppo", torch.float32).learn(None)
    one, told = Case("ppo", torch.float32).learn(ranks)
    other, _ = Case("ppo", torch.float32).learn(ranks)
    for ours, again, expected in zip(one, other, alone, strict=True):
        assert torch.equal(ours, again)
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-5)
    assert told[0]["num_minibatches"] == told_alone[0]["num_minibatches"]


def test_images_are_learned_from_by_autograd_in_every_rank(ranks: Ranks) -> None:
    hyperparameters = STANDARD_IMAGES.model_copy(update=images.SMALL)
    rounds = [images.trajectory(index) for index in range(2)]
    alone, shared = (
        Ppo(images.SPEC, hyperparameters, seed=0, steps=each) for each in (None, ranks.steps)
    )
    for algorithm in (alone, shared):
        algorithm.learn(rounds)
    torch.testing.assert_close(shared.network.flat, alone.network.flat, rtol=1e-3, atol=1e-5)


def test_a_step_that_is_not_finite_is_left_out_by_all(ranks: Ranks) -> None:
    case = Case("ppo", torch.float64)
    case.batch.value_target[3] = torch.nan
    _, told = case.learn(ranks)
    assert [said["skipped_steps"] for said in told] == [PPO.num_epochs] * UPDATES


def test_a_killed_rank_is_named_and_the_others_end() -> None:
    with Ranks(3) as ranks:
        Case("ppo", torch.float32).learn(ranks)
        first, second = ranks.pids
        os.kill(second, signal.SIGKILL)
        with pytest.raises(RankLostError, match=r"rank 2 ended by SIGKILL"):
            Case("ppo", torch.float32).learn(ranks)
        assert ranks.pids == ()
        assert not Path(f"/proc/{first}").exists()
        # Started anew for the next update, which is what it would have been.
        again, _ = Case("ppo", torch.float32).learn(ranks)
    alone, _ = Case("ppo", torch.float32).learn(None)
    torch.testing.assert_close(again[0], alone[0], rtol=1e-3, atol=1e-5)


def test_a_rank_that_is_silent_is_named_after_the_timeout() -> None:
    with Ranks(2, timeout_s=5.0) as ranks:
        Case("ppo", torch.float32).learn(ranks)
        os.kill(ranks.pids[0], signal.SIGSTOP)
        with pytest.raises(RankLostError, match=r"rank 1 gave no answer"):
            Case("ppo", torch.float32).learn(ranks)


def test_a_rank_that_fails_says_why() -> None:
    with Ranks(2) as ranks:
        case = Case("ppo", torch.float32)
        # Not a network that can be built.
        other = case.form.hyperparameters.model_copy(update={"hidden_sizes": ("wide",)})
        case.form = replace(case.form, hyperparameters=other)
        with pytest.raises(RankLostError, match=r"(?s)rank 1 failed: .*Error"):
            case.learn(ranks)
