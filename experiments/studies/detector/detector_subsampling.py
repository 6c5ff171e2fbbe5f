"""How often measuring curvature on fewer samples, or with fewer products, changes a decision.

    python -m experiments.studies.detector.detector_subsampling [--quick] [--out DIR]

A real Hopper run is trained in this process, and after every update the curvature of the same
policy is measured in many ways: on more or fewer samples, with more or fewer Lanczos products. Each
way is a detector of its own, whose ratios go through the scaling policy as they would in a job. The
reference measures all samples with a residual of 0.1 %. Samples are drawn in proportion to their
part of the Hessian, as by default, or spread evenly. Taken again from the same round they are other
samples: how much of a ratio is chance.
"""

import argparse
import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.environment import Environment, describe_environment
from benchmarks.measurement import progress
from functions.actor.rollout import sample_fragment
from learning.algorithms.ppo import Ppo
from learning.cpu.torch_settings import configure_torch
from learning.data.batch_building import on_policy_batch
from learning.detectors.detector import PolicySamples
from learning.detectors.hessian import HessianDetector
from learning.detectors.sample_choice import chosen_samples, evenly_spread
from learning.networks.actor_critic import ActorCritic
from services.scaler.scaling.boosting import boosting_score, convexity_ratio, num_actors
from shared.contracts.job_spec import DetectorRule, EnvironmentRef, JobSpec, Sampling
from shared.contracts.message import Message
from shared.contracts.rollouts import RolloutTask
from shared.contracts.rounds import Curvature
from shared.contracts.scaling_spec import NitroScaling
from shared.environments.building import describe, make_environment
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.columns import Columns
from shared.trajectory.seeds import actor_seed

NAME = "detector_subsampling"
_RESULTS = Path(__file__).parents[2] / "results"
_SPEC = JobSpec()
_SCALING = NitroScaling()
_REFERENCE = DetectorRule(num_samples=10**9, max_matvecs=100, tolerance=1e-3)
_WHOLE = DetectorRule(num_samples=10**9)
_STEPS_ONLY = 1e-9
"""Tolerance that nothing meets: every product allowed is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large the study is."""

    rounds: int
    actors: int
    """Per round."""
    epochs: int
    sizes: tuple[int, ...]
    products: tuple[int, ...]
    draws: int
    """How often samples are taken of one round, by either way of sampling."""


FULL = Scale(
    rounds=20,
    actors=16,
    epochs=30,
    sizes=(64, 128, 256, 512, 1024, 2048, 4096),
    products=(3, 4, 6, 8, 12, 20),
    draws=4,
)
QUICK = Scale(rounds=3, actors=4, epochs=2, sizes=(64, 256, 1024), products=(3, 6), draws=2)


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


class Study(Message):
    """What was found, with what is needed to judge and to repeat it."""

    name: str
    command: str
    environment: Environment
    rounds: int
    samples_per_round: int
    seed: int
    ratios: tuple[float, ...]
    """Of the reference, round by round."""
    counts: tuple[int, ...]
    spread_of_rounds: float
    """Standard deviation of log R over rounds, of the reference."""
    spread_of_draws: dict[Sampling, float]
    """Standard deviation of log R over draws from one round, averaged over rounds; default size."""
    detectors: tuple[Detector, ...]


Measured = list[Curvature | None]
_WAYS: tuple[Sampling, ...] = ("proportional", "even")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, write its JSON and its picture."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.studies.detector.{NAME}",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--quick", action="store_true", help="three rounds; shows that it runs")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder of JSON and picture")
    options = parser.parse_args(arguments)
    study = run(QUICK if options.quick else FULL, quick=options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{NAME}.json"
    path.write_text(study.model_dump_json(indent=1) + "\n", encoding="utf-8")
    draw(study, path.with_suffix(".png"))
    progress(f"saved {path}")
    return 0


def run(scale: Scale, *, quick: bool = False) -> Study:
    """Train, measure in every way, and compare the decisions."""
    configure_torch()
    environment = describe_environment()
    rules = _rules(scale)
    reference: Measured = []
    measured: list[Measured] = [[] for _ in rules]
    spreads: dict[Sampling, list[float]] = {sampling: [] for sampling in _WAYS}
    for index, (network, batch) in enumerate(_training(scale)):
        progress(f"round {index + 1} of {scale.rounds}")
        reference.append(_measured(network, batch, _REFERENCE))
        for rule, found in zip(rules, measured, strict=True):
            found.append(_measured(network, batch, rule))
        for sampling, found_spreads in spreads.items():
            parts = [_drawn(network, batch, sampling, i, scale.draws) for i in range(scale.draws)]
            found_again = [_measured(network, part, _WHOLE) for part in parts]
            found_spreads.append(_log_spread(_ratios(found_again)))
    return Study(
        name=NAME,
        command=f"python -m experiments.studies.detector.{NAME}" + (" --quick" if quick else ""),
        environment=environment,
        rounds=scale.rounds,
        samples_per_round=scale.actors * _SPEC.steps_per_actor,
        seed=_SPEC.seed,
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


def _rules(scale: Scale) -> list[DetectorRule]:
    """Return every size at the default residual, and every size with each number of products."""
    return [
        *(
            DetectorRule(num_samples=size, sampling=sampling)
            for sampling in _WAYS
            for size in scale.sizes
        ),
        *(
            DetectorRule(num_samples=size, max_matvecs=products, tolerance=_STEPS_ONLY)
            for size in scale.sizes
            for products in scale.products
        ),
    ]


def _training(scale: Scale) -> Iterator[tuple[ActorCritic, Columns[Tensor]]]:
    """Yield each round's updated policy and the batch it was updated on."""
    ref = EnvironmentRef(env_id=_SPEC.env_id)
    environment, env = describe(ref), make_environment(ref)
    rule = PpoHyperparameters(num_epochs=scale.epochs)
    algorithm = Ppo(environment, rule, seed=_SPEC.seed)
    for index in range(scale.rounds):
        policy = load_policy(*algorithm.policy_payload())
        tasks = [_task(ref, index, actor) for actor in range(scale.actors)]
        trajectories = [sample_fragment(task, [env], policy) for task in tasks]
        batch = on_policy_batch(
            trajectories, algorithm.network, discount=rule.discount, gae_lambda=rule.gae_lambda
        )
        algorithm.learn(trajectories)
        yield copy.deepcopy(algorithm.network), batch


def _task(ref: EnvironmentRef, round_index: int, actor_index: int) -> RolloutTask:
    return RolloutTask(
        mode="sample",
        job_id=NAME.replace("_", "-"),
        round=round_index,
        attempt=0,
        actor_index=actor_index,
        policy_version=round_index,
        env=ref,
        steps=_SPEC.steps_per_actor,
        seed=actor_seed(
            _SPEC.seed, mode="sample", round_index=round_index, actor_index=actor_index
        ),
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
        counts.append(num_actors(score.score, minimum=_SPEC.actors.min, maximum=_SPEC.actors.max))
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


def draw(study: Study, path: Path) -> None:
    """Draw a study: what a decision changes by, over samples and over products."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    _over_sizes(left, study, lambda d: 100 * d.median_ratio_error, "median error of R (%)")
    _over_sizes(middle, study, lambda d: d.mean_change, "mean change (actors)")
    right.plot(study.counts, color="#222222", label="all samples, 0.1 %")
    default = _converged(study, DetectorRule().num_samples)
    if default is not None:
        right.plot(default.counts, color="#d9762b", label=f"{default.num_samples} samples, 1 %")
    right.set(xlabel="round", ylabel="actors")
    right.legend(frameon=False)
    figure.suptitle(
        f"Sub-sampling the detector: {study.rounds} rounds of Hopper, "
        f"{study.samples_per_round} samples each"
    )
    figure.savefig(path, dpi=120)


def _over_sizes(panel: Axes, study: Study, value: Callable[[Detector], float], label: str) -> None:
    for products in sorted({d.max_matvecs for d in study.detectors if not d.converged}):
        some = [d for d in study.detectors if not d.converged and d.max_matvecs == products]
        panel.plot([d.num_samples for d in some], [value(d) for d in some], label=f"{products}")
    for sampling, style in zip(_WAYS, ("-", "--"), strict=True):
        rest = [d for d in study.detectors if d.converged and d.sampling == sampling]
        label_of = "to 1 %" if sampling == "proportional" else "to 1 %, even"
        panel.plot(
            [d.num_samples for d in rest],
            [value(d) for d in rest],
            color="#222222",
            linestyle=style,
            label=label_of,
        )
    panel.set(xscale="log", xlabel="samples", ylabel=label)
    sizes = sorted({d.num_samples for d in study.detectors})
    panel.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
    panel.set_xticks([], minor=True)
    panel.legend(title="products", frameon=False, fontsize=8)


def _converged(study: Study, num_samples: int) -> Detector | None:
    for detector in study.detectors:  # those drawn in proportion come first
        if detector.converged and detector.num_samples == num_samples:
            return detector
    return None


if __name__ == "__main__":
    sys.exit(main())
