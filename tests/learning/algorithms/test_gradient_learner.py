"""Every algorithm learns from images, which stay bytes until the network reads them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.impact import Impact
from learning.algorithms.impala import Impala
from learning.algorithms.ppo import Ppo
from learning.data.batch_building import on_policy_batch
from learning.detectors.hessian import HessianDetector
from learning.networks.building import build_network
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.hyperparameters import impact as impact_hyperparameters
from shared.hyperparameters import impala as impala_hyperparameters
from shared.hyperparameters.ppo import PAPER, STANDARD_IMAGES
from shared.trajectory.trajectory import Trajectory

SPEC = EnvironmentSpec(
    env_id="Tiny-v0",
    observation=ObservationSpec(shape=(2, 36, 36), dtype="uint8", frame_stack=2),
    action=DiscreteActionSpec(n=3),
    max_episode_steps=None,
    versions={},
)
SMALL = {"num_epochs": 1, "minibatch_size": 8}


def trajectory(actor_index: int, *, num_steps: int = 8, num_envs: int = 2) -> Trajectory:
    rng = np.random.default_rng(actor_index)
    steps, shape = (num_steps, num_envs), (2, 36, 36)
    terminated, truncated = rng.random((2, *steps)) < 0.2
    num_cut, num_ended = (truncated & ~terminated).sum(), (truncated | terminated).sum()
    return Trajectory(
        job_id="job",
        round=0,
        actor_index=actor_index,
        policy_version=0,
        observation=rng.integers(256, size=(num_steps + 1, num_envs, *shape), dtype=np.uint8),
        final_observation=rng.integers(256, size=(num_cut, *shape), dtype=np.uint8),
        action=rng.integers(3, size=steps),
        reward=rng.integers(-1, 2, size=steps).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        log_prob=np.full(steps, -np.log(3), np.float32),
        episode_returns=np.zeros(num_ended, np.float32),
        episode_lengths=np.ones(num_ended, np.int32),
    )


def ppo() -> Algorithm:
    return Ppo(SPEC, STANDARD_IMAGES.model_copy(update=SMALL), seed=0)


def impact() -> Algorithm:
    rule = impact_hyperparameters.STANDARD.model_copy(update={**SMALL, "train_batch_size": 16})
    return Impact(SPEC, rule, seed=0)


def impala() -> Algorithm:
    rule = impala_hyperparameters.STANDARD.model_copy(update={**SMALL, "train_batch_size": 16})
    return Impala(SPEC, rule, seed=0)


@pytest.mark.parametrize("build", [ppo, impact, impala])
def test_updates_repeat_and_resume_bit_for_bit(build: Callable[[], Algorithm]) -> None:
    rounds = [[trajectory(2 * k), trajectory(2 * k + 1)] for k in range(2)]
    straight, resumed = build(), build()
    before = straight.policy_payload()[0]
    first = learn_round(straight, rounds[0])
    assert all(np.isfinite(value) for value in first.stats.values())
    changed = straight.policy_payload()[0]
    assert any(not np.array_equal(before[name], changed[name]) for name in before)
    resumed.load_state(*straight.state())
    for algorithm in (straight, resumed):
        learn_round(algorithm, rounds[1][::-1])
    end, other = straight.policy_payload()[0], resumed.policy_payload()[0]
    assert all(np.array_equal(end[name], other[name]) for name in end)
    samples = straight.samples()
    assert samples is not None
    assert straight.network is not None
    rule = DetectorRule(num_samples=8, max_matvecs=8)
    found = HessianDetector(rule).measure(straight.network, samples)
    assert found is not None
    assert found.lambda_max > found.lambda_min


def test_a_batch_of_images_stays_bytes() -> None:
    network = build_network(SPEC, PAPER, seed=0)
    rounds = [trajectory(0), trajectory(1)]
    batch = on_policy_batch(rounds, network, discount=0.99, gae_lambda=0.95)
    assert batch.observation.dtype == torch.uint8
    assert batch.observation.shape == (32, 2, 36, 36)
    expected = np.concatenate([t.observation[:-1, b] for t in rounds for b in range(2)])
    np.testing.assert_array_equal(batch.observation, expected)
