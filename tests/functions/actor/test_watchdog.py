"""Rollouts whose environment hangs, and those that only take their time."""

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest

from functions.actor import watchdog
from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.watchdog import EnvironmentHungError, watched
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import describe, make_environment
from shared.policy.numpy_policy import NumpyPolicy
from tests.functions.actor.conftest import ScriptedEnv

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]


def test_a_step_that_hangs_is_ended_and_named(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    policy = load_discrete(2, 2)
    task = make_task(env_kwargs={"script": "...h"})
    before = signal.getsignal(signal.SIGALRM)
    message = "Scripted-v0: no step or reset has ended for 1 s.* raise NITRO_STEP_TIMEOUT_S"
    with pytest.raises(EnvironmentHungError, match=message) as caught:
        sample_fragment(task, [make_environment(task.env)], policy, step_timeout_s=1.0)
    first, *frames = str(caught.value).splitlines()
    assert frames[0].endswith(", in step")  # not the calls of ours and Gymnasium's that lead there
    assert f'File "{inspect.getfile(ScriptedEnv)}", line ' in frames[0]
    assert frames[1].strip() == "threading.Event().wait()"
    with pytest.raises(EnvironmentHungError, match=message):
        evaluate_episode(task, make_environment(task.env), policy, step_timeout_s=1.0)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_step_that_hangs_in_a_broken_episode_is_not_tried_again(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    task = make_task(env_kwargs={"script": ".rh....."})
    with pytest.raises(EnvironmentHungError, match="no step or reset has ended for 0.2 s"):
        sample_fragment(task, [make_environment(task.env)], load_discrete(2, 2), step_timeout_s=0.2)


def test_what_gets_on_is_left_alone_however_long_it_takes() -> None:
    looks = 0

    def progress() -> int:
        nonlocal looks
        looks += 1
        return looks

    with watched("Slow-v0", progress, timeout_s=0.02):
        while looks < 20:  # five time-outs
            signal.pause()


class Clock:
    """Stands in for the module `time`: at 100 s until it is told otherwise."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def look_at(self, now: float) -> None:
        """Let the watchdog look at that time."""
        self.now = now
        signal.raise_signal(signal.SIGALRM)


@pytest.fixture
def look_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    return clock.look_at


def test_what_does_not_even_begin_is_ended_after_one_time_out(
    look_at: Callable[[float], None],
) -> None:
    with watched("Stuck-v0", lambda: 0, timeout_s=1000):
        look_at(1099.0)
        with pytest.raises(EnvironmentHungError, match="Stuck-v0: no step or reset has ended"):
            look_at(1100.0)


def test_the_time_out_counts_from_the_look_that_saw_the_last_change(
    look_at: Callable[[float], None],
) -> None:
    steps = 0
    with watched("Slow-v0", lambda: steps, timeout_s=1000):
        look_at(1099.0)
        steps = 1
        look_at(1100.0)
        look_at(2099.0)
        steps = 2
        look_at(3500.0)
        look_at(4499.0)
        with pytest.raises(EnvironmentHungError, match="Slow-v0: no step or reset has ended"):
            look_at(4500.0)


def test_every_step_and_reset_of_every_environment_has_a_time_out_of_its_own(
    make_task: MakeTask,
    load_discrete: LoadPolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)

    class Slow(ScriptedEnv):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            clock.look_at(clock.now + 600)
            return super().reset(seed=seed, options=options)

        def step(self, action: np.int64) -> Any:
            clock.look_at(clock.now + 600)
            return super().step(action)

    task = make_task(steps=12, num_envs=3)
    envs = [Slow("...x....")] + [Slow() for _ in range(2)]
    trajectory = sample_fragment(task, envs, load_discrete(2, 2), step_timeout_s=1000)
    assert trajectory.dropped_episodes == 1
    assert clock.now == 100 + 600 * (3 + 3 * 4 + 1 + 4)


def test_it_looks_several_times_per_time_out() -> None:
    with watched("Any-v0", lambda: None, timeout_s=1000):
        first_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < first_s <= interval_s == 50


def test_outside_the_main_thread_nothing_is_watched() -> None:
    reached = threading.Event()

    def work() -> None:
        with watched("Any-v0", lambda: None, timeout_s=0.001):
            reached.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached.is_set()


def test_a_reset_counts_as_progress_of_an_evaluation(
    make_task: MakeTask, load_discrete: LoadPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Callable[[], object]] = []

    def watching(
        env_id: str, progress: Callable[[], object], **_: object
    ) -> AbstractContextManager[None]:
        looked_at.append(progress)
        assert progress() == 0
        return nullcontext()

    monkeypatch.setattr("functions.actor.rollout.watched", watching)
    task = make_task(env_kwargs={"script": "..r...t"})  # dropped once, so reset twice
    episode = evaluate_episode(task, make_environment(task.env), load_discrete(2, 2))
    (progress,) = looked_at
    assert (episode.length, progress()) == (4, 2 + 3 + 4)


def test_everything_that_is_tried_has_a_time_out_of_its_own(make_task: MakeTask) -> None:
    entered: list[int] = []

    @contextmanager
    def trying() -> Iterator[None]:
        entered.append(1)
        yield

    describe(make_task().env, while_trying=trying)
    assert len(entered) == 3  # a reset, the state it leaves, a step
