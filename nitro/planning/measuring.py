"""Measuring a job on this machine: its environment, and an update of its network.

It times a real rollout and a real update, on samples of an untrained policy. Slow environments are
sampled for a few seconds, and the samples are repeated to fill a round.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeVar

import torch

from functions.actor.errors import RolloutError
from functions.actor.rollout import sample_fragment
from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.network_steps import NetworkSteps
from learning.algorithms.registry import build_algorithm
from learning.cpu.second_process import SecondProcess, second_process
from learning.cpu.torch_settings import configure_torch
from learning.detectors.detector import Detector
from learning.detectors.registry import build_detector
from nitro.errors import EXIT_FAILED, CommandError
from nitro.planning.workload import Workload
from nitro.spec.fit import require_fit
from shared.contracts.going_on import longest_episode, with_agents
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, resolve_for
from shared.contracts.rollouts import RolloutTask
from shared.environments.agents import agents_of
from shared.environments.building import Env, make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from shared.hyperparameters.replay import ReplayHyperparameters
from shared.policy.numpy_policy import NumpyPolicy, halved, load_policy
from shared.trajectory import codec
from shared.trajectory.trajectory import Trajectory, encode_trajectory

T = TypeVar("T")

Clock = Callable[[], float]
"""Wall time, or CPU time of this process (`time.process_time`). CPU time is independent of other
load, and excludes a simulator's waiting.
"""

_SAMPLING_S = 3.0
"""Duration of sampling."""
_UPDATING_S = 6.0
"""Longest update to time as a whole; a longer one is timed in part."""
_FEW_SAMPLES = 128
_MOST_STEPS = 256
"""Steps of a timed fragment."""
_REPEATS = 5
REQUEST_S = 0.002
"""An actor's request, cache access and answer, as in recorded runs."""
CHECKPOINT_S = 0.008
"""Writing record and checkpoint, as in recorded runs."""
_UNLIMITED_STEPS = 1000
"""Steps of an evaluation episode if the environment has no limit."""
GPU_TIMES_A_CORE = {False: (6.7, 2.7), True: (24.3, 5.7)}
"""Speed-up of a GPU over one core for updates and measurements, without and with images: from
`benchmarks/results/gpu.json`.
"""
_SAME_ON_A_GPU = (1.0, 1.0)
"""For SAC and CrossQ, whose learner always computes on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The result of sampling; in wall time."""

    step_s: float
    computing: float
    reset_s: float
    call_s: float
    bytes_per_sample: float
    policy_bytes: float
    trajectories: Sequence[Trajectory]


def measure(spec: JobSpec, *, total_steps: int) -> Workload:
    """Measure a job here, in at most some twenty seconds.

    Args:
        spec: The job; its rounds have a fixed number of actors or of samples.
        total_steps: Its environment steps.

    Raises:
        CommandError: Its environment cannot be built, or fails.
    """
    with ExitStack() as leaving:
        # Like the learner: before this process has any threads.
        configure_torch()
        forked = second_process(torch.device("cpu"))
        if forked is not None:
            leaving.callback(forked.close)
        job = queued(spec)
        spec = job.spec
        try:
            sampled = sample(job)
        except (UnsupportedEnvironment, RolloutError) as error:
            raise CommandError(f"{spec.env_id}: {error}", exit_code=EXIT_FAILED) from error
        environment = job.described_environment
        images = environment.observation.has_images
        rule = resolve_for(spec, environment)
        samples = samples_per_round(spec)
        taken = alone = learner_s(job, sampled.trajectories, samples, forked)
        replays = isinstance(rule, ReplayHyperparameters)
        if not (forked is None or images or replays):  # GPU times are estimated from one core's
            alone = learner_s(job, sampled.trajectories, samples, None)
        faster = _SAME_ON_A_GPU if replays else GPU_TIMES_A_CORE[images]
        on_gpu = sum(s / times for s, times in zip(alone, faster, strict=True))
        return Workload(
            env_id=spec.env_id,
            images=images,
            total_steps=total_steps,
            samples_per_round=samples,
            envs_per_actor=spec.envs_per_actor,
            evaluate_every=spec.evaluation.every_rounds,
            evaluation_episodes=spec.evaluation.episodes,
            episode_steps=environment.max_episode_steps or _UNLIMITED_STEPS,
            step_s=sampled.step_s,
            computing=sampled.computing,
            reset_s=sampled.reset_s,
            call_s=sampled.call_s,
            replay_s=_replay_s(job, sampled.step_s),
            update_s=sum(taken) + CHECKPOINT_S,
            gpu_update_s=on_gpu + CHECKPOINT_S,
            bytes_per_sample=sampled.bytes_per_sample,
            policy_bytes=sampled.policy_bytes,
            open_rounds=spec.open_rounds,
            warm_up_steps=rule.learning_starts if isinstance(rule, ReplayHyperparameters) else 0,
        )


def _replay_s(job: Job, step_s: float) -> float:
    """Return an actor's repeated steps, at half of the longest episode."""
    limit = longest_episode(job.spec, job.described_environment)
    longest = min(job.replay_steps, limit or job.replay_steps)
    return longest / 2 * job.spec.envs_per_actor * step_s


def samples_per_round(spec: JobSpec) -> int:
    """Return the steps of a job's rounds, summed over actors."""
    return spec.actors.max * spec.steps_of(spec.actors.max)


def queued(spec: JobSpec) -> Job:
    """Return the job as it would be queued, without initial steps that skip updates.

    Raises:
        CommandError: Its environment cannot be built, or the job cannot learn it.
    """
    spec = spec.resolved()
    try:
        environment = describe(spec.environment_ref)
    except UnsupportedEnvironment as error:
        raise CommandError(str(error)) from error
    spec = with_agents(spec, environment)
    require_fit(spec, environment, here=False)
    rule = resolve_for(spec, environment)
    if isinstance(rule, ReplayHyperparameters):
        rule = rule.model_copy(update={"learning_starts": 0})
    return Job(
        job_id="plan",
        spec=spec,
        environment=environment,
        status="queued",
        created_at=0.0,
        full_hyperparameters=rule.model_dump(),
    )


def sample(job: Job, *, clock: Clock = time.perf_counter) -> Sampled:
    """Sample a job's environment for a few seconds, with an untrained policy.

    Raises:
        UnsupportedEnvironment: It cannot be built.
        RolloutError: It fails.
    """
    spec = job.spec
    arrays, metadata = build_algorithm(job, device=torch.device("cpu")).policy_payload()
    halves = spec.policy_precision == "float16"
    payload = codec.encode(halved(arrays) if halves else arrays, metadata)
    decoding_s, policy = _timed(lambda: _decoded(payload), clock)
    envs = list[Env]()
    while len(envs) < spec.envs_per_actor:
        envs += agents_of(make_environment(spec.environment_ref))
    try:
        reset_s = fmean(
            _timed(lambda seed=seed: envs[0].reset(seed=seed), clock)[0]  # type: ignore[misc]
            for seed in range(_REPEATS)
        )
        first = _fragment(job, envs, policy, steps=spec.envs_per_actor)
        short_s, _ = min(
            (
                _timed(lambda: _fragment(job, envs, policy, steps=len(envs), after=first), clock)
                for _ in range(_REPEATS)
            ),
            key=lambda timed: timed[0],
        )
        began_s, computed_s = time.perf_counter(), time.process_time()
        step_s, trajectories = _fragments(job, envs, policy, first, begin_s=short_s, clock=clock)
        computed_s = time.process_time() - computed_s
        computing = computed_s / (time.perf_counter() - began_s)
    finally:
        for env in envs:
            env.close()
    encoding_s, encoded = _timed(lambda: encode_trajectory(trajectories[-1]), clock)
    beginning_s = max(0.0, short_s - spec.envs_per_actor * step_s)
    return Sampled(
        step_s=step_s,
        computing=computing,
        reset_s=reset_s,
        call_s=decoding_s + beginning_s + encoding_s + REQUEST_S,
        bytes_per_sample=len(encoded) / trajectories[-1].num_steps,
        policy_bytes=float(len(payload)),
        trajectories=trajectories,
    )


def _fragments(
    job: Job,
    envs: Sequence[Env],
    policy: NumpyPolicy,
    first: Trajectory,
    *,
    begin_s: float,
    clock: Clock,
) -> tuple[float, Sequence[Trajectory]]:
    """Sample for a few seconds; return the seconds of a step, and the samples.

    The shortest fragment takes `begin_s`; the extra time of a longer fragment is due to its steps.
    """
    num_envs = len(envs)
    wanted = min(job.spec.steps_of(job.spec.actors.max), _MOST_STEPS)
    fitting = min(wanted // num_envs, int(_SAMPLING_S / begin_s))
    steps = num_envs * max(2, fitting)
    trajectories, times_s = [first], list[float]()
    began = time.perf_counter()
    while not times_s or time.perf_counter() - began < _SAMPLING_S:
        took_s, trajectory = _timed(
            lambda: _fragment(job, envs, policy, steps=steps, after=trajectories[-1]), clock
        )
        times_s.append((took_s - begin_s) / (steps - num_envs))
        trajectories.append(trajectory)
        if len(times_s) * steps >= 2 * samples_per_round(job.spec):
            break
    return max(1e-9, median(times_s)), trajectories[1:]


def _fragment(
    job: Job,
    envs: Sequence[Env],
    policy: NumpyPolicy,
    *,
    steps: int,
    after: Trajectory | None = None,
) -> Trajectory:
    task = RolloutTask(
        mode="sample",
        job_id=job.job_id,
        round=0,
        attempt=0,
        actor_index=0,
        policy_version=0,
        env=job.spec.environment_ref,
        steps=steps,
        num_envs=len(envs),
        continues=job.continues_episodes,
        replay_steps=job.replay_steps,
        rebuild=job.described_environment.repeats == "rebuilt",
        horizon=job.spec.episodes.cut_at,
        discount=getattr(job.hyperparameters, "discount", 1.0),
        seed=job.spec.seed,
    )
    # Repeated steps are counted separately: they depend on the place in an episode.
    starts = () if after is None or task.replay_steps or not task.continues else after.snapshots
    return sample_fragment(task, envs, policy, starts=starts)


def _decoded(payload: bytes) -> NumpyPolicy:
    decoded = codec.decode(payload)
    return load_policy(decoded.arrays, decoded.metadata)


def learner_s(
    job: Job,
    trajectories: Sequence[Trajectory],
    samples: int,
    forked: SecondProcess | None = None,
    *,
    clock: Clock = time.perf_counter,
) -> tuple[float, float]:
    """Return the seconds of an update with this many samples, and of measuring per round."""
    steps = NetworkSteps.beside(forked)
    algorithm = build_algorithm(job, device=torch.device("cpu"), steps=steps)
    detector = build_detector(job.spec.detector)
    few = _filled(trajectories, min(samples, _FEW_SAMPLES))
    learn_round(algorithm, few)  # one-time work
    few_s, _ = _timed(lambda: learn_round(algorithm, few), clock)
    part = few
    if few_s * samples / _num_steps(few) <= _UPDATING_S:
        part = _filled(trajectories, samples)
    updates_s, measurements_s = list[float](), list[float]()
    began = time.perf_counter()
    while len(updates_s) < _REPEATS:
        updates_s.append(_timed(lambda: learn_round(algorithm, part), clock)[0])
        measurements_s.append(_timed(lambda: _measured(algorithm, detector), clock)[0])
        if time.perf_counter() - began > _UPDATING_S / 2:
            break
    update_s = min(updates_s) * samples / _num_steps(part)
    return update_s, min(measurements_s) / job.measures_every_rounds


def _measured(algorithm: Algorithm, detector: Detector) -> None:
    samples = algorithm.samples()
    if algorithm.network is not None and samples is not None:
        detector.measure(algorithm.network, replace(samples, start=None))


def _filled(trajectories: Sequence[Trajectory], samples: int) -> list[Trajectory]:
    """Return trajectories with at least this many samples in total; some may repeat."""
    filled: list[Trajectory] = []
    for trajectory in itertools.cycle(trajectories):
        filled.append(trajectory.replaced(actor_index=len(filled)))
        if _num_steps(filled) >= samples:
            return filled
    raise ValueError("no trajectory")


def _num_steps(trajectories: Sequence[Trajectory]) -> int:
    return sum(trajectory.num_steps for trajectory in trajectories)


def _timed(call: Callable[[], T], clock: Clock) -> tuple[float, T]:
    started = clock()
    result = call()
    return clock() - started, result
