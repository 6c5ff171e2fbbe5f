"""Rules between the fields of a job: combinations that are refused, with the reasons."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from shared.contracts.scaling_spec import Policy
from shared.hyperparameters.presets import ALGORITHMS

if TYPE_CHECKING:
    from shared.contracts.job_spec import JobSpec


def require_consistent(spec: "JobSpec") -> None:
    """Check all rules.

    Raises:
        ValueError: The first rule that the job breaks.
    """
    _require_size(spec)
    _require_learner(spec)
    require_scaling(spec, spec.scaling)
    if spec.searches:
        for field, value, reason in _not_for_searches(spec):
            raise ValueError(f"{field} ({value}) is not for {spec.algorithm}: {reason}")


def require_scaling(spec: "JobSpec", scaling: Policy) -> None:
    """Check that a scaling policy suits a job's rounds.

    Raises:
        ValueError: It does not suit them.
    """
    traits = ALGORITHMS[spec.algorithm]
    if scaling.divides_samples and not traits.shares_samples:
        plan = "; `nitro plan` prints how many actors keep the learner busy"
        raise ValueError(
            f"scaling.policy ({scaling.policy}) divides samples_per_round among the actors, "
            f"which {spec.algorithm} does not have: use fixed{plan if traits.replays else ''}"
        )
    scaling.require_fit(
        spec.actors,
        shares_samples=spec.samples_per_round is not None,
        on_policy=traits.on_policy,
    )
    if scaling.measures and not traits.objectives:
        raise ValueError(
            f"scaling.policy ({scaling.policy}) needs measurements after updates, which "
            f"{spec.algorithm} does not have: use fixed"
        )
    if scaling.measures and spec.is_recurrent:
        raise ValueError(
            f"scaling.policy ({scaling.policy}) goes by what is measured after updates, and "
            "nothing is measured of recurrent policies (hyperparameters.recurrent): use fixed"
        )


def _require_size(spec: "JobSpec") -> None:
    """Check the number of steps of a round."""
    samples, envs = spec.samples_per_round, spec.envs_per_actor
    if samples is None:
        if spec.steps_per_actor % envs:
            raise ValueError(
                f"steps_per_actor ({spec.steps_per_actor}) must be a multiple of "
                f"envs_per_actor ({envs})"
            )
        return
    if spec.steps_per_actor != type(spec).model_fields["steps_per_actor"].default:
        raise ValueError(
            "give samples_per_round or steps_per_actor, not both: one sets the samples of a "
            "round, the other those of an actor"
        )
    if not ALGORITHMS[spec.algorithm].on_policy:
        raise ValueError(
            f"samples_per_round is for PPO: {spec.algorithm} mixes fragments of several "
            "rounds, which must have equal lengths; give steps_per_actor"
        )
    fewest = spec.actors.max * envs
    if samples < fewest:
        raise ValueError(
            f"samples_per_round ({samples}) must be at least actors.max * envs_per_actor "
            f"({fewest}), a step for each environment"
        )


def _require_learner(spec: "JobSpec") -> None:
    """Check that the learner can do what is asked for."""
    algorithm, traits = spec.algorithm, ALGORITHMS[spec.algorithm]
    if spec.learner in ("gpu", "external") and not spec.learner_task.is_default:
        raise ValueError(f"learner_task is for learners on cores, not for learner {spec.learner}")
    objective, defined = spec.detector.objective, traits.objectives
    if defined and objective not in defined:
        having = [name for name, of in ALGORITHMS.items() if objective in of.objectives]
        raise ValueError(
            f"detector.objective ({objective}) is defined for {', '.join(having)} only: use "
            f"{' or '.join(sorted(defined))} with {algorithm}"
        )
    if spec.learns_on_functions and not traits.on_functions:
        able = [name for name, of in ALGORITHMS.items() if of.on_functions]
        raise ValueError(
            f"learner (functions) does not compute {algorithm}'s gradients: use "
            f"{' or '.join(able)}, or learner cpu"
        )
    if spec.is_recurrent and spec.learner in ("functions", "external"):
        raise ValueError(
            f"hyperparameters.recurrent ({spec.hyperparameters['recurrent']}) is for learners "
            f"with torch, and learner is {spec.learner}: use cpu or gpu"
        )
    decoupled = spec.learner_functions.objective == "decoupled"
    if spec.learns_on_functions and decoupled and algorithm == "impact":
        raise ValueError(
            "learner_functions.objective (decoupled) does not clip around impact's target "
            "policy: use clipped, or ppo"
        )


def _not_for_searches(spec: "JobSpec") -> Iterator[tuple[str, object, str]]:
    """Return the fields that a search cannot heed, with their values and the reasons."""
    usual_rounds: int = type(spec).model_fields["rounds_in_flight"].default
    rules = spec.learner_functions.model_dump(exclude_defaults=True)
    samples, envs, rounds = spec.samples_per_round, spec.envs_per_actor, spec.rounds_in_flight
    horizon, replay, resize = (
        getattr(spec.episodes, name) for name in ("horizon", "replay", "resize")
    )
    whole = (
        "its rounds are of whole episodes, played one after the other; give "
        "hyperparameters.directions"
    )
    after = "a round perturbs the policy that the round before it made; leave it out"
    plain = "its update takes neither a gradient nor a GPU; use cpu"
    no_gradient = "its update takes no gradient; leave it out"
    no_fragments = "it has no fragments; give a number of steps, or limit"
    ends = "its episodes never continue in a later round; leave it out"
    fields: tuple[tuple[str, object, bool, str], ...] = (
        ("samples_per_round", samples, samples is not None, whole),
        ("envs_per_actor", envs, envs != 1, whole),
        ("rounds_in_flight", rounds, rounds > usual_rounds, after),
        ("learner", spec.learner, spec.learner in ("gpu", "external"), plain),
        ("learner_functions", rules, bool(rules), no_gradient),
        ("episodes.horizon", horizon, horizon == "fragment", no_fragments),
        ("episodes.replay", replay, replay not in ("auto", "off"), ends),
        ("episodes.resize", resize, resize, ends),
    )
    return ((field, value, reason) for field, value, wrong, reason in fields if wrong)
