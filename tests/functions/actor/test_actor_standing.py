"""An actor that still has an environment where an episode was left goes on with it."""

import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from numpy.typing import NDArray

from functions.actor.actor import Actor
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import RolloutTask
from shared.environments.describing import describe
from shared.trajectory import codec
from shared.trajectory.trajectory import decode_trajectory

Arrays = dict[str, NDArray[np.generic]]
MakePolicy = Callable[[int, int], tuple[Arrays, dict[str, str]]]
MakeTask = Callable[..., RolloutTask]
STREAMS, ROUNDS, STEPS = 3, 6, 40


class Windy(PendulumEnv):
    """Its wind comes from the global generators; counts steps of all environments."""

    num_steps = 0

    def step(self, u: Any) -> Any:
        Windy.num_steps += 1
        wind = random.gauss() + np.random.normal()  # noqa: NPY002 - that is the case
        observation, reward, *rest = super().step(u)  # type: ignore[no-untyped-call]
        return observation, reward + wind, *rest


@pytest.fixture(autouse=True)
def windy() -> Iterator[None]:
    gymnasium.register("Windy-v0", entry_point=lambda **_: Windy(), max_episode_steps=150)
    yield
    del gymnasium.registry["Windy-v0"]


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url) as client:
        yield client


def played(
    cache: TrajectoryCache, payload: bytes, make_task: MakeTask, actor: Callable[[], Actor]
) -> tuple[list[Arrays], int]:
    """Play rounds of some streams; return what came of them, and how many steps were taken."""
    job_id, results = f"job-{uuid.uuid4().hex}", list[Arrays]()
    cache.publish_policy(job_id, 2, payload)
    environment, before = describe(make_task("Windy-v0").env), Windy.num_steps
    starts = [b""] * STREAMS
    for number in range(ROUNDS):
        cache.publish_starts(job_id, number, starts)
        for index in range(STREAMS):
            task = make_task(
                "Windy-v0",
                job_id=job_id,
                round=number,
                actor_index=index,
                steps=STEPS,
                continues=True,
                replay_steps=150,
                seed=number * STREAMS + index,
            )
            actor().run(task, cold_start=False)
            (stored,) = cache.load_results(job_id, number, mode="sample", actor_indices=[index])
            assert stored is not None
            result = decode_trajectory(stored, environment=environment)
            assert result.begun_anew == 0
            (starts[index],) = result.snapshots
            results.append(codec.decode(stored).arrays)
    return results, Windy.num_steps - before


@pytest.mark.parametrize("kept", [1, STREAMS])
def test_whoever_goes_on_with_an_episode_it_is_the_same(
    kept: int, cache: TrajectoryCache, continuous_policy: MakePolicy, make_task: MakeTask
) -> None:
    payload = codec.encode(*continuous_policy(3, 1))
    one = Actor(cache, kept_environments=kept)
    by_many, most_steps = played(cache, payload, make_task, lambda: Actor(cache))
    by_one, steps = played(cache, payload, make_task, lambda: one)
    one.close()
    for first, second in zip(by_many, by_one, strict=True):
        assert first.keys() == second.keys()
        for name, array in first.items():
            np.testing.assert_array_equal(array, second[name], err_msg=name)
    # A single environment goes from stream to stream, so it is never where it is wanted.
    needed = STREAMS * ROUNDS * STEPS
    assert steps == (most_steps if kept == 1 else needed)
    assert most_steps > needed
