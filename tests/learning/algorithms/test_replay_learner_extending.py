"""A new algorithm with a replay, by the registries alone, as docs/extending.md says.

It is TD3: Fujimoto et al., "Addressing function approximation error in actor-critic methods", ICML
2018, algorithm 1. Actors explore before the tanh instead of behind it.
"""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.algorithms.algorithm import Algorithm
from learning.algorithms.registry import BUILDERS, build_algorithm
from learning.algorithms.replay_learner import ReplayLearner
from learning.data.transitions import RowColumns
from learning.networks.soft_actor_critic import FlatMlps, Outputs, initialise, values
from learning.updates.replay_steps import ReplaySteps, half_squared_errors, network_blocks
from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec, ObservationSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.message import PositiveFloat, PositiveInt
from shared.hyperparameters.presets import ALGORITHMS, AlgorithmTraits
from shared.hyperparameters.replay import ReplayHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.policy.squashed_gaussian import LOG_STD_MAX, LOG_STD_MIN
from shared.trajectory.trajectory import Trajectory


class Td3Hyperparameters(ReplayHyperparameters):
    policy_delay: PositiveInt = 2
    exploration_std: PositiveFloat = 0.1
    smoothing_std: PositiveFloat = 0.2
    smoothing_clip: PositiveFloat = 0.5


class Td3Steps(ReplaySteps):
    def __init__(self, columns: RowColumns, rule: Td3Hyperparameters, *, seed: int) -> None:
        policy, critic = network_blocks(columns, rule)
        self.policy, self._slow_policy = (FlatMlps(policy, number=1) for _ in range(2))
        self._critics, self._slow_critics = (FlatMlps(critic, number=2) for _ in range(2))
        initialise(seed, self.policy, self._critics)
        share = (math.log(rule.exploration_std) - LOG_STD_MIN) / (LOG_STD_MAX - LOG_STD_MIN)
        last, size = self.policy.networks[0][-1], columns.action_size
        with torch.no_grad():  # outputs without a loss keep their first weights
            last.weight[size:], last.bias[size:] = 0.0, math.atanh(2 * share - 1)
        learned = {"policy": self.policy.flat, "critics": self._critics.flat}
        slow = {"slow_policy": self._slow_policy.flat, "slow_critics": self._slow_critics.flat}
        for fast, follower in zip(learned.values(), slow.values(), strict=True):
            follower.copy_(fast)
        self._pairs = [*zip(slow.values(), learned.values(), strict=True)]
        self._rule = rule
        super().__init__(columns, rule, learned=learned, followers=slow)

    def take(self, rows: Tensor, noises: Tensor) -> dict[str, float] | None:
        rule, columns = self._rule, self.columns
        observation, following = rows[:, columns.observation], rows[:, columns.following]
        with torch.no_grad():
            noise = (rule.smoothing_std * noises[1]).clamp(
                -rule.smoothing_clip, rule.smoothing_clip
            )
            action = (self._action(self._slow_policy.outputs, following) + noise).clamp(-1, 1)
            after = torch.minimum(*values(self._slow_critics.outputs, following, action))
            target = rows[:, columns.reward] + rule.discount * rows[:, columns.goes_on] * after
        both = values(self._critics.outputs, observation, rows[:, columns.action])
        loss = half_squared_errors(both, target)
        critic = self._apply("critics", self._critics.differentiate(loss), loss)
        if critic is None:
            return None
        stats = {"critic_loss": critic[0]}
        if self.adams["critics"].steps % rule.policy_delay:
            return stats
        action = self._action(self.policy.outputs, observation)
        loss = -values(self._critics.outputs, observation, action)[0].mean()
        policy = self._apply("policy", self.policy.differentiate(loss), loss)
        if policy is None:
            return None
        for slow, fast in self._pairs:
            slow.lerp_(fast, rule.target_rate)
        return stats | {"policy_loss": policy[0]}

    def _action(self, outputs: Outputs, observation: Tensor) -> Tensor:
        return torch.tanh(outputs(observation)[0][:, : self.columns.action_size])


class Td3(ReplayLearner):
    steps = Td3Steps


SIZE = 2
PAPER = Td3Hyperparameters(
    hidden_sizes=(24, 24), minibatch_size=64, learning_rate=3e-3, learning_starts=64
)
ENVIRONMENT = EnvironmentSpec(
    env_id="Toy-v0",
    observation=ObservationSpec(shape=(SIZE,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0,) * SIZE, high=(1.0,) * SIZE),
    max_episode_steps=None,
    versions={},
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    traits = AlgorithmTraits(
        presets={"paper": PAPER}, on_policy=False, objectives=frozenset(), needs_boxes=True
    )
    monkeypatch.setitem(ALGORITHMS, "td3", traits)
    monkeypatch.setitem(BUILDERS, "td3", Td3)


def _trajectory(algorithm: Algorithm, index: int) -> Trajectory:
    """Steps that are each rewarded for an action close to the observation, and end an episode."""
    rng = np.random.default_rng(index)
    observation = rng.uniform(-0.8, 0.8, (65, 1, SIZE)).astype(np.float32)
    action, log_prob = load_policy(*algorithm.policy_payload()).sample(observation[:-1], rng)
    reward = -np.square(action - observation[:-1]).sum(axis=-1)
    nothing = np.zeros((64, 1), bool)
    return Trajectory(
        job_id="toy",
        round=index,
        actor_index=0,
        policy_version=index,
        observation=observation,
        final_observation=np.zeros((0, SIZE), np.float32),
        action=action,
        reward=reward.astype(np.float32),
        terminated=~nothing,
        truncated=nothing,
        log_prob=log_prob,
        episode_returns=reward.astype(np.float32).ravel(),
        episode_lengths=np.ones(64, np.int32),
    )


@pytest.mark.usefixtures("registered")
def test_an_algorithm_with_a_replay_is_added_without_editing_a_file() -> None:
    spec = JobSpec.model_validate({"env_id": "Toy-v0", "algorithm": "td3"}).resolved()
    assert (spec.scaling.policy, spec.episodes.horizon) == ("fixed", "limit")
    job = Job(job_id="toy", spec=spec, environment=ENVIRONMENT, status="running", created_at=0.0)
    algorithm, resumed = (build_algorithm(job, device=torch.device("cpu")) for _ in range(2))
    returns = []
    for index in range(12):
        found = _trajectory(algorithm, index)
        returns.append(found.reward.mean())
        algorithm.add([found])
        while algorithm.ready:
            algorithm.update()
        algorithm.advance(index + 1)
    assert np.mean(returns[-3:]) > 0.1 * np.mean(returns[:2])
    resumed.load_state(*algorithm.state())
    (arrays, metadata), (same, _) = algorithm.policy_payload(), resumed.policy_payload()
    assert all(np.array_equal(arrays[name], same[name]) for name in arrays)
    policy = load_policy(arrays, metadata)
    seen = np.zeros((4000, SIZE), np.float32)
    action, _ = policy.sample(seen, np.random.default_rng(0))
    before_tanh = np.arctanh(action) - np.arctanh(policy.mode(seen))
    np.testing.assert_allclose(before_tanh.std(axis=0), PAPER.exploration_std, rtol=0.05)
