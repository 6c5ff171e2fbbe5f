"""Noise of whole fragments where an update began: unbiased, in Adam's norm, and only looked at."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.algorithms.algorithm import learn_round
from learning.algorithms.ppo import Ppo
from learning.data.batch import picked
from learning.data.batch_building import on_policy_batch
from learning.detectors import fragment_noise as fragments_together
from learning.detectors.detector import UpdateStart
from learning.detectors.fragment_noise import fragment_noise
from learning.detectors.hessian import HessianDetector
from learning.networks.mlp_network import MlpActorCritic
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.algorithms import test_gradient_learner
from tests.learning.detectors.test_surrogate import CASES, network_of, surrogate_log_prob
from tests.learning.trajectories import CONTINUOUS, make_trajectory

FREE = PpoHyperparameters(hidden_sizes=(6, 5))


def round_of(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, fragments: int
) -> tuple[MlpActorCritic, Columns[Tensor]]:
    network = network_of(environment, hyperparameters, torch.float32)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(fragments)]
    return network, on_policy_batch(trajectories, network, discount=0.99, gae_lambda=1.0)


def start_of(network: MlpActorCritic) -> UpdateStart:
    sizes = torch.rand(network.flat.shape, generator=torch.Generator().manual_seed(3)) + 0.1
    return UpdateStart(parameters=network.flat.clone(), step_sizes=sizes)


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_both_estimates_against_gradients_by_torchs_own_layers(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    network, batch = round_of(environment, hyperparameters, 5)
    start = start_of(network)
    log_prob, point = surrogate_log_prob(network, batch.observation, batch.action)
    jacobian: Tensor = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        log_prob, point
    )
    scores = batch.advantage.double().unsqueeze(1) * jacobian
    named = network.views_of(start.step_sizes)
    order = sorted(
        (name for name in named if not name.startswith("value.")), key=lambda n: n == "log_std"
    )
    sizes = torch.cat([named[name].flatten() for name in order]).double()
    gradients = torch.stack([part.mean(0) for part in scores.chunk(5)]) * sizes.sqrt()
    variance = gradients.var(0, correction=1).sum().item()
    squared_norm = gradients.mean(0).square().sum().item() - variance / 5
    network.flat.add_(1.0)  # the update has been made when it is looked at
    found = fragment_noise(network, batch, start)
    assert found is not None
    assert found.variance == pytest.approx(variance, rel=1e-4)
    assert found.squared_norm == pytest.approx(squared_norm, rel=1e-3, abs=1e-3 * variance)


def test_a_few_fragments_say_on_average_what_all_of_them_do() -> None:
    # All there are are 40; what any 8 of them estimate is held against the exact moments.
    network, batch = round_of(CONTINUOUS, FREE, 40)
    start = start_of(network)
    length = batch.num_samples // 40
    rng = np.random.default_rng(0)

    def of(fragments: list[int]) -> tuple[float, float]:
        rows = torch.cat([torch.arange(length * i, length * (i + 1)) for i in fragments])
        part = picked(batch, rows).of_trajectories(len(fragments))
        found = fragment_noise(network, part, start)
        assert found is not None
        return found.squared_norm, found.variance

    drawn = np.array([of(rng.integers(0, 40, 8).tolist()) for _ in range(400)])
    pairs = np.array([of([i, i, i, i]) for i in range(40)])
    # Four times the same: no variance, and the fragment's own squared norm.
    assert np.abs(pairs[:, 1]).max() <= 1e-4 * pairs[:, 0].max()
    whole = network_mean_square(network, batch, start)
    variance = pairs[:, 0].mean() - whole
    error = drawn.std(0) / np.sqrt(len(drawn))
    assert abs(drawn[:, 0].mean() - whole) < 4 * error[0]
    assert abs(drawn[:, 1].mean() - variance) < 4 * error[1]


def network_mean_square(
    network: MlpActorCritic, batch: Columns[Tensor], start: UpdateStart
) -> float:
    """|mean|^2 over all fragments: of four copies of a round that is one fragment."""
    rows = torch.arange(batch.num_samples).repeat(4)
    found = fragment_noise(network, picked(batch, rows).of_trajectories(4), start)
    assert found is not None
    return found.squared_norm


def test_it_is_measured_from_the_second_update_on_and_changes_nothing() -> None:
    def trained(*, looked_at: bool) -> tuple[Ppo, list[bool]]:
        algorithm = Ppo(CONTINUOUS, FREE, seed=0)
        measured = []
        for _ in range(3):
            network = algorithm.network
            assert isinstance(network, MlpActorCritic)
            algorithm.learn([make_trajectory(CONTINUOUS, network, actor_index=i) for i in range(4)])
            samples = algorithm.samples()
            assert samples is not None
            if looked_at:
                found = HessianDetector(DetectorRule()).measure(network, samples)
                assert found is not None
                measured.append(found.fragment_noise is not None)
        return algorithm, measured

    looked_at, measured = trained(looked_at=True)
    assert measured == [False, True, True]
    arrays, _ = looked_at.state()
    expected, _ = trained(looked_at=False)[0].state()
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)


def test_three_fragments_are_too_few() -> None:
    network, batch = round_of(CONTINUOUS, FREE, 3)
    assert fragment_noise(network, batch, start_of(network)) is None


def test_images_are_compared_too_together_or_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = test_gradient_learner.ppo()
    for _ in range(2):
        learn_round(algorithm, [test_gradient_learner.trajectory(k) for k in range(4)])
    samples = algorithm.samples()
    assert samples is not None
    assert samples.start is not None
    assert algorithm.network is not None
    found = []
    for at_once in (1, 2**40):
        monkeypatch.setattr(fragments_together, "_PARAMETERS_AT_ONCE", at_once)
        found.append(fragment_noise(algorithm.network, samples.batch, samples.start))
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].variance > 0
    assert found[0].variance == pytest.approx(found[1].variance, rel=1e-4)
    assert found[0].squared_norm == pytest.approx(
        found[1].squared_norm, abs=1e-4 * found[0].variance
    )
