"""A job's load on the trajectory cache: memory for its rounds, and network for its policies.

A small node may exceed its sustained network rate for some minutes, on credits saved while idle.
"""

import math
from collections.abc import Iterator

from services.scaler.jobs.network_size import bytes_per_weight, network_weights
from services.scaler.money.gradient_pricing import calls_per_update
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)
from shared.contracts.going_on import going_on, replay_bytes
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import resolve_for
from shared.contracts.problem import FieldError
from shared.deployment.machines import network_mb_per_s, node_for_traffic, smallest_node
from shared.hyperparameters.search import SearchHyperparameters

_MB = 1024 * 1024
MAX_TRAJECTORY_BYTES = 256 * _MB
"""The codec's limit of a trajectory; its own module needs NumPy."""
_SCALARS_PER_STEP = 10
"""Bytes per step of reward, log-probability and the two end marks."""
_EPISODE_BYTES = 8
"""Return and length of an episode, which may last a single step."""
_LEAST_SNAPSHOT_BYTES = 12 * 1024
"""Largest snapshot of a game, although some start at a sixth of it."""
_SNAPSHOT_GROWTH = 1.5
"""Growth of a custom environment's snapshot after its first step."""
_PART_BYTES = 1024
"""Upper bound of what an episode of a search takes besides its moments."""
_HEADER_BYTES = 1 << 16
"""Upper bound of a trajectory's header."""
_LONGEST_S = 5.0
"""Above this, the cache's network, not the simulators, limits most rounds."""


def trajectory_errors(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[FieldError]:
    """Yield the error of trajectories that are too large for the learner."""
    if spec.searches:  # a part has few episodes, and of each a few numbers
        return
    # One more for each cut episode, whose last observation is separate. Continued episodes may be
    # cut at once.
    longest = spec.steps_of(spec.actors.min)
    limits = (environment.max_episode_steps, spec.episodes.cut_at)
    taken_up = 0 if going_on(spec, environment) == "no" else spec.envs_per_actor
    num_finals = max(longest // limit + taken_up if limit else 0 for limit in limits)
    num_observations = longest + spec.envs_per_actor + num_finals
    # Stacked frames travel once; the learner expands them.
    seen = _observation_bytes(environment) * num_observations
    step_bytes = _action_bytes(environment.action) + _SCALARS_PER_STEP + _EPISODE_BYTES
    sent = seen // (environment.observation.frame_stack or 1) + step_bytes * longest
    sent += _snapshots_bytes(spec, environment)
    needed = max(seen, sent + _HEADER_BYTES)
    if needed > MAX_TRAJECTORY_BYTES:
        message = (
            f"a trajectory of {longest} steps may have {needed / _MB:.1f} MB, the "
            f"learner accepts {MAX_TRAJECTORY_BYTES / _MB:.0f} MB; lower {spec.size_field}"
        )
        yield FieldError(field=spec.size_field, message=message)


def cache_errors(
    spec: JobSpec, environment: EnvironmentSpec, cache_bytes: int, beside: int
) -> Iterator[FieldError]:
    """Yield the error of rounds that do not fit into the cache next to other jobs."""
    needed = round_bytes(spec, environment)
    if needed + beside > cache_bytes:
        rounds = "a round" if spec.open_rounds == 1 else f"{spec.open_rounds} open rounds"
        name, taken, wait = spec.size_field, "", ""
        lower = f"{name} or actors.max"
        whose = f"{spec.actors.max} actors with {spec.steps_of(spec.actors.max)} steps"
        if spec.searches:
            name = "hyperparameters.directions"
            lower, whose = f"{name} or hyperparameters.iterations", spec.algorithm
        if beside:
            taken = f" and other jobs may take {beside / _MB:.0f} MB of it"
            wait = "wait until one of them has ended, "
        message = (
            f"{rounds} of {whose} may take {needed / _MB:.0f} MB, "
            f"the cache has {cache_bytes / _MB:.0f} MB{taken}; "
            f"{wait}lower {lower}, or {_larger_cache((needed + beside) / _MB)}"
        )
        yield FieldError(field=name, message=message)


def _larger_cache(memory_mb: float) -> str:
    node = smallest_node(memory_mb)
    if node is None:
        return "use your own cache (NITRO_CACHE_MEMORY_MB): no known size is sufficient"
    return f"use a cache as large as {node} (cache_node_type; elsewhere NITRO_CACHE_MEMORY_MB)"


def round_bytes(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the most bytes of a job's open rounds in the cache.

    Trajectories are counted uncompressed, stacked frames once each, with one extra observation per
    environment and episode cut short left out; the policy's weights, without their header and the
    observations' scale, are added once for each open round and once for the next. A search's round
    has three policies: the first, the iteration's and the one before it.
    """
    frames = _observation_bytes(environment) // (environment.observation.frame_stack or 1)
    step_bytes = frames + _action_bytes(environment.action) + _SCALARS_PER_STEP
    actor_bytes = step_bytes * (spec.steps_of(spec.actors.max) + spec.envs_per_actor)
    if spec.searches:
        actor_bytes = _sums_bytes(spec, environment) // spec.actors.max
    weights = network_weights(spec, environment)
    rounds = spec.open_rounds
    # A snapshot is stored for its round, with its trajectory, and for the next round.
    copies = 2 * rounds + 1
    per_actor = rounds * actor_bytes + copies * _snapshots_bytes(spec, environment)
    updates = _update_bytes(spec, environment, weights)
    policies = rounds + 1 + spec.searches
    return spec.actors.max * per_actor + policies * bytes_per_weight(spec) * weights + updates


def _sums_bytes(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the bytes of the results of a search's round: two moments of each episode."""
    rule = resolve_for(spec, environment)
    assert isinstance(rule, SearchHyperparameters), "nothing else searches"
    observed = math.prod(environment.observation.shape)
    return rule.most_iterations * rule.num_episodes * (16 * observed + _PART_BYTES)


def _snapshots_bytes(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the most bytes of an actor's snapshots; 0 if episodes do not continue."""
    how = going_on(spec, environment)
    if how == "no":
        return 0
    if how == "replay":
        return replay_bytes(spec, environment) * spec.envs_per_actor
    grown = math.ceil(_SNAPSHOT_GROWTH * environment.snapshot_bytes)
    return max(_LEAST_SNAPSHOT_BYTES, grown) * spec.envs_per_actor


def _update_bytes(spec: JobSpec, environment: EnvironmentSpec, weights: int) -> int:
    """Return the bytes of an update with learner functions: slices and weights."""
    calls, functions = calls_per_update(spec), spec.learner_functions
    if not calls:
        return 0
    passes = calls // functions.slices
    samples = spec.steps_of(spec.actors.max) * spec.actors.max
    # The action and both outputs of the policy have this width; there are five more numbers.
    sample_bytes = _observation_bytes(environment) + 3 * _action_bytes(environment.action) + 20
    # Weights and gradients, of the policy and of the value function.
    in_flight = 2 * (functions.num + 1) * 2 * 4 * weights
    return passes * samples * sample_bytes + in_flight


def _observation_bytes(environment: EnvironmentSpec) -> int:
    observation = environment.observation
    return math.prod(observation.shape) * (1 if observation.dtype == "uint8" else 4)


def _action_bytes(action: ActionSpec) -> int:
    """Return the bytes of one action on the wire."""
    if isinstance(action, ContinuousActionSpec):
        return 4 * len(action.low)
    return 8 * (1 if isinstance(action, DiscreteActionSpec) else len(action.num_choices))


def traffic_warnings(spec: JobSpec, environment: EnvironmentSpec, node: str) -> tuple[str, ...]:
    """Return a warning if a cache's node is slow for a job."""
    policy_mb = bytes_per_weight(spec) * network_weights(spec, environment) / 1e6
    round_mb = policy_mb * spec.actors.max
    rate = network_mb_per_s(node)
    takes_s = round_mb / rate
    if takes_s <= _LONGEST_S:
        return ()
    larger = node_for_traffic(round_mb / _LONGEST_S)
    return (
        f"{spec.actors.max} actors fetch {round_mb:.0f} MB of weights a round, which takes "
        f"{takes_s:.0f} s at the {rate:g} MB/s that {node} sustains: use {larger} "
        "(cache_node_type), fewer actors, or policy_precision float16",
    )
