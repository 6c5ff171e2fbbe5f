"""The size of a job's policy, computed before it is built.

Images that do not fit the network, and policies that are too large for actors, are refused.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from shared.contracts.environment_spec import ContinuousActionSpec, EnvironmentSpec
from shared.contracts.gradients import MAX_MESSAGE_BYTES
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import resolve_for
from shared.contracts.problem import FieldError
from shared.contracts.rollouts import MAX_POLICY_BYTES, POLICY_HEADER_BYTES
from shared.contracts.scaling_spec import FixedScaling
from shared.hyperparameters.common import CommonHyperparameters, Hyperparameters
from shared.hyperparameters.presets import ALGORITHMS
from shared.policy.recurrent import sequence_length
from shared.policy.spec import PolicySpec

_MB = 1024 * 1024


def bytes_per_weight(spec: JobSpec) -> int:
    """Return the bytes of a weight on the wire."""
    return 2 if spec.policy_precision == "float16" else 4


def network_weights(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the weights and biases of the policy's network.

    Raises:
        ValueError: The observations are images that the network cannot take.
    """
    return PolicySpec.of(environment, resolve_for(spec, environment)).num_weights


def algorithm_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield why a job's algorithm cannot learn its environment, and which algorithms can."""
    why = ALGORITHMS[spec.algorithm].unfit(environment)
    if why:
        able = [name for name, traits in ALGORITHMS.items() if not traits.unfit(environment)]
        message = f"{spec.algorithm} cannot learn {spec.env_id}, which {why}; use {_either(able)}"
        yield FieldError(field="algorithm", message=message)


def network_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield the error of a network that cannot be built, or of a policy that is too large."""
    rule = resolve_for(spec, environment)
    if rule.state_size and environment.observation.has_images:
        message = f"{spec.env_id} observes images, and recurrent cells are for vectors: use none"
        yield FieldError(field="hyperparameters.recurrent", message=message)
        return
    try:
        weights = PolicySpec.of(environment, rule).num_weights
    except ValueError as error:
        yield FieldError(field="env_id", message=f"env_id {spec.env_id!r}: {error}")
        return
    # The mean and scale of observations travel with the weights.
    scale = 2 * environment.observation.num_numbers
    needed = 4 * (weights + scale) + POLICY_HEADER_BYTES
    if needed > MAX_POLICY_BYTES:
        field, remedy = "hyperparameters.hidden_sizes", "lower them"
        if environment.observation.has_images:
            field, remedy = "env_id", "use smaller images or fewer actions"
        elif rule.state_size:
            field, remedy = "hyperparameters.recurrent_units", "lower them, or hidden_sizes"
        message = (
            f"a policy of {weights} weights for {spec.env_id} takes {needed / _MB:.1f} MB, actors "
            f"load {MAX_POLICY_BYTES / _MB:.0f} MB; {remedy}"
        )
        yield FieldError(field=field, message=message)


def sequence_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield the error of a recurrent policy whose gradients would reach back few steps.

    Sequences divide a round's steps, so an actor's steps need a divisor of some size.
    """
    rule = resolve_for(spec, environment)
    if not (isinstance(rule, CommonHyperparameters) and rule.state_size):
        return
    most = spec.actors.max
    if isinstance(spec.scaling, FixedScaling):
        most = spec.scaling.num_actors
    steps = spec.steps_of(most)
    length = min(rule.sequence_length, steps)
    if 2 * sequence_length(steps, length) < length:
        message = (
            f"an actor's {steps} steps cannot be cut into sequences of {(length + 1) // 2} to "
            f"{length} steps (hyperparameters.sequence_length): use a multiple of {length}"
        )
        yield FieldError(field=spec.size_field, message=message)


def function_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield why learner functions cannot compute a job's gradients.

    They compute in NumPy: networks of dense layers and Gaussian policies. They load the policy
    together with the value function.
    """
    if not spec.learns_on_functions:
        return
    rule = resolve_for(spec, environment)
    why = _not_on_functions(rule, environment)
    if why:
        message = f"functions cannot learn {spec.env_id}, which {why}; use learner cpu or gpu"
        yield FieldError(field="learner", message=message)
        return
    policy = PolicySpec.of(environment, rule)
    value_sizes = (*policy.observation_shape, *rule.hidden_sizes, 1)
    weights = policy.num_weights + sum((i + 1) * o for i, o in pairwise(value_sizes))
    needed = 4 * weights + POLICY_HEADER_BYTES
    if needed > MAX_MESSAGE_BYTES:
        message = (
            f"policy and value function of {weights} weights for {spec.env_id} take "
            f"{needed / _MB:.1f} MB, functions load {MAX_MESSAGE_BYTES / _MB:.0f} MB; lower them, "
            "or use learner cpu or gpu"
        )
        yield FieldError(field="hyperparameters.hidden_sizes", message=message)


def _not_on_functions(rule: Hyperparameters, environment: EnvironmentSpec) -> str | None:
    """Return what functions cannot compute of a network; None if they can."""
    if environment.observation.has_images:
        return "observes images: a convolutional network needs a GPU or torch, which functions lack"
    if not isinstance(environment.action, ContinuousActionSpec):
        return "has discrete actions: they compute gradients of Gaussian policies only"
    if getattr(rule, "network", "") or getattr(rule, "distribution", "gaussian") != "gaussian":
        return "has a custom network or distribution"
    if rule.state_size:
        return "is to have a recurrent policy: hyperparameters.recurrent takes torch"
    if not rule.hidden_sizes:
        return "has a network without hidden layers"
    if getattr(rule, "value_hidden_sizes", ()) not in ((), rule.hidden_sizes):
        return "has value_hidden_sizes that differ from hidden_sizes"
    if rule.activation != "tanh" or rule.layer_norm:
        return "has a network other than plain tanh layers"
    return None


def _either(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
