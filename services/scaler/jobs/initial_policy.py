"""Whether a job can begin with the policy of an earlier one; pure functions."""

import math
from collections.abc import Iterator

from shared.contracts.environment_spec import ActionSpec, ContinuousActionSpec, EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, resolve_for
from shared.contracts.problem import FieldError
from shared.hyperparameters.common import Hyperparameters

_SHAPING = (
    "hidden_sizes",
    "value_hidden_sizes",
    "activation",
    "layer_norm",
    "image_network",
    "observation_normalisation",
)
"""Hyper-parameters that determine the sizes of weights and statistics, or their use."""


def initial_policy_errors(
    spec: JobSpec, environment: EnvironmentSpec, earlier: Job | None
) -> Iterator[FieldError]:
    """Yield why the policy of an earlier job does not fit the job that starts from it.

    An earlier job that was not admitted has no policy.
    """
    if spec.init_from is None:
        return
    if earlier is None or earlier.environment is None:
        message = f"there is no job {spec.init_from.job_id} with a checkpoint here"
        yield FieldError(field="init_from.job_id", message=message)
        return
    if earlier.spec.algorithm != spec.algorithm and (spec.searches or earlier.spec.searches):
        message = (
            f"{earlier.job_id} is of {earlier.spec.algorithm}, and this job of {spec.algorithm}: "
            "ars and es begin only with a policy of their own algorithm, and no other with theirs"
        )
        yield FieldError(field="init_from", message=message)
        return
    before = earlier.environment
    sizes = {
        "observations": (_observed(before), _observed(environment)),
        "actions": (_actions(before.action), _actions(environment.action)),
    }
    rules = earlier.hyperparameters, resolve_for(spec, environment)
    shaping = {name: tuple(getattr(rule, name, None) for rule in rules) for name in _SHAPING}
    shaping["recurrent cells"] = (_cells(rules[0]), _cells(rules[1]))
    for name, (was, now) in (sizes | shaping).items():
        if was != now:
            message = f"{earlier.job_id} has {name} {was}, this job has {now}"
            yield FieldError(field="init_from", message=message)


def _cells(rule: Hyperparameters) -> str:
    """Return the cells of a policy; of algorithms without any as of policies without any."""
    cell = getattr(rule, "recurrent", "none")
    return cell if cell == "none" else f"{cell} [{getattr(rule, 'recurrent_units', 0)}]"


def _observed(environment: EnvironmentSpec) -> str:
    observation = environment.observation
    if observation.has_images:
        images = [list(image) for image in observation.images]
        whole = f"{list(observation.shape)} of {observation.dtype}"
        return f"{whole} that begin with images {images}" if images else whole
    return f"[{math.prod(observation.shape)}]"


def _actions(action: ActionSpec) -> str:
    if isinstance(action, ContinuousActionSpec):
        return f"{action.kind} [{len(action.low)}]"
    return str(action.model_dump(include={"kind", "n", "num_choices"}))
