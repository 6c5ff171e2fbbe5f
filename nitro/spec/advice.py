"""Advice about a job before it trains: unseen steps, expected duration."""

import math
from dataclasses import dataclass

from nitro.hints import Place
from nitro.runs.summary import duration
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import (
    SHARED_GENERATORS,
    disturbed,
    going_on,
    longest_episode,
    longest_replay,
)
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import FixedScaling
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.service.cores import usable_cores

_SAMPLES_PER_S = {"paper_cnn": 1_700, "nature_cnn": 1_300}
"""Samples per second of PPO's update on one core, by image network."""
_PIXELS = 84 * 84
"""Where observations have fewer, jobs are fast."""
_STEPS_PER_S = 1_000
"""Steps per second of an Atari game and its policy on one core."""
_GAME_STEPS = 2_000
"""Steps of an evaluation episode, unless it is cut earlier: games of Pong take 800 to 3,000."""
_ACTOR_S = 45.0
"""Most seconds of an actor, of the 60 s of a deployment's function by default."""
_LONG_S = 600.0
"""From this duration on, suggest faster options."""
_QUICKER = "--preset standard --scaling fixed:8 --actors 8 --steps-per-actor 128"
"""The published setting for Atari: 1,024 steps a round, 4 passes over them."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Seconds of a job: with the fewest actors in every round, and with the most."""

    least_s: float
    most_s: float


def advice(
    spec: JobSpec,
    environment: EnvironmentSpec,
    hyperparameters: Hyperparameters,
    *,
    rounds: int,
    cpu_cores: int | None,
    place: Place,
) -> list[str]:
    """Return the advice, one line each.

    Args:
        spec: The job.
        environment: Its environment.
        hyperparameters: The full set it trains with.
        rounds: Its remaining rounds.
        cpu_cores: Cores of its machine; None if it has a GPU, or is unknown.
        place: The user's options, for suggested commands.
    """
    lines = [*_on_episodes(spec, environment, place), *_on_slow_steps(spec, environment)]
    if cpu_cores is not None:
        takes = time_on_cpu(spec, environment, hyperparameters, rounds=rounds, cores=cpu_cores)
        if takes is not None:
            lines.append(_told(takes, spec, rounds))
            if takes.most_s > _LONG_S and spec.preset == "paper":
                lines.append(f"faster, with the published settings for Atari: {_QUICKER}")
    return lines


def _on_episodes(spec: JobSpec, environment: EnvironmentSpec, place: Place) -> list[str]:
    """Return advice about continued episodes, and about steps that are never learned from."""
    limit, cut_at = environment.max_episode_steps, spec.episodes.cut_at
    longest = longest_episode(spec, environment) or 0
    taken = spec.steps_of(spec.actors.max) // spec.envs_per_actor
    how, lines = going_on(spec, environment), list[str]()
    if spec.searches:
        return lines  # its episodes are whole
    why = f"{place.command('check-env', spec.env_id)} says why"
    repeated = longest_replay(spec, environment) if how == "replay" else 0
    if repeated:
        lines.append(
            "this environment's state cannot be saved: an actor repeats an episode's actions "
            f"before it continues it, up to {repeated:,} steps ({why})"
        )
    if disturbed(spec, environment):
        why = f"{SHARED_GENERATORS}: set envs_per_actor to 1"
    if spec.episodes.go_on and how == "no":
        begins = "every rollout begins with a reset"
        if spec.episodes.resize and longest <= taken:
            begins = f"each rollout has {taken:,} steps, enough for a whole episode"
        lines.append(
            f"episodes can be neither saved nor repeated, so they cannot continue: {begins} ({why})"
        )
    if how != "state" and longest > taken + repeated:
        lines.append(_too_short(spec, environment, longest=longest, taken=taken, repeated=repeated))
    elif cut_at is not None and (limit is None or cut_at < limit):
        lines.append(
            f"training episodes are cut after {cut_at:,} steps, so their returns are partial; "
            "evaluations play whole episodes"
        )
    return lines


def _on_slow_steps(spec: JobSpec, environment: EnvironmentSpec) -> list[str]:
    """Return advice about steps that are too slow for the time-out on AWS."""
    steps = spec.steps_of(spec.actors.min)
    takes_s = steps * environment.step_s
    if takes_s <= _ACTOR_S:
        return []
    suits = max(1, math.floor(_ACTOR_S / environment.step_s))
    return [
        f"a step takes {environment.step_s:.2g} s, so an actor's {steps:,} steps take "
        f"{duration(takes_s)}. On AWS a function ends after 60 s by default: use "
        f"--steps-per-actor {suits} and more actors, or raise actor_timeout_s there"
    ]


def _too_short(
    spec: JobSpec, environment: EnvironmentSpec, *, longest: int, taken: int, repeated: int
) -> str:
    fewer = "take fewer actors, as with --scaling fixed:2, or raise samples_per_round"
    longer = "raise --steps-per-actor" if spec.samples_per_round is None else fewer
    going_on = ""
    if not spec.episodes.go_on and environment.repeats != "never":
        going_on = "continue episodes with --set episodes.horizon=limit, or "
    begins = f"repeats at most {repeated:,}" if repeated else "begins with a reset"
    return (
        f"episodes may last {longest:,} steps, but a rollout {begins} and takes {taken:,}: later "
        f"steps are never learned from ({going_on}{longer})"
    )


def time_on_cpu(
    spec: JobSpec,
    environment: EnvironmentSpec,
    hyperparameters: Hyperparameters,
    *,
    rounds: int,
    cores: int,
) -> TimeRange | None:
    """Estimate PPO's duration on large images without a GPU; None for all else, which is fast.

    The learner updates on one core; during rollouts it waits, and actors have all cores.
    Evaluations take time, too.
    """
    seen = environment.observation
    pixels = math.prod(seen.shape) - seen.num_numbers
    if pixels < _PIXELS or not isinstance(hyperparameters, PpoHyperparameters):
        return None
    update_s = hyperparameters.num_epochs / _SAMPLES_PER_S[hyperparameters.image_network]
    step_s = update_s + 1 / (_STEPS_PER_S * cores)
    fewest, most = spec.actors.min, spec.actors.max
    if isinstance(spec.scaling, FixedScaling):
        fewest = most = spec.scaling.num_actors
    least, largest = (actors * spec.steps_of(actors) for actors in (fewest, most))
    every = spec.evaluation.every_rounds
    games = rounds // every * spec.evaluation.episodes if every else 0
    game_steps = min(environment.max_episode_steps or _GAME_STEPS, _GAME_STEPS)
    games_s = games * game_steps / (_STEPS_PER_S * cores)
    return TimeRange(rounds * least * step_s + games_s, rounds * largest * step_s + games_s)


def _told(takes: TimeRange, spec: JobSpec, rounds: int) -> str:
    span = duration(takes.most_s)
    if takes.least_s < takes.most_s:
        span = f"{duration(takes.least_s)} to {span}"
    whole = spec.samples_per_round
    size = f"{spec.steps_per_actor} steps an actor" if whole is None else f"{whole:,} steps"
    return f"about {span} on this machine without a GPU, for {rounds:,} rounds of {size}"


def gpu_less_cores(environment: EnvironmentSpec) -> int | None:
    """Return this machine's cores if it trains on images without a GPU, else None."""
    if not environment.observation.has_images:
        return None
    import torch  # takes seconds to load, and nothing else here needs it

    return None if torch.cuda.is_available() else usable_cores()
