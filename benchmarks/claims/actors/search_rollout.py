"""Iterations of ARS on one core, beside a bare loop of the same work and other libraries.

An iteration has one direction, so two episodes of 1,000 steps each, and its update. It is the first
of a job every time. The bare loop plays the same two episodes with Gymnasium's environment and a
matrix, as one would write it, and does nothing else: no sums of observations, no checks that
numbers are finite, no update. With other episodes it would not be the same work: the simulator's
time for a step depends on the movement.

SB3-Contrib has ARS, too. evotorch has PGPE: its episodes have as many steps, and it updates a
deviation besides. Where evotorch cannot be installed, it is left out.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack

import gymnasium
import numpy as np

from benchmarks.claims.actors.actor_rollout import steps_series
from benchmarks.measurement import Effort, interleaved, seconds
from benchmarks.peers.interpreters import EVOTORCH, if_installable, stable_baselines3
from benchmarks.records.result import Row, Series, Target
from functions.actor.search import search_episodes
from learning.algorithms.algorithm import learn_round
from learning.algorithms.ars import Ars
from learning.algorithms.policy_update import PolicyUpdate
from nitro.spec.starting_job import starting_job
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask, SearchTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ars import ArsHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.directions import direction
from shared.trajectory.seeds import actor_seed

TITLE = "Iterations of ARS on one core"
_ENV = EnvironmentRef(env_id="HalfCheetah-v5")
_EPISODE_STEPS = 1000
_STEPS = 2 * _EPISODE_STEPS
_LEAST_SHARE, _TIMES_LIBRARY = 0.8, 2.0


def measure(effort: Effort) -> list[Row]:
    """Measure all of them in turn."""
    ours, bare = iterating(), bare_loop()
    libraries = {"sb3-contrib": stable_baselines3("ars", _ENV.env_id)}
    libraries |= if_installable(EVOTORCH, _ENV.env_id)
    with ExitStack() as stack:
        peers = {name: stack.enter_context(peer) for name, peer in libraries.items()}
        samples = interleaved(
            {
                "nitro": lambda: _STEPS / seconds(ours),
                "loop": lambda: _STEPS / seconds(bare),
                **{name: peer.rate for name, peer in peers.items()},
            },
            repeats=effort.of(15),
        )
    nitro = steps_series("nitro", samples["nitro"])

    def row(name: str, peer: Series, least: float) -> Row:
        target = Target(of="ratio", bound="at_least", value=least)
        what = f"{_ENV.env_id}: iterations beside {name}"
        return Row(what=what, ours=nitro, peer=peer, target=target)

    rows = [row("a bare loop", steps_series("loop", samples["loop"]), _LEAST_SHARE)]
    for name, peer in peers.items():
        series = steps_series(f"{name} {peer.about[name]}", samples[name], peer.about)
        rows.append(row(name, series, _TIMES_LIBRARY))
    return rows


def iterating() -> Callable[[], PolicyUpdate]:
    """Return a function that plays a job's first iteration and learns from it."""
    environment, rule, env = describe(_ENV), _rule(), make_environment(_ENV)
    search = SearchTask(
        seed=0,
        directions=1,
        parts=1,
        exploration_std=rule.exploration_std,
        moments=rule.observation_normalisation,
        longest=_EPISODE_STEPS,
    )
    task = RolloutTask(
        mode="sample",
        job_id="benchmark",
        round=0,
        attempt=0,
        actor_index=0,
        policy_version=0,
        env=_ENV,
        steps=_STEPS,
        search=search,
        seed=0,
    )

    def iterate() -> PolicyUpdate:
        ars = Ars(environment, rule, seed=0)
        sums = search_episodes(task, search, 0, env, load_policy(*ars.policy_payload()))
        return learn_round(ars, [sums])

    return iterate


def _rule() -> ArsHyperparameters:
    given = starting_job(_ENV.env_id, "ars").hyperparameters
    return ArsHyperparameters.model_validate({**given, "directions": 1, "top_directions": 1})


def bare_loop() -> Callable[[], float]:
    """Return a function that plays the same two episodes; it returns the sum of their returns."""
    env = gymnasium.make(_ENV.env_id)
    assert env.observation_space.shape is not None
    assert env.action_space.shape is not None
    shape = (*env.action_space.shape, *env.observation_space.shape)
    mean, scale = np.zeros(shape[1]), np.ones(shape[1])
    weights = _rule().exploration_std * direction(0, 0, 0, math.prod(shape)).reshape(shape)
    seed = actor_seed(0, mode="search", round_index=0, actor_index=0)

    def play() -> float:
        total = 0.0
        for moved in (weights, -weights):
            observation, _ = env.reset(seed=seed)
            over = False
            while not over:
                action = np.clip(moved @ ((observation - mean) * scale), -1.0, 1.0)
                observation, reward, terminated, truncated, _ = env.step(action)
                total += float(reward)
                over = terminated or truncated
        return total

    return play
