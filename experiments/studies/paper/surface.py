"""Reward surfaces along the two leading eigenvectors of the surrogate's Hessian (Figures 3 and 8).

A policy is trained in this process for ten rounds of one actor. The policies with the lowest, the
median and the highest ratio R (Figure 8), and the one with the lowest again with the samples of 8
and 16 actors (Figure 3), are moved by -1 to 1 along the two eigenvectors of unit length whose
eigenvalues are largest in size, and evaluated at every point of that grid with the same episodes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat

from benchmarks.environment import describe_environment
from experiments.experiment import Done, Experiment
from experiments.grid import HOPPER, Cell, Grid, Scale
from experiments.outcome import Outcome
from experiments.reporting.findings import Claim, Findings, Surface, Table
from experiments.reporting.statistics import FEWEST_RUNS, Interval, interval, verdict
from experiments.studies.paper.sampled_surrogate import SampledSurrogate
from functions.actor.rollout import evaluate_episode, sample_fragment
from learning.algorithms.ppo import Ppo
from learning.cpu.torch_settings import configure_torch
from learning.data.batch_building import on_policy_batch
from learning.detectors.hessian import HessianDetector
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.message import Count, Message, PositiveInt
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.seeds import actor_seed

_STEPS = 256
Place = Literal["lowest", "median", "highest"]
_CONDITIONS: dict[str, tuple[Place, int]] = {
    "lowest R": ("lowest", 1),
    "median R": ("median", 1),
    "highest R": ("highest", 1),
    "lowest R, 8 actors": ("lowest", 8),
    "lowest R, 16 actors": ("lowest", 16),
}
"""Which policy, and how many actors' samples make its Hessian."""


class SurfaceTask(Message):
    """One surface."""

    place: Place
    actors: PositiveInt
    seed: Count
    rounds: PositiveInt
    points: PositiveInt
    """Along one side."""
    episodes: PositiveInt
    epochs: PositiveInt


class SurfaceOutcome(Outcome):
    """Returns around one policy."""

    round: Count
    """Updates behind the policy."""
    ratio: FiniteFloat
    eigenvalues: tuple[FiniteFloat, FiniteFloat]
    axis: tuple[FiniteFloat, ...]
    returns: tuple[tuple[FiniteFloat, ...], ...]
    centre: FiniteFloat
    """Return of the policy itself."""

    @property
    def higher_share(self) -> float:
        """Share of the surface above the policy's own return."""
        values = [value for row in self.returns for value in row]
        return fmean(value > self.centre for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOnTheWay:
    """A policy on the way, with its ratio."""

    updates: int
    ratio: float
    arrays: dict[str, NDArray[np.float32]]
    metadata: dict[str, str]
    algorithm: Ppo
    """Restored to this policy."""


def plan(scale: Scale, _done: Done) -> Grid:
    """Every surface of every seed."""
    grid = Grid()
    for seed in range(scale.seeds):
        for name, (place, actors) in _CONDITIONS.items():
            task = SurfaceTask(
                place=place,
                actors=actors,
                seed=seed,
                rounds=scale.of(10, 4),
                points=scale.of(30, 5),
                episodes=scale.of(3, 1),
                epochs=scale.of(30, 2),
            )
            grid.add(name, HOPPER, seed, task)
    return grid


def work(cell: Cell) -> SurfaceOutcome:
    """Train, find the directions, walk the grid."""
    task = cell.task
    if not isinstance(task, SurfaceTask):
        raise TypeError(f"{cell.id} is no surface")
    configure_torch()
    with warnings.catch_warnings():
        # Gymnasium would rather have version 5; ours is meant.
        warnings.simplefilter("ignore", DeprecationWarning)
        return _surface(cell, task)


def _surface(cell: Cell, task: SurfaceTask) -> SurfaceOutcome:
    ref = EnvironmentRef(env_id=cell.id.env_id)
    policy = _chosen(trained(task, ref), task.place)
    values, vectors = surrogate(task, ref, policy).leading_eigenvectors()
    axis = np.linspace(-1.0, 1.0, task.points) if task.points > 1 else np.zeros(1)
    episodes = _Episodes(task, ref, policy)
    return SurfaceOutcome(
        round=policy.updates,
        ratio=policy.ratio,
        eigenvalues=(float(values[0]), float(values[1])),
        axis=tuple(axis.tolist()),
        returns=tuple(
            tuple(episodes.mean_return(a * vectors[:, 0] + b * vectors[:, 1]) for a in axis)
            for b in axis
        ),
        centre=episodes.mean_return(np.zeros(len(vectors))),
        environment=describe_environment(),
    )


def _task_of(task: SurfaceTask, ref: EnvironmentRef, index: int, actor: int) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id="surface",
        round=index,
        attempt=0,
        actor_index=actor,
        policy_version=index,
        env=ref,
        steps=_STEPS,
        seed=actor_seed(task.seed, mode="sample", round_index=index, actor_index=actor),
    )


def trained(task: SurfaceTask, ref: EnvironmentRef) -> list[PolicyOnTheWay]:
    """Return the policy after each update that has a ratio."""
    env = make_environment(ref)
    detector, found = HessianDetector(DetectorRule()), []
    hyperparameters = PpoHyperparameters(num_epochs=task.epochs)
    algorithm = Ppo(describe(ref), hyperparameters, seed=task.seed)
    for index in range(task.rounds):
        policy = load_policy(*algorithm.policy_payload())
        algorithm.learn([sample_fragment(_task_of(task, ref, index, 0), [env], policy)])
        samples = algorithm.samples()
        curvature = None if samples is None else detector.measure(algorithm.network, samples)
        if curvature is not None and curvature.lambda_min < 0:
            snapshot = Ppo(describe(ref), hyperparameters, seed=task.seed)
            snapshot.network.load_state_dict(algorithm.network.state_dict())
            arrays, metadata = algorithm.policy_payload()
            found.append(
                PolicyOnTheWay(
                    updates=index + 1,
                    ratio=-curvature.lambda_max / curvature.lambda_min,
                    arrays=arrays,
                    metadata=metadata,
                    algorithm=snapshot,
                )
            )
    env.close()
    return found


def _chosen(policies: Sequence[PolicyOnTheWay], place: Place) -> PolicyOnTheWay:
    ordered = sorted(policies, key=lambda policy: policy.ratio)
    if not ordered:
        raise RuntimeError("no round had a convexity ratio")
    return {"lowest": ordered[0], "median": ordered[len(ordered) // 2], "highest": ordered[-1]}[
        place
    ]


def surrogate(task: SurfaceTask, ref: EnvironmentRef, policy: PolicyOnTheWay) -> SampledSurrogate:
    """Return the objective around a policy, over samples nobody was trained on."""
    env, sampler = make_environment(ref), load_policy(policy.arrays, policy.metadata)
    index = task.rounds + policy.updates
    fragments = [
        sample_fragment(_task_of(task, ref, index, actor), [env], sampler)
        for actor in range(task.actors)
    ]
    env.close()
    batch = on_policy_batch(fragments, policy.algorithm.network, discount=0.99, gae_lambda=1.0)
    return SampledSurrogate(batch, tuple(policy.arrays.values()))


class _Episodes:
    """Evaluates the policy with its weights moved."""

    def __init__(self, task: SurfaceTask, ref: EnvironmentRef, policy: PolicyOnTheWay) -> None:
        self._env = make_environment(ref)
        self._policy = policy
        self._tasks = [
            _task_of(task, ref, 0, index).model_copy(
                update={
                    "mode": "evaluate",
                    "seed": actor_seed(
                        task.seed, mode="evaluate", round_index=0, actor_index=index
                    ),
                }
            )
            for index in range(task.episodes)
        ]

    def mean_return(self, move: NDArray[Any]) -> float:
        """Return the mean return after adding `move` # [P] to the weights."""
        arrays, start = {}, 0
        for name, array in self._policy.arrays.items():
            part = move[start : start + array.size].reshape(array.shape)
            arrays[name] = (array + part).astype(np.float32)
            start += array.size
        moved = load_policy(arrays, self._policy.metadata)
        return fmean(evaluate_episode(t, self._env, moved).episode_return for t in self._tasks)


def find(_scale: Scale, done: Done) -> Findings:
    """The first seed's surfaces, and over all seeds how much of them is higher than the policy."""
    seed = min(key.seed for key in done)
    shares = {
        name: interval([o.higher_share for k, o in done.items() if k.condition == name])
        for name in _CONDITIONS
    }
    return Findings(
        panels=tuple(_panel(k.condition, o) for k, o in done.items() if k.seed == seed),
        tables=(
            Table(
                title="Share of the surface above the policy's own return",
                columns=("policy and samples", "seeds", "share"),
                rows=tuple((name, share.runs, str(share)) for name, share in shares.items()),
            ),
        ),
        claims=(
            _claim(
                "Where R is lowest the surface has fewer regions of high reward",
                shares,
                more="highest R",
                less="lowest R",
            ),
            _claim(
                "More samples give the surface more regions of high reward",
                shares,
                more="lowest R, 16 actors",
                less="lowest R",
            ),
        ),
    )


def _claim(paper: str, shares: dict[str, Interval], *, more: str, less: str) -> Claim:
    text = f"share above the policy's own return: {more} {shares[more]}, {less} {shares[less]}"
    return Claim(paper=paper, ours=text, verdict=verdict(shares[more], shares[less]))


def _panel(name: str, outcome: SurfaceOutcome) -> Surface:
    return Surface(
        title=f"{name}: R = {outcome.ratio:.2f}, update {outcome.round}",
        x_label="first eigenvector",
        y_label="second eigenvector",
        z_label="return",
        axis=outcome.axis,
        z=outcome.returns,
    )


EXPERIMENT = Experiment(
    name="surface",
    title="Reward surfaces along two eigenvectors",
    paper="Figures 3 and 8",
    plan=plan,
    find=find,
    seeds=FEWEST_RUNS,
    task=SurfaceTask,
    outcome=SurfaceOutcome,
    work=work,
)
