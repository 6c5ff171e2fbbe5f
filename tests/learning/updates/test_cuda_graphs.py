"""Updates and measurements out of recordings against those without; what CUDA adds, a GPU shows."""

import numpy as np
import pytest
import torch

from learning.algorithms import network_steps
from learning.algorithms.impact import Impact
from learning.algorithms.ppo import Ppo
from learning.detectors import hessian as hessian_detector
from learning.networks.mlp_network import MlpActorCritic
from learning.updates.cuda_graphs import recorder
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters
from tests.learning.detectors.test_hessian import loss_of, measured, round_of
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory
from tests.learning.updates.replaying import always

SMALL = PpoHyperparameters(hidden_sizes=(6, 5), num_epochs=3, minibatch_size=8)


def test_the_cpu_needs_none() -> None:
    with recorder(torch.device("cpu")) as found:
        assert found is None


@pytest.fixture
def stepped_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: on the CPU Gaussian policies are stepped in NumPy, which records nothing."""
    monkeypatch.setattr(MlpActorCritic, "array_terms", lambda _: None)


@pytest.mark.usefixtures("stepped_in_torch")
@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE])
def test_an_update_of_ppo_out_of_recordings_is_the_same(
    environment: EnvironmentSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for replayed in (False, True):
        if replayed:
            monkeypatch.setattr(network_steps, "recorder", always)
        algorithm = Ppo(environment, SMALL, seed=3)
        fragments = [make_trajectory(environment, algorithm.network, actor_index=i) for i in (0, 1)]
        stats = [algorithm.learn(fragments).stats for _ in range(2)]
        found.append((algorithm.network.flat.clone(), stats, algorithm.state()[1]))
    (plain, stats, scalars), (replay, replay_stats, replay_scalars) = found
    torch.testing.assert_close(replay, plain)
    assert replay_scalars == pytest.approx(scalars)
    for one, other in zip(stats, replay_stats, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)


@pytest.mark.usefixtures("stepped_in_torch")
def test_an_update_of_impact_out_of_recordings_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hyperparameters = ImpactHyperparameters(
        hidden_sizes=(6, 5), train_batch_size=24, minibatch_size=8, num_epochs=2
    )
    found = []
    for replayed in (False, True):
        if replayed:
            monkeypatch.setattr(network_steps, "recorder", always)
        learner = Impact(CONTINUOUS, hyperparameters, seed=3)
        learner.add([make_trajectory(CONTINUOUS, learner.network, actor_index=i) for i in (0, 1)])
        learner.flush()
        stats = learner.update().stats
        found.append((learner.network.flat.clone(), stats))
    (plain, stats), (replay, replay_stats) = found
    torch.testing.assert_close(replay, plain)
    assert replay_stats == pytest.approx(stats, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("objective", ["surrogate", "behaviour", "total_loss"])
def test_a_curvature_out_of_a_recording_is_the_same(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, batch = round_of(CONTINUOUS, SMALL)
    rule = DetectorRule.model_validate({"objective": objective, "probes": 2})
    plain = measured(network, batch, rule=rule, loss=loss_of(SMALL))
    monkeypatch.setattr(hessian_detector, "recorder", always)
    replayed = measured(network, batch, rule=rule, loss=loss_of(SMALL))
    assert plain is not None
    assert replayed is not None
    ends = (plain.lambda_max, plain.lambda_min, plain.matvecs)
    assert np.allclose((replayed.lambda_max, replayed.lambda_min, replayed.matvecs), ends)
