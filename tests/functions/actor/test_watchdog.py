"""Code that hangs and code that only takes its time, as a watchdog tells them apart."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.watchdog import CONSTRUCTION, EnvironmentHungError, Patience, Watchdog
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.policy.numpy_policy import NumpyPolicy
from tests.functions.actor.conftest import ScriptedEnv

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]


class Ending:
    """Notes what hangs, and lets it go on."""

    def __init__(self) -> None:
        self.errors: list[EnvironmentHungError] = []
        self.threads: list[str] = []
        self.go_on = threading.Event()

    def __call__(self, error: EnvironmentHungError) -> None:
        self.errors.append(error)
        self.threads.append(threading.current_thread().name)
        self.go_on.set()


def test_what_hangs_is_told_with_its_line_by_a_thread_of_its_own() -> None:
    ending = Ending()
    dog = Watchdog(timeout_s=0.2, give_up=ending)
    with dog.watching("Stuck-v0", lambda: 0, awaited=CONSTRUCTION):
        assert ending.go_on.wait(60)
    (error,) = ending.errors
    first, *frames = str(error).splitlines()
    assert first.startswith("Stuck-v0: its constructor has not ended for 0.2 s")
    assert "raise NITRO_STEP_TIMEOUT_S" in first
    assert any(frame.strip() == "signaled = self._cond.wait(timeout)" for frame in frames)
    assert ending.threads == ["watchdog"]
    assert "watchdog" not in [thread.name for thread in threading.enumerate()]


def test_code_that_uses_the_alarm_itself_is_watched_all_the_same() -> None:
    """A simulator may have timers of its own, and take away anybody else's."""
    ending, alarms = Ending(), []

    def ring(_number: int, _frame: FrameType | None) -> None:
        alarms.append(1)

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with Watchdog(timeout_s=0.3, give_up=ending).watching("Alarmed-v0", lambda: 0):
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            assert ending.go_on.wait(60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert len(ending.errors) == 1
    assert alarms


def test_what_gets_on_is_left_alone_however_long_it_takes() -> None:
    ending, enough = Ending(), threading.Event()
    looks = 0

    def progress() -> int:
        nonlocal looks
        looks += 1
        if looks == 100:  # five time-outs
            enough.set()
        return looks

    with Watchdog(timeout_s=0.02, give_up=ending).watching("Slow-v0", progress):
        assert enough.wait(60)
    assert ending.errors == []


def test_the_time_out_counts_from_the_look_that_saw_the_last_change() -> None:
    patience = Patience(1000.0, seen=0, since=100.0)
    looks = [(0, 1099.0), (1, 1100.0), (1, 2099.0), (2, 3500.0), (2, 4499.0)]
    assert [patience.is_over(seen, now) for seen, now in looks] == [False] * 5
    assert patience.is_over(2, 4500.0)


def test_what_does_not_even_begin_is_over_after_one_time_out() -> None:
    patience = Patience(1000.0, seen=0, since=100.0)
    assert not patience.is_over(0, 1099.0)
    assert patience.is_over(0, 1100.0)


class Noting(Watchdog):
    """Keeps what it could look at."""

    progress: Callable[[], object] = staticmethod(lambda: None)

    @contextmanager
    def watching(
        self, env_id: str, progress: Callable[[], object], *, awaited: str = ""
    ) -> Iterator[None]:
        object.__setattr__(self, "progress", progress)
        yield


def test_every_step_and_reset_of_every_environment_is_progress(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    dog = Noting(timeout_s=1000, give_up=Ending())
    seen: list[object] = []

    class Looking(ScriptedEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            seen.append(dog.progress())
            return super().reset(seed=seed, options=options)

        def step(self, action: np.int64) -> Any:
            seen.append(dog.progress())
            return super().step(action)

    task = make_task(steps=12, num_envs=3)
    envs = [Looking("...x....")] + [Looking() for _ in range(2)]
    trajectory = sample_fragment(task, envs, load_discrete(2, 2), watchdog=dog)
    assert trajectory.dropped_episodes == 1
    assert len(seen) == len(set(seen)) == 3 + 3 * 4 + 1 + 4


def test_a_reset_is_progress_of_an_evaluation(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    dog = Noting(timeout_s=1000, give_up=Ending())
    task = make_task(env_kwargs={"script": "..r...t"})  # dropped once, so reset twice
    env = make_environment(task.env)
    episode = evaluate_episode(task, env, load_discrete(2, 2), watchdog=dog)
    assert (episode.length, dog.progress()) == (4, 2 + 3 + 4)


def test_everything_that_is_tried_has_a_time_out_of_its_own(make_task: MakeTask) -> None:
    entered: list[int] = []

    @contextmanager
    def trying() -> Iterator[None]:
        entered.append(1)
        yield

    describe(make_task().env, while_trying=trying)
    repeated = 1 + 3 * 2  # a game, and again after others
    timed = 2  # a reset and a step, which is fast
    assert len(entered) == 3 + timed + repeated  # a reset, the state it leaves, a step
