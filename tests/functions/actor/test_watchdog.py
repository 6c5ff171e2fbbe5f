"""Rollouts whose environment hangs, and those that only take their time."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.watchdog import EnvironmentHungError, watched
from shared.contracts import RolloutTask
from shared.envs import describe, make_environment
from shared.policy import NumpyPolicy

MakeTask = Callable[..., RolloutTask]
LoadPolicy = Callable[[int, int], NumpyPolicy]


def test_a_step_that_hangs_is_ended_and_named(
    make_task: MakeTask, load_discrete: LoadPolicy
) -> None:
    policy = load_discrete(2, 2)
    task = make_task(env_kwargs={"script": "...h"})
    before = signal.getsignal(signal.SIGALRM)
    message = "Scripted-v0: no step or reset has ended for 0.2 s.* raise NITRO_STEP_TIMEOUT_S"
    with pytest.raises(EnvironmentHungError, match=message):
        sample_fragment(task, [make_environment(task.env)], policy, step_timeout_s=0.2)
    with pytest.raises(EnvironmentHungError, match=message):
        evaluate_episode(task, make_environment(task.env), policy, step_timeout_s=0.2)
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


def test_the_tried_reset_and_the_tried_step_have_a_time_out_each(make_task: MakeTask) -> None:
    entered: list[int] = []

    @contextmanager
    def trying() -> Iterator[None]:
        entered.append(1)
        yield

    describe(make_task().env, while_trying=trying)
    assert len(entered) == 2
