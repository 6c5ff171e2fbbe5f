"""Actors on the learner's own cores: what they bring, what is lost with one, and their end."""

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from functions.actor.actor import Actor
from services.learner.own.actors import OwnActors, OwnOutcome
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import RolloutTask
from tests.nitro.process_table import alive, eventually
from tests.patience import ANSWER_S
from tests.services.learner.own.conftest import publish, task


def ended(
    actors: OwnActors, tasks: Sequence[RolloutTask], *, limit_s: float = ANSWER_S
) -> dict[int, OwnOutcome]:
    """Do tasks; return how each ended, by actor index."""
    told: queue.SimpleQueue[OwnOutcome] = queue.SimpleQueue()
    actors.submit(tasks, told.put, limit_s=limit_s)
    outcomes = [told.get(timeout=4 * ANSWER_S) for _ in tasks]
    return {outcome.task.actor_index: outcome for outcome in outcomes}


def stored(cache: TrajectoryCache, job: str, number: int) -> list[bytes | None]:
    return cache.load_results(job, 0, mode="sample", actor_indices=range(number))


def test_own_actors_bring_what_an_actor_here_brings_to_the_bit(
    actors: OwnActors, cache: TrajectoryCache
) -> None:
    job = publish(cache, 4)
    tasks = [task(job, index, env_id="CartPole-v1") for index in range(5)]
    outcomes = ended(actors, tasks)
    assert all(each.report and each.report.outcome == "stored" for each in outcomes.values())
    brought = stored(cache, job, 5)
    cache.drop_results(job, 0, mode="sample", actor_indices=range(5))
    actor = Actor(cache)
    for each in reversed(tasks):
        actor.run(each, cold_start=False)
    actor.close()
    assert stored(cache, job, 5) == brought
    assert len({*brought}) == 5


@pytest.mark.parametrize(
    ("trouble", "failure", "lost"),
    [("killed", "lost", 2), ("raise", "environment", 1), ("hung", "lost", 2)],
)
def test_trouble_loses_a_task_and_nothing_else(
    actors: OwnActors, job: str, trouble: str, failure: str, lost: int
) -> None:
    limit_s = 1.5 if trouble == "hung" else ANSWER_S
    ended(actors, [task(job, 6), task(job, 7)])  # they have loaded their libraries
    bad = ended(actors, [task(job, 0, trouble=trouble)], limit_s=limit_s)[0]
    assert (bad.report, bad.failure, bad.lost) == (None, failure, lost)
    good = ended(actors, [task(job, 2), task(job, 3)])
    assert all(each.report is not None and not each.lost for each in good.values())


def test_a_task_whose_process_was_killed_is_done_once_more(
    actors: OwnActors, cache: TrajectoryCache, job: str
) -> None:
    outcome = ended(actors, [task(job, 0, trouble="killed", once="mark")])[0]
    assert outcome.report is not None
    assert outcome.report.outcome == "stored"
    assert outcome.lost == 1
    (found,) = stored(cache, job, 1)
    assert found is not None


def test_dropped_tasks_are_not_told_and_processes_go_on(actors: OwnActors, job: str) -> None:
    told: list[OwnOutcome] = []
    hung = [task(job, index, trouble="hung") for index in range(4)]
    actors.submit(hung, told.append, limit_s=4 * ANSWER_S)
    actors.drop()
    assert len(ended(actors, [task(job, 1)])) == 1
    assert not told


_LEARNER = """
import sys, time
from services.learner.own.actors import OwnActors

actors = OwnActors(2, variables={})
while len(actors.pids) < 2:
    time.sleep(0.01)
print(*actors.pids, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills them on Linux")
def test_a_killed_learner_leaves_no_process(variables: Mapping[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _LEARNER],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as learner:
        assert learner.stdout is not None
        pids = [int(pid) for pid in learner.stdout.readline().split()]
        assert len(pids) == 2
        learner.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(alive, pids)))
