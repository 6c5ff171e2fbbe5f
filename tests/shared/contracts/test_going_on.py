"""How episodes go on: from which environments and which sizes of jobs it follows."""

from typing import Any

import numpy as np
import pytest

from shared.contracts.going_on import (
    going_on,
    longest_replay,
    replay_bytes,
    resized,
    without_replays,
)
from shared.contracts.job_rules import require_scaling
from shared.contracts.job_spec import JobSpec
from shared.environments.state.replay import Replay, encode
from tests.services.scaler.lambda_endpoint import HOPPER

REPEATS = HOPPER.model_copy(update={"keeps_state": False, "repeats": "reused"})
REBUILT = HOPPER.model_copy(update={"keeps_state": False, "repeats": "rebuilt"})
NEVER = HOPPER.model_copy(update={"keeps_state": False, "repeats": "never"})


def default(**episodes: Any) -> JobSpec:
    """The job that `nitro train` begins from."""
    return JobSpec.model_validate(
        {
            "preset": "standard",
            "samples_per_round": 2048,
            "scaling": {"policy": "fixed", "num_actors": 8},
            "actors": {"min": 8, "max": 8},
            "episodes": {"horizon": "limit", "resize": True, **episodes},
        }
    )


def limited(steps: int | None, **fields: object) -> Any:
    return REPEATS.model_copy(update={"max_episode_steps": steps, **fields})


@pytest.mark.parametrize(
    ("environment", "episodes", "how"),
    [
        (HOPPER.model_copy(update={"keeps_state": True, "repeats": "never"}), {}, "state"),
        (REPEATS, {}, "replay"),
        (REPEATS.model_copy(update={"draws_globally": True}), {}, "replay"),
        (REBUILT, {}, "replay"),
        (NEVER, {}, "no"),
        (REPEATS, {"replay": "off"}, "no"),
        (REPEATS, {"horizon": "fragment"}, "no"),
        (REPEATS, {"replay": 0.6}, "replay"),  # 768 steps, and a fragment of 256
        (REPEATS, {"replay": 0.5}, "no"),  # 512 steps, and two actors play all 1,000
        (REPEATS, {"replay": 0.5, "resize": False}, "replay"),
        (limited(2048), {}, "replay"),
        (limited(None), {}, "replay"),
        (limited(500, episodes_are_lives=True), {}, "no"),
    ],
)
def test_state_comes_first_then_replays_that_are_not_too_dear(
    environment: Any, episodes: dict[str, Any], how: str
) -> None:
    assert going_on(default(**episodes), environment) == how


def test_environments_that_share_the_global_generators_are_not_repeated_side_by_side() -> None:
    for draws_globally, how in ((False, "replay"), (True, "no")):
        environment = REPEATS.model_copy(update={"draws_globally": draws_globally})
        spec = default().model_copy(update={"envs_per_actor": 2})
        assert going_on(spec, environment) == how


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_longest_replay_takes_the_share_that_is_allowed(share: float) -> None:
    longest, fragment = longest_replay(default(replay=share), REPEATS), 256
    mean_place = longest / 2
    assert mean_place / (mean_place + fragment) == pytest.approx(share, abs=0.002)


def test_a_replay_has_room_among_what_the_cache_holds() -> None:
    wide = REPEATS.action.model_copy(update={"low": (-1.0,) * 100, "high": (1.0,) * 100})
    longest = longest_replay(default(), REPEATS.model_copy(update={"action": wide}))
    assert 0 < longest * 100 * 8 <= 2**18


def test_admission_counts_more_bytes_than_the_longest_episode_takes() -> None:
    actions = [*np.random.default_rng(0).normal(size=(1000, 3))]  # float64, the widest there is
    taken = len(encode(Replay(2**62, actions=actions), longest=1000))
    assert 0.9 * 1000 * 3 * 8 < taken <= replay_bytes(default(), REPEATS)


@pytest.mark.parametrize(
    ("limit", "actors"), [(1000, 2), (200, 8), (1024, 2), (1600, 1), (27_000, 1), (None, 1)]
)
def test_without_either_actors_are_so_few_that_each_plays_whole_episodes(
    limit: int | None, actors: int
) -> None:
    never = NEVER.model_copy(update={"max_episode_steps": limit})
    job = resized(default(), never)
    assert (job.actors.min, job.actors.max) == (actors, actors)
    assert job.scaling.model_dump()["num_actors"] == actors
    assert job.steps_of(actors) == 2048 // actors
    require_scaling(job, job.scaling)


def test_a_job_of_ones_own_size_is_not_changed() -> None:
    for environment in (REPEATS, NEVER):
        given = default(resize=False)
        assert resized(given, environment) == given
        assert without_replays(given, environment) is None


def test_a_job_that_replays_keeps_its_actors_until_replays_fail() -> None:
    job = resized(default(), REPEATS)
    assert job.scaling == default().scaling
    assert going_on(job, REPEATS, lost_replays=2) == "replay"
    assert going_on(job, REPEATS, lost_replays=3) == "no"
    scaling = without_replays(job, REPEATS)
    assert scaling is not None
    require_scaling(job, scaling)
    assert job.steps_of(scaling.num_actors) == 1024
