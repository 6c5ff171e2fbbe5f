"""What other policies would have asked for: a column beside the numbers that were decided.

Every policy is asked, with its defaults, that needs no parameter of the user's, can decide about
the job, and costs it nothing: what takes a measurement of its own, or a look at several rounds of
the store, is left out. It sees the rounds as they were, not as its own numbers would have made
them. What it remembers of rounds before is its own.
"""

from typing import Any

from services.scaler.scaling.base import ScalingPolicy
from services.scaler.scaling.registry import SCALING_POLICIES
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import POLICIES


def shadow_policies(spec: JobSpec, *, but: str) -> dict[str, ScalingPolicy[Any]]:
    """Return the policies to ask beside the one of name `but`; none where there is no choice."""
    if spec.actors.min == spec.actors.max:
        return {}
    return {
        name: policy
        for name in SCALING_POLICIES
        if name != but and (policy := _by_default(name, spec)) is not None
    }


def _by_default(name: str, spec: JobSpec) -> ScalingPolicy[Any] | None:
    """Return a policy with its default parameters; None where it has, or needs, numbers given."""
    fields = POLICIES[name].model_fields
    if any(field.is_required() for key, field in fields.items() if key != "policy"):
        return None
    parameters = POLICIES[name].model_validate({"policy": name})
    if parameters.asked_for():
        return None
    try:
        spec.require_fit(parameters)
    except ValueError:
        return None
    policy = SCALING_POLICIES[name](parameters)
    costs_something = policy.needs_fragment_noise or policy.num_rounds > 1
    return None if costs_something else policy
