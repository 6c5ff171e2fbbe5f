"""Iterations of ARS in this process with any number of directions, and what they cost on AWS.

The noise scale of McCandlish et al. (arXiv 1812.06162), T / G^2, is that of the gradient estimates
of single directions d_i, g_i = (r+_i - r-_i) d_i / (2 nu).
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from experiments.outcome import RoundOutcome
from learning.algorithms.algorithm import learn_round
from learning.algorithms.ars import Ars
from learning.detectors.gradient_noise import noise_of_norms
from nitro.planning.prices import cost_basis
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rounds import GradientNoise, RoundTiming
from shared.deployment.config import NitroConfig
from shared.environments.building import Env, make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ars import ArsHyperparameters
from shared.money.costs import cpu_share
from shared.money.round_costs import (
    MeasuredRound,
    execution_items,
    held_items,
    serverless_round_s,
)
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.trajectory.directions import direction, flat_weights, shaped_weights
from shared.trajectory.episode_sums import EpisodeSums

_KEPT = 0.9
"""Of the averages of T and G^2 in each iteration; the scale is their quotient."""
_EPISODES = 5
"""Of an evaluation."""
_STEP_S = 76e-6
"""Of a step of HalfCheetah-v5 on one core, as the published runs were billed. The benchmark
`search_rollout` has 57 microseconds now."""
_CALL_S = 0.1
"""Of a call beside its episode, and of the learner's part of an iteration: assumed."""


def noise(
    differences: NDArray[np.float64], directions: NDArray[np.float64], std: float
) -> GradientNoise | None:
    """Return unbiased estimates of T and G^2; None with fewer than two directions.

    Args:
        differences: r+ - r- of each direction # [N].
        directions: Standard normal numbers # [N, n].
        std: Nu, standard deviation of the perturbation.
    """
    gradients = differences[:, None] * directions / (2 * std)
    small = float(np.square(gradients).sum(axis=1).mean())
    big = float(np.square(gradients.mean(axis=0)).sum())
    return noise_of_norms(small, big, count=len(differences))


@dataclass(slots=True)
class Average:
    """Averages T and G^2 over iterations before it divides them."""

    variance: float = 0.0
    squared_norm: float = 0.0

    def including(self, found: GradientNoise | None) -> float | None:
        """Return the noise scale with another iteration; None if it is infinite or unknown."""
        if found is not None:
            self.variance += (1 - _KEPT) * (found.variance - self.variance)
            self.squared_norm += (1 - _KEPT) * (found.squared_norm - self.squared_norm)
        return self.variance / self.squared_norm if self.squared_norm > 0 else None


class Player:
    """A policy and an environment.

    Args:
        env_id: Of the environment.
        rule: Its hyper-parameters; the number of directions changes.
        seed: Of directions and episodes.
    """

    def __init__(self, env_id: str, rule: ArsHyperparameters, *, seed: int) -> None:
        ref = EnvironmentRef(env_id=env_id)
        self._about, self._env, self._seed = describe(ref), make_environment(ref), seed
        self._ars, self._rule = Ars(self._about, rule, seed=seed), rule
        self._iteration = 0
        basis = replace(cost_basis(NitroConfig()), provisioned=0)
        self._basis = basis.with_learner("cpu")

    def iterate(self, number: int, scale: Average) -> tuple[RoundOutcome, float | None]:
        """Take a step with so many directions; return it and the noise scale after it."""
        rule = self._rule.model_copy(update={"directions": number})
        ars = Ars(self._about, rule, seed=self._seed)
        ars.load_state(*self._ars.state())
        policy = load_policy(*ars.policy_payload())
        weights = flat_weights(policy.spec, policy.arrays)
        chosen = np.stack(
            [direction(self._seed, self._iteration, i, weights.size) for i in range(number)]
        )
        moves = rule.exploration_std * np.concatenate([chosen, -chosen])
        episodes = [
            _episode(
                policy.with_weights(shaped_weights(policy.spec, weights + move)),
                self._env,
                seed=self._iteration * 1000 + i % number,
            )
            for i, move in enumerate(moves)
        ]
        sums = _sums(episodes, self._iteration, moments=rule.observation_normalisation)
        learn_round(ars, [sums])
        self._ars, self._iteration = ars, self._iteration + 1
        lengths = sums.episode_lengths
        ways = (sums.episode_returns - rule.reward_offset * lengths).reshape(2, -1)
        found = scale.including(noise(ways[0] - ways[1], chosen, rule.exploration_std))
        return self._priced([len(seen) for seen, _ in episodes], found), found

    def _priced(self, lengths: list[int], found: float | None) -> RoundOutcome:
        """Return an iteration with an actor for each episode, its seconds and dollars on AWS."""
        basis = self._basis
        step_s = _STEP_S / cpu_share(basis.memory_mb)
        durations = tuple(_CALL_S + length * step_s for length in lengths)
        measured = MeasuredRound(
            num_invocations=len(lengths),
            durations_s=durations,
            slowest_sample_s=max(durations),
            slowest_evaluation_s=0.0,
            requests=len(lengths),
            learner_s=_CALL_S,
        )
        seconds = serverless_round_s(measured, basis)
        items = (*held_items(seconds, basis), *execution_items(measured, basis))
        timing = dict.fromkeys(RoundTiming.model_fields, 0.0) | {"total_s": seconds}
        return RoundOutcome(
            num_actors=len(lengths),
            env_steps=sum(lengths),
            score=found,
            ratio=None,
            cost_usd=sum(item.amount_usd for item in items),
            launch_s=None,
            timing=RoundTiming(**timing),
        )

    def evaluate(self) -> float:
        """Return the mean return of a few episodes, the same ones every time."""
        policy = load_policy(*self._ars.policy_payload())
        played = [_episode(policy, self._env, seed=10**6 + i) for i in range(_EPISODES)]
        return float(np.mean([total for _, total in played]))


def _episode(policy: NumpyPolicy, env: Env, *, seed: int) -> tuple[NDArray[np.float32], float]:
    """Return what a whole episode observed # [T, F], and its return."""
    observation, _ = env.reset(seed=seed)
    act = policy.modes(1, policy.new_state(1))
    seen, total, ended = list[NDArray[np.float32]](), 0.0, False
    while not ended:
        row = np.asarray(observation, np.float32)
        seen.append(row)
        observation, reward, terminated, truncated, _ = env.step(act(row[None])[0])
        total += float(reward)
        ended = bool(terminated or truncated)
    return np.stack(seen), total


def _sums(
    episodes: list[tuple[NDArray[np.float32], float]], iteration: int, *, moments: bool
) -> EpisodeSums:
    exact = [seen.astype(np.float64)[:, : None if moments else 0] for seen, _ in episodes]
    return EpisodeSums(
        job_id="population",
        round=iteration,
        actor_index=0,
        policy_version=iteration,
        dropped_episodes=0,
        episode=np.arange(len(episodes)),
        episode_returns=np.array([total for _, total in episodes]),
        episode_lengths=np.array([len(seen) for seen, _ in episodes], np.int32),
        observation_mean=np.stack([rows.mean(axis=0) for rows in exact]),
        observation_m2=np.stack(
            [np.square(rows - rows.mean(axis=0)).sum(axis=0) for rows in exact]
        ),
    )
