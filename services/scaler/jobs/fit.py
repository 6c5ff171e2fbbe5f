"""Whether a job fits its environment. Pure: admission asks, and commands before they submit it."""

from collections.abc import Iterator

from pydantic import ValidationError

from services.scaler.jobs.network_size import (
    algorithm_errors,
    function_errors,
    network_errors,
    sequence_errors,
)
from services.scaler.refusals import field_errors
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import longest_episode, longest_search, resized, unfilled
from shared.contracts.job_spec import MAX_ACTOR_STEPS, JobSpec
from shared.contracts.jobs import resolve_for
from shared.contracts.problem import FieldError


def fit_errors(
    spec: JobSpec, environment: EnvironmentSpec, *, timeout_s: float
) -> list[FieldError]:
    """Return the first kind of errors for which a job cannot learn its environment.

    Args:
        spec: The job.
        environment: Its environment.
        timeout_s: Time limit of an actor.
    """
    # Sizes depend on the network, and the network on its settings.
    wrong = [*algorithm_errors(spec, environment)] or [*_hyperparameter_errors(spec, environment)]
    if wrong:
        return wrong
    job = resized(spec, environment)
    return (
        [*search_errors(job, environment, timeout_s=timeout_s)]
        or [*agent_errors(job, environment)]
        or [*network_errors(job, environment), *function_errors(job, environment)]
        or [*sequence_errors(job, environment)]
    )


def search_errors(
    spec: JobSpec, environment: EnvironmentSpec, *, timeout_s: float
) -> Iterator[FieldError]:
    """Yield why actors cannot play a search's whole episodes, once its actors are known."""
    if not spec.searches:
        return
    for name, number in spec.scaling.asked_for().items():
        if number > spec.actors.max:
            message = (
                f"{number:g} actors, but a round has at most {spec.actors.max}: one for each of "
                "its episodes (2 * hyperparameters.directions)"
            )
            yield FieldError(field=f"scaling.{name}", message=message)
    field, longest = "episodes.horizon", longest_episode(spec, environment)
    plays = f"{spec.algorithm} plays whole episodes"
    if longest is None:
        message = f"{plays}, and those of {spec.env_id} have no limit: give a number of steps"
        yield FieldError(field=field, message=message)
        return
    steps = longest_search(spec, environment)
    takes_s = steps * environment.step_s
    fewer = f"give fewer steps than {longest:,}, or raise actors.min (up to one an episode)"
    if steps > MAX_ACTOR_STEPS:
        message = (
            f"{plays}: those of one of {spec.actors.min} actors may have {steps:,} steps an "
            f"iteration, at most {MAX_ACTOR_STEPS:,} are allowed; {fewer}"
        )
        yield FieldError(field=field, message=message)
    elif takes_s > timeout_s:
        message = (
            f"{plays}: those of one of {spec.actors.min} actors may have {steps:,} steps of "
            f"{environment.step_s:.2g} s, so {takes_s:.0f} s, and it has {timeout_s:g} s; {fewer}, "
            "or actor_timeout_s"
        )
        yield FieldError(field=field, message=message)


def agent_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield the error of environments or steps that no number of agents fills."""
    for field, message in unfilled(spec, environment):
        yield FieldError(field=field, message=message)


def _hyperparameter_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield the hyper-parameters that conflict with a job's preset."""
    try:
        resolve_for(spec, environment)
    except ValidationError as error:
        below = ("body", "hyperparameters")
        yield from field_errors(
            [{**wrong, "loc": (*below, *wrong["loc"])} for wrong in error.errors()]
        )
