"""Rollouts whose environment hangs, and those that only take their time."""

import signal
import threading
from collections.abc import Callable

import pytest

from functions.actor.rollout import evaluate_episode, sample_fragment
from functions.actor.watchdog import EnvironmentHungError, watched
from shared.contracts import RolloutTask
from shared.envs import make_environment
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
