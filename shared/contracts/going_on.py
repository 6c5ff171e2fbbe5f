"""How a job's episodes continue from fragment to fragment, as its environment allows.

    | environment                          | an episode that a fragment's end cuts off            |
    |--------------------------------------|------------------------------------------------------|
    | its state can be saved               | goes on from its state                               |
    | a seed and actions repeat an episode | goes on after its actions were repeated (a replay)   |
    | neither, or replays are too dear     | does not go on; with `resize` fragments are as long  |
    |                                      | as episodes                                          |

Several environments of a process that draw from its global generators disturb each other: with
`envs_per_actor` above 1 a seed and actions do not repeat their episodes.

Costs are counted in steps, not in seconds: equal jobs must be decided equally on any machine.
"""

import math
from collections.abc import Iterator
from typing import Literal

from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
)
from shared.contracts.job_spec import MAX_ACTOR_STEPS, JobSpec
from shared.contracts.scaling_spec import ActorRange, FixedScaling
from shared.hyperparameters.presets import resolve
from shared.hyperparameters.search import SearchHyperparameters

GoingOn = Literal["state", "replay", "no"]
SHARED_GENERATORS = (
    "an actor's environments share the global random generators of Python or NumPy, so their "
    "episodes cannot be repeated"
)
"""Why `disturbed` episodes do not continue."""
MOST_LOST_REPLAYS = 3
"""Number of differing replays after which a job stops replaying."""
_REPLAY_BYTES = 2**12
"""Bytes of an episode left as its actions, without the actions."""
_MAX_ACTIONS_BYTES = 2**18 - _REPLAY_BYTES
"""The rest of a snapshot's bytes."""
_NUMBER_BYTES = 8
"""Bytes of a whole number, or of a float64 number; most boxes are float32."""


def going_on(spec: JobSpec, environment: EnvironmentSpec, *, lost_replays: int = 0) -> GoingOn:
    """Return how a job's episodes continue.

    Args:
        spec: The job, its horizon resolved.
        environment: Its environment.
        lost_replays: Number of differing replays so far.
    """
    if not spec.episodes.go_on or spec.searches or environment.agents > 1:
        return "no"
    if environment.keeps_state:
        return "state"
    if environment.episodes_are_lives:  # a seeded reset begins another game
        return "no"
    repeats = environment.repeats in ("reused", "rebuilt") and not disturbed(spec, environment)
    if not repeats or lost_replays >= MOST_LOST_REPLAYS:
        return "no"
    longest = longest_replay(spec, environment)
    limit = longest_episode(spec, environment) or math.inf
    reached = min(limit, longest + _steps_of_each(spec, spec.actors.max))
    actors = _actors_of_whole_episodes(spec, environment)
    if actors is not None and reached < min(
        limit, _steps_of_each(_with_actors(spec, actors), actors)
    ):
        return "no"
    return "replay" if longest else "no"


def disturbed(spec: JobSpec, environment: EnvironmentSpec) -> bool:
    """Whether an actor's environments share random generators, so that episodes cannot repeat."""
    return environment.draws_globally and spec.envs_per_actor > 1


def longest_episode(spec: JobSpec, environment: EnvironmentSpec) -> int | None:
    """Return the most steps of a training episode; None for no limit."""
    limits = (environment.max_episode_steps, spec.episodes.cut_at)
    return min((limit for limit in limits if limit is not None), default=None)


def longest_replay(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the longest episode, in steps, whose actions may be repeated.

    If all episodes are that long, an actor repeats half of one on average. That number, relative to
    a fragment's steps, is the share that the job allows.
    """
    share = spec.episodes.replay_share
    fragment = _steps_of_each(spec, spec.actors.max)
    affordable = int(2 * fragment * share / (1 - share) + 1e-9)
    return min(affordable, _MAX_ACTIONS_BYTES // _action_bytes(environment))


def replay_bytes(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the most bytes of an episode left as its actions."""
    longest = longest_replay(spec, environment)
    steps = min(longest, longest_episode(spec, environment) or longest)
    return _REPLAY_BYTES + steps * _action_bytes(environment)


def _action_bytes(environment: EnvironmentSpec) -> int:
    action = environment.action
    if isinstance(action, ContinuousActionSpec):
        return _NUMBER_BYTES * len(action.low)
    choices = action.num_choices if isinstance(action, MultiDiscreteActionSpec) else (1,)
    return _NUMBER_BYTES * len(choices)


def resized(spec: JobSpec, environment: EnvironmentSpec) -> JobSpec:
    """Return a job as it is queued: with fewer actors if whole episodes require that.

    A job with replays may need fewer actors later, so its range includes them. A search
    has at most one actor for each episode, and the most steps that an actor's episodes may have.
    An actor has as many environments as there are agents, unless the job says how many.
    """
    spec = with_agents(spec, environment)
    if spec.searches:
        return _searching(spec, environment)
    actors = _actors_of_whole_episodes(spec, environment)
    how = going_on(spec, environment)
    if actors is None or not spec.episodes.go_on or how == "state":
        return spec
    if how == "replay":
        fewest = min(actors, spec.actors.min)
        return spec.model_copy(update={"actors": _ranged(spec, fewest, spec.actors.max)})
    return _with_actors(spec, actors)


def with_agents(spec: JobSpec, environment: EnvironmentSpec) -> JobSpec:
    """Return a job with an environment for each agent, unless it says how many there are."""
    if spec.envs_per_actor > 1:
        return spec
    return spec.model_copy(update={"envs_per_actor": environment.agents})


def unfilled(spec: JobSpec, environment: EnvironmentSpec) -> Iterator[tuple[str, str]]:
    """Yield the field and reason of environments or steps that no number of agents fills."""
    agents, envs = environment.agents, spec.envs_per_actor
    if envs % agents:
        yield "envs_per_actor", f"{envs} is no multiple of the {agents} agents of {spec.env_id}"
        return
    steps = spec.steps_of(spec.actors.max)
    if not steps or steps % envs:
        share = envs * (spec.actors.max if spec.samples_per_round else 1)
        yield (
            spec.size_field,
            f"{steps} steps of an actor cannot be shared by its {envs} environments, one for each "
            f"agent of {spec.env_id}: give a multiple of {share}",
        )


def _searching(spec: JobSpec, environment: EnvironmentSpec) -> JobSpec:
    rule = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    assert isinstance(rule, SearchHyperparameters), "nothing else searches"
    fewest, most = (min(n, rule.num_episodes) for n in (spec.actors.min, spec.actors.max))
    changes: dict[str, object] = {
        "actors": _ranged(spec, fewest, most),
        "steps_per_actor": min(
            rule.most_iterations * longest_search(spec, environment), MAX_ACTOR_STEPS
        ),
    }
    if isinstance(spec.scaling, FixedScaling) and spec.scaling.num_actors > most:
        changes["scaling"] = FixedScaling(policy="fixed", num_actors=most)
    return spec.model_copy(update=changes)


def longest_search(spec: JobSpec, environment: EnvironmentSpec) -> int:
    """Return the most steps of an equal share of an iteration among a search's fewest actors."""
    rule = resolve(spec.algorithm, spec.preset, spec.hyperparameters)
    assert isinstance(rule, SearchHyperparameters), "nothing else searches"
    fewest = min(spec.actors.min, rule.num_episodes)
    return math.ceil(rule.num_episodes / fewest) * (longest_episode(spec, environment) or 1)


def without_replays(spec: JobSpec, environment: EnvironmentSpec) -> FixedScaling | None:
    """Return the new scaling policy of a job that stops replaying; None to keep its own."""
    actors = _actors_of_whole_episodes(spec, environment)
    return None if actors is None else FixedScaling(policy="fixed", num_actors=actors)


def _with_actors(spec: JobSpec, actors: int) -> JobSpec:
    return spec.model_copy(
        update={
            "actors": _ranged(spec, actors, actors),
            "scaling": FixedScaling(policy="fixed", num_actors=actors),
        }
    )


def _ranged(spec: JobSpec, fewest: int, most: int) -> ActorRange:
    return spec.actors.model_copy(update={"min": fewest, "max": most})


def _steps_of_each(spec: JobSpec, actors: int) -> int:
    """Return the steps of a fragment in each environment."""
    return spec.steps_of(actors) // spec.envs_per_actor


def _actors_of_whole_episodes(spec: JobSpec, environment: EnvironmentSpec) -> int | None:
    """Return the number of actors in a round for which each can play a whole episode.

    If an episode is longer than the round, or has no limit, the number is 1. None if the job does
    not allow a change.
    """
    if not spec.episodes.resize or spec.samples_per_round is None:
        return None
    limit = longest_episode(spec, environment) or spec.samples_per_round
    fitting = spec.samples_per_round // (limit * spec.envs_per_actor)
    return max(1, min(fitting, spec.actors.max))
