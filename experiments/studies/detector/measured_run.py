"""A run whose curvature is measured in many ways after every update, in this process."""

import copy
from collections.abc import Iterator, Sequence
from statistics import fmean, median

import torch
from torch import Tensor

from benchmarks.environment import describe_environment
from benchmarks.measurement import progress
from experiments.outcome import Outcome
from functions.actor.rollout import sample_fragment
from learning.algorithms.ppo import Ppo
from learning.cpu.torch_settings import configure_torch
from learning.data.batch_building import on_policy_batch
from learning.detectors.detector import PolicySamples
from learning.detectors.hessian import HessianDetector
from learning.detectors.sample_choice import chosen_samples, evenly_spread
from learning.networks.actor_critic import ActorCritic
from services.scaler.scaling.boosting import boosting_score, convexity_ratio, num_actors
from shared.contracts.detector_rule import DetectorRule, Sampling
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.job_spec import JobSpec
from shared.contracts.message import Message
from shared.contracts.rollouts import RolloutTask
from shared.contracts.rounds import Curvature
from shared.contracts.scaling_spec import NitroScaling
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.columns import Columns
from shared.trajectory.seeds import actor_seed

SPEC = JobSpec()
_SCALING = NitroScaling()
_REFERENCE = DetectorRule(num_samples=10**9, max_matvecs=100, tolerance=1e-3)
_WHOLE = DetectorRule(num_samples=10**9)
_STEPS_ONLY = 1e-9
"""Tolerance that nothing meets: every product allowed is taken."""


class Subsampling(Message):
    """How large one run is."""

    rounds: int
    actors: int
    """Per round."""
    epochs: int
    sizes: tuple[int, ...]
    products: tuple[int, ...]
    draws: int
    """How often samples are taken of one round, by either way of sampling."""


class Detector(Message):
    """One way to measure, and how its decisions compare with the reference's."""

    num_samples: int
    sampling: Sampling
    max_matvecs: int
    converged: bool
    """Stops at the default residual; else it takes every product it is allowed."""
    mean_products: float
    median_ratio_error: float
    """Distance of the ratio R from the reference's, relative to it."""
    changed_share: float
    """Rounds with another number of actors than the reference asks for."""
    mean_change: float
    """Mean distance of the two numbers, in actors."""
    counts: tuple[int, ...]


class Study(Outcome):
    """The findings of one run."""

    rounds: int
    samples_per_round: int
    ratios: tuple[float, ...]
    """Of the reference, round by round."""
    counts: tuple[int, ...]
    spread_of_rounds: float
    """Standard deviation of log R over rounds, of the reference."""
    spread_of_draws: dict[Sampling, float]
    """Standard deviation of log R over draws from one round, averaged over rounds; default size."""
    detectors: tuple[Detector, ...]


Measured = list[Curvature | None]
WAYS: tuple[Sampling, ...] = ("proportional", "even")


def run(scale: Subsampling, *, seed: int) -> Study:
    """Train, measure in every way, and compare the decisions."""
    configure_torch()
    environment = describe_environment()
    rules = _rules(scale)
    reference: Measured = []
    measured: list[Measured] = [[] for _ in rules]
    spreads: dict[Sampling, list[float]] = {sampling: [] for sampling in WAYS}
    for index, (network, batch) in enumerate(_training(scale, seed)):
        progress(f"round {index + 1} of {scale.rounds}")
        reference.append(_measured(network, batch, _REFERENCE))
        for rule, found in zip(rules, measured, strict=True):
            found.append(_measured(network, batch, rule))
        for sampling, found_spreads in spreads.items():
            parts = [_drawn(network, batch, sampling, i, scale.draws) for i in range(scale.draws)]
            found_again = [_measured(network, part, _WHOLE) for part in parts]
            found_spreads.append(_log_spread(_ratios(found_again)))
    return Study(
        environment=environment,
        rounds=scale.rounds,
        samples_per_round=scale.actors * SPEC.steps_per_actor,
        ratios=tuple(_ratios(reference)),
        counts=decided(reference),
        spread_of_rounds=_log_spread(_ratios(reference)),
        spread_of_draws={sampling: fmean(found) for sampling, found in spreads.items()},
        detectors=tuple(
            _compared(rule, found, reference) for rule, found in zip(rules, measured, strict=True)
        ),
    )


def _measured(network: ActorCritic, batch: Columns[Tensor], rule: DetectorRule) -> Curvature | None:
    return HessianDetector(rule).measure(network, PolicySamples(batch=batch))


def _rules(scale: Subsampling) -> list[DetectorRule]:
    """Return every size at the default residual, and every size with each number of products."""
    return [
        *(
            DetectorRule(num_samples=size, sampling=sampling)
            for sampling in WAYS
            for size in scale.sizes
        ),
        *(
            DetectorRule(num_samples=size, max_matvecs=products, tolerance=_STEPS_ONLY)
            for size in scale.sizes
            for products in scale.products
        ),
    ]


def _training(scale: Subsampling, seed: int) -> Iterator[tuple[ActorCritic, Columns[Tensor]]]:
    """Yield each round's updated policy and the batch it was updated on."""
    ref = EnvironmentRef(env_id=SPEC.env_id)
    environment, env = describe(ref), make_environment(ref)
    rule = PpoHyperparameters(num_epochs=scale.epochs)
    algorithm = Ppo(environment, rule, seed=seed)
    for index in range(scale.rounds):
        policy = load_policy(*algorithm.policy_payload())
        tasks = [_task(ref, seed, index, actor) for actor in range(scale.actors)]
        trajectories = [sample_fragment(task, [env], policy) for task in tasks]
        batch = on_policy_batch(
            trajectories, algorithm.network, discount=rule.discount, gae_lambda=rule.gae_lambda
        )
        algorithm.learn(trajectories)
        yield copy.deepcopy(algorithm.network), batch


def _task(ref: EnvironmentRef, seed: int, round_index: int, actor_index: int) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id="detector-subsampling",
        round=round_index,
        attempt=0,
        actor_index=actor_index,
        policy_version=round_index,
        env=ref,
        steps=SPEC.steps_per_actor,
        seed=actor_seed(seed, mode="sample", round_index=round_index, actor_index=actor_index),
    )


def _drawn(
    network: ActorCritic, batch: Columns[Tensor], sampling: Sampling, index: int, count: int
) -> Columns[Tensor]:
    """Return as many samples of a round as the default takes: one of `count` such draws."""
    rule = DetectorRule(sampling=sampling)
    if sampling == "even":
        stride = batch.num_samples / rule.num_samples
        first = int(stride * index / count)  # the same stride from elsewhere
        indices = (evenly_spread(batch.num_samples, rule.num_samples) + first) % batch.num_samples
        weights = torch.ones(len(indices))
    else:
        start = (index + 0.5) / count
        indices, weights = chosen_samples(batch, rule, network.distribution, start=start)
    return batch.replaced(
        observation=batch.observation[indices],
        action=batch.action[indices],
        advantage=batch.advantage[indices] * weights,
        outputs=batch.outputs[indices],
    ).of_trajectories(1)


def decided(found: Measured) -> tuple[int, ...]:
    """Return the actors the scaling policy asks for, round by round, at the paper's settings."""
    counts: list[int] = []
    earlier: list[float] = []
    for index, curvature in enumerate(found):
        current = convexity_ratio(curvature)
        score = boosting_score(
            earlier, current, round_index=index, window=_SCALING.window, decay=_SCALING.decay
        )
        counts.append(num_actors(score.score, minimum=SPEC.actors.min, maximum=SPEC.actors.max))
        if current.value is not None:
            earlier.append(current.value)
    return tuple(counts)


def _compared(rule: DetectorRule, found: Measured, reference: Measured) -> Detector:
    ours, theirs = decided(found), decided(reference)
    known = [curvature for curvature in found if curvature is not None]
    pairs = zip(_values(found), _values(reference), strict=True)
    errors = [abs(a - b) / b for a, b in pairs if a is not None and b]
    changes = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    return Detector(
        num_samples=rule.num_samples,
        sampling=rule.sampling,
        max_matvecs=rule.max_matvecs,
        converged=rule.tolerance > _STEPS_ONLY,
        mean_products=fmean(curvature.matvecs for curvature in known),
        median_ratio_error=median(errors),
        changed_share=fmean(change > 0 for change in changes),
        mean_change=fmean(changes),
        counts=ours,
    )


def _values(found: Measured) -> list[float | None]:
    return [convexity_ratio(curvature).value for curvature in found]


def _ratios(found: Measured) -> list[float]:
    return [value for value in _values(found) if value is not None]


def _log_spread(ratios: Sequence[float]) -> float:
    if len(ratios) < 2:
        return 0.0
    return float(torch.tensor(ratios, dtype=torch.float64).log().std())
