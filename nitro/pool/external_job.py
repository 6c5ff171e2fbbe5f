"""The job of an `ActorPool`: `learner: external`, trained by the user's program."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nitro.errors import CommandError
from nitro.spec.spec_file import refusal
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import Policy as ScalingPolicy
from shared.contracts.scaling_spec import Scaling as KnownScaling
from shared.contracts.stop_rule import MAX_ROUNDS

Actors = int | tuple[int, int]
Scaling = str | Mapping[str, Any] | ScalingPolicy
_SAID_OTHERWISE = {
    "env_id": "env",
    "steps_per_actor": "fragment",
    "samples_per_round": "fragment and actors",
    "scaling": "policy",
    "stop": "budget_usd, max_rounds, max_wall_s and target_return",
    "evaluation": "evaluate_every and evaluation_episodes",
    "episodes": "horizon",
}
"""Fields of a job with an argument in the pool."""
_OF_A_LEARNER = ("algorithm", "learner")
_POLICY: TypeAdapter[ScalingPolicy] = TypeAdapter(KnownScaling)
_EVERY_ROUNDS = 5
"""Default number of rounds between evaluations for a job with a target."""


def external_spec(
    env_id: str,
    *,
    fragment: int,
    actors: Actors,
    policy: Scaling | None,
    budget_usd: float,
    seed: int,
    own: int | str,
    envs_per_actor: int,
    rounds_in_flight: int,
    horizon: int | str,
    max_rounds: int | None,
    max_wall_s: float | None,
    target_return: float | None,
    evaluate_every: int | None,
    evaluation_episodes: int,
    fields: Mapping[str, Any],
) -> JobSpec:
    """Return the job of a pool.

    Raises:
        CommandError: A field is wrong; one line each.
    """
    _require_others(fields)
    if evaluate_every is None:
        evaluate_every = 0 if target_return is None else _EVERY_ROUNDS
    fewest, most = (actors, actors) if isinstance(actors, int) else actors
    stop = {
        "max_rounds": MAX_ROUNDS if max_rounds is None else max_rounds,
        "max_wall_s": max_wall_s,
        "target_return": target_return,
        "budget_usd": budget_usd,
    }
    said = {
        "preset": "standard",
        **fields,
        "env_id": env_id,
        # A job depends on one property of its algorithm: whether rounds overlap.
        "algorithm": "ppo" if rounds_in_flight == 1 else "impala",
        "rounds_in_flight": max(1, rounds_in_flight),
        "learner": "external",
        "seed": seed,
        "steps_per_actor": fragment * envs_per_actor,
        "envs_per_actor": envs_per_actor,
        "actors": {"min": fewest, "max": most, "own": own},
        "scaling": _scaling(policy or _default_policy(rounds_in_flight)),
        "episodes": {"horizon": horizon},
        "stop": stop,
        "evaluation": {"every_rounds": evaluate_every, "episodes": evaluation_episodes},
    }
    fixed = {"scaling": {"policy": "fixed", "num_actors": most}}
    try:
        if fewest < most:
            return JobSpec.model_validate(said)
        if policy is not None:  # it decides nothing here, but may still be wrong
            _POLICY.validate_python(said["scaling"])
        return JobSpec.model_validate(said | fixed)
    except ValidationError as error:
        raise refusal(error) from error


def _require_others(fields: Mapping[str, Any]) -> None:
    """Refuse fields that a pool sets itself.

    Raises:
        CommandError: The pool sets a field; names the argument to use.
    """
    for name in fields:
        if name in _SAID_OTHERWISE:
            raise CommandError(f"{name}: a pool does not take it; use {_SAID_OTHERWISE[name]}")
        if name in _OF_A_LEARNER:
            raise CommandError(f"{name}: leave it out, as the program itself learns")


def require_counts(counts: Mapping[str, object]) -> None:
    """Require positive integers.

    Raises:
        CommandError: A count is not; names it.
    """
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise CommandError(f"{name}: must be a whole number from 1, got {value!r:.80}")


def require_range(actors: object) -> None:
    """Require a number of actors, or a pair of the fewest and the most.

    Raises:
        CommandError: It is neither.
    """
    both: Sequence[object] = actors if isinstance(actors, tuple | list) else (actors, actors)
    if len(both) != 2 or any(type(each) is not int or each < 1 for each in both):
        raise CommandError(
            f"actors: must be a whole number from 1, or two, such as (8, 64), got {actors!r:.80}"
        )


def require_within(actors: object, spec: JobSpec) -> None:
    """Require a number in the pool's range; None leaves it to the scaling policy.

    Raises:
        CommandError: The number is outside the pool's range.
    """
    fewest, most = spec.actors.min, spec.actors.max
    if actors is not None and not (type(actors) is int and fewest <= actors <= most):
        raise CommandError(
            f"actors: must be a whole number in the pool's range [{fewest}, {most}], got "
            f"{actors!r:.80}"
        )


def _default_policy(rounds_in_flight: int) -> str:
    return "marginal" if rounds_in_flight == 1 else "nitro"


def _scaling(policy: Scaling) -> object:
    if isinstance(policy, ScalingPolicy):
        said: dict[str, Any] = policy.model_dump()
    else:
        said = {"policy": policy} if isinstance(policy, str) else dict(policy)
    if said.get("policy") == "auto":
        raise CommandError(
            "policy: auto shares a round's samples, and a pool's actors have "
            "`fragment` steps each; use another policy"
        )
    return said
