"""Curvature in two halves: the whole's up to rounding, and the same bits on any number of cores."""

import math
import os
import sys
from itertools import count

import pytest
import torch
from torch import Tensor

from services.learner import halved_surrogate as halved
from services.learner import second_half, second_lane
from services.learner.batch import build_batch
from services.learner.curvature import LossTerms, measure_curvature
from services.learner.halved_surrogate import HalvedSurrogate, Samples, halved_surrogate
from services.learner.mlp_network import MlpActorCritic
from services.learner.second_half import AcrossProcesses, SecondHalf, second_process_pays
from services.learner.second_lane import SecondLane
from services.learner.second_process import SecondProcess, Side
from services.learner.surrogate import PolicySurrogate, policy_point, policy_surrogate
from shared.environment_spec import EnvironmentSpec
from shared.job_spec import DetectorRule
from shared.ppo_hyperparameters import STANDARD, PpoHyperparameters
from tests.services.learner import test_conv_surrogate
from tests.services.learner.test_surrogate import network_of, samples_of
from tests.services.learner.trajectories import CONTINUOUS, DISCRETE, make_trajectory

LARGE = PpoHyperparameters(hidden_sizes=(256, 256))
LARGE_FREE = PpoHyperparameters(hidden_sizes=(256, 256), log_std="free")
UNEVEN = PpoHyperparameters(hidden_sizes=(301, 177))
CASES = [
    (CONTINUOUS, LARGE),
    (CONTINUOUS, LARGE_FREE),
    (CONTINUOUS, UNEVEN),
    (DISCRETE, LARGE),
]
ODD = 131
"""Samples of which the halves differ in size."""
EVEN = 128
"""Samples of which they are alike."""


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_two_halves_make_the_whole(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    network = network_of(environment, hyperparameters, torch.float64)
    observation, action, advantage = samples_of(environment, torch.float64, ODD)
    whole = PolicySurrogate(network, observation=observation, action=action, advantage=advantage)
    direction = torch.randn(
        whole.size, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    expected = whole.hessian_product(direction)
    with SecondLane() as lane:
        found = []
        for helper in (None, lane):
            samples = Samples(observation, action, advantage)
            made = halved_surrogate(network, samples, helper)
            assert isinstance(made, HalvedSurrogate)
            torch.testing.assert_close(made.gradient(), whole.gradient(), rtol=1e-10, atol=1e-12)
            found.append(made.hessian_product(direction))
    torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(found[0], found[1])


def test_small_networks_are_not_halved() -> None:
    hyperparameters = PpoHyperparameters(hidden_sizes=(8, 8))
    network = network_of(CONTINUOUS, hyperparameters, torch.float32)
    observation, action, advantage = samples_of(CONTINUOUS, torch.float32, ODD)
    samples = Samples(observation, action, advantage)
    assert isinstance(halved_surrogate(network, samples, None), PolicySurrogate)
    assert not second_process_pays(network, ODD)


def calm_network_of(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> MlpActorCritic:
    """Return a network whose deviations are not so small that ratios are lost in rounding."""
    network = network_of(environment, hyperparameters, torch.float32)
    network.flat.mul_(0.5)
    return network


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely")


@LINUX
@pytest.mark.parametrize(("environment", "hyperparameters"), [*CASES, (CONTINUOUS, STANDARD)])
@pytest.mark.parametrize("objective", ["surrogate", "behaviour"])
@pytest.mark.parametrize(
    ("num_trajectories", "num_samples"), [(4, EVEN), (4, ODD), (4, 512), (3, EVEN)]
)
def test_a_second_process_changes_no_bit(
    environment: EnvironmentSpec,
    hyperparameters: PpoHyperparameters,
    objective: str,
    num_trajectories: int,
    num_samples: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = calm_network_of(environment, hyperparameters)
    trajectories = [
        make_trajectory(environment, network, actor_index=i, num_steps=200)
        for i in range(num_trajectories)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    rule = DetectorRule.model_validate(
        {"objective": objective, "num_samples": num_samples, "max_matvecs": 6, "probes": 2}
    )
    loss = LossTerms(hyperparameters=hyperparameters, kl_coefficient=0.2)
    process, calls = SecondProcess(), count()
    whole = process.both
    monkeypatch.setattr(process, "both", lambda *work: (whole(*work), next(calls))[0])
    try:
        found = []
        for helper in (None, process, process):
            curvature = measure_curvature(network, batch, rule=rule, loss=loss, process=helper)
            assert curvature is not None
            found.append(curvature.model_copy(update={"elapsed_s": 0.0}))
        assert found[0] == found[1] == found[2]
        # The smallest network is not worth it for a few samples.
        pays = second_process_pays(network, num_samples)
        assert next(calls) == (2 if pays else 0)
        assert pays or hyperparameters is STANDARD
        # Not finite is no curvature, and no reason to lose the process.
        first = network.views_of(network.flat)["policy.0.weight"][0]
        kept = first.clone()
        first[0] = math.nan
        assert measure_curvature(network, batch, rule=rule, loss=loss, process=process) is None
        first.copy_(kept)
        again = measure_curvature(network, batch, rule=rule, loss=loss, process=process)
        assert again is not None
        assert again.model_copy(update={"elapsed_s": 0.0}) == found[0]
    finally:
        process.close()


@LINUX
def test_a_second_process_answers_in_any_order_and_any_number_of_times() -> None:
    network = network_of(CONTINUOUS, LARGE, torch.float32)
    samples = Samples(*samples_of(CONTINUOUS, torch.float32, EVEN))
    alone = halved_surrogate(network, samples, None)
    point, (first, second) = policy_point(network), samples.halves()
    direction = torch.randn(alone.size, generator=torch.Generator().manual_seed(3))

    def here(side: Side) -> list[Tensor]:
        made = AcrossProcesses(point, first, side)
        found = [
            made.hessian_product(direction),
            made.shares(4).squared_norms,
            made.gradient(),
            made.hessian_product(-direction),
            made.shares(2).gradient,
            made.gradient(),
        ]
        for odd in (0, 3):
            with pytest.raises(ValueError, match="even and positive"):
                made.shares(odd)
        made.end()
        return found

    process = SecondProcess()
    try:
        found, _ = process.both(here, SecondHalf.of(point, [second]))
    finally:
        process.close()
    shares = alone.shares(4)
    assert shares is not None
    gradient, product = alone.gradient(), alone.hessian_product(direction)
    expected = [product, shares.squared_norms, gradient, -product, gradient, gradient]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_what_does_not_fit_into_shared_memory_stays_in_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = network_of(CONTINUOUS, LARGE, torch.float32)
    samples = Samples(*samples_of(CONTINUOUS, torch.float32, ODD))
    size = halved_surrogate(network, samples, None).size
    assert size < len(network.flat)  # the value function needs no room
    for floats, fits in ((3 * (size + 16), True), (3 * size - 1, False)):
        monkeypatch.setattr(second_half, "SHARED_FLOATS", floats)
        assert second_process_pays(network, ODD) is fits


@pytest.mark.parametrize("case", test_conv_surrogate.CASES)
def test_convolutional_networks_are_halved_and_tell_no_shares(
    case: test_conv_surrogate.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halved, "MIN_MULTIPLICATIONS", 1)
    network = test_conv_surrogate.network_of(case)
    samples = Samples(*test_conv_surrogate.samples_of(case, 31))
    whole = policy_surrogate(network, **samples._asdict())
    with SecondLane() as lane:
        made = halved_surrogate(network, samples, lane)
        assert isinstance(made, HalvedSurrogate)
        torch.testing.assert_close(made.gradient(), whole.gradient())
        assert made.shares(2) is None


@LINUX
@pytest.mark.parametrize("how", ["ends", "raises"])
def test_a_measurement_that_loses_the_process_is_made_without_it(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = network_of(CONTINUOUS, LARGE, torch.float32)
    trajectories = [
        make_trajectory(CONTINUOUS, network, actor_index=i, num_steps=200) for i in range(2)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    expected = measure_curvature(network, batch, rule=DetectorRule())
    monkeypatch.setattr(SecondHalf, "__call__", ended if how == "ends" else failed)
    process = SecondProcess()
    found = measure_curvature(network, batch, rule=DetectorRule(), process=process)
    assert expected is not None
    assert found is not None
    assert (found.lambda_max, found.lambda_min) == (expected.lambda_max, expected.lambda_min)
    assert not process.usable
    (record,) = caplog.records
    assert ("ended with 3" if how == "ends" else "on purpose") in record.__dict__["why"]


def ended(*_: object) -> None:
    os._exit(3)


def failed(*_: object) -> None:
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize("objective", ["surrogate", "behaviour"])
@pytest.mark.parametrize("num_samples", [EVEN, ODD])
def test_a_measurement_has_the_same_bits_on_one_core_and_on_two(
    objective: str, num_samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = calm_network_of(CONTINUOUS, LARGE)
    trajectories = [
        make_trajectory(CONTINUOUS, network, actor_index=i, num_steps=200) for i in range(4)
    ]
    batch = build_batch(trajectories, network, discount=0.99, gae_lambda=1.0)
    rule = DetectorRule.model_validate(
        {"objective": objective, "num_samples": num_samples, "max_matvecs": 6}
    )
    found = []
    for num_cores in (1, 2):
        monkeypatch.setattr(second_lane, "usable_cores", lambda cores=num_cores: cores)
        loss = LossTerms(hyperparameters=LARGE, kl_coefficient=0.2)
        curvature = measure_curvature(network, batch, rule=rule, loss=loss)
        assert curvature is not None
        found.append(curvature.model_copy(update={"elapsed_s": 0.0}))
    assert found[0] == found[1]
