"""Rounds of a search with real actors, against a real cache and a scaler that answers by script."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import torch
from numpy.typing import NDArray

from functions.actor.actor import Actor
from functions.actor.errors import RolloutError
from functions.actor.search import search_episodes
from functions.actor.watchdog import Watchdog
from learning.algorithms.algorithm import Algorithm
from learning.algorithms.registry import build_algorithm
from learning.detectors.registry import build_detector
from services.learner.record.checkpoint import RunState
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.lost_round import RoundLostError
from services.learner.rounds.search_collector import SearchCollector
from services.learner.rounds.synchronous import SynchronousRounds
from shared.artifacts.local import LocalArtifacts
from shared.cache import keys
from shared.cache.client import TrajectoryCache
from shared.cache.search_queue import QueueClosedError
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.jobs import Job
from shared.contracts.rollouts import ActorReport, RolloutTask
from shared.contracts.rounds import RoundPlan, RoundRequest, RoundResult
from shared.contracts.stop_rule import MAX_ROUNDS
from shared.environments.describing import describe
from shared.trajectory import codec
from shared.trajectory.episode_sums import EpisodeSums
from shared.trajectory.rollout_tasks import rollout_tasks
from tests.services.learner.made_rounds import deliver_episode, plan
from tests.services.learner.scripted_scaler import (
    Launch,
    ScriptedScaler,
    fail_actors,
    job,
    serving,
    wired,
)

CARTPOLE = describe(EnvironmentRef(env_id="CartPole-v1"))
PARTS = 8
ITERATIONS = 3
TARGET: dict[str, object] = {
    "stop": {"max_rounds": 5, "target_return": 1e9},
    "evaluation": {"every_rounds": 1, "episodes": 1},
}
"""Evaluations of a job with a target are awaited within the round."""
_JOBS = count()


class Killed(BaseException):
    """An actor's process was killed."""


def search_job(iterations: int, **changes: object) -> Job:
    """Return a job of ARS whose iterations have eight parts of an episode each."""
    rule = {"directions": PARTS // 2, "top_directions": PARTS // 2, "iterations": iterations}
    made = job(
        f"searching-{next(_JOBS)}",
        env_id="CartPole-v1",
        algorithm="ars",
        hyperparameters=rule,
        actors={"min": 2, "max": 4},
        episodes={"horizon": 60},
        **changes,
    )
    return made.model_copy(update={"environment": CARTPOLE})


class Rig:
    """Rounds of a search, its scaler, and actors in threads of this process."""

    def __init__(self, made: Job, stack: ExitStack, runs: Path, url: str, rounds: int) -> None:
        self.job, self.url = made, url
        self.scaler = stack.enter_context(serving(made, url, rounds=rounds))
        self.cache = stack.enter_context(TrajectoryCache(url))
        self.shutdown = threading.Event()
        self.results: list[RoundResult] = []
        self.algorithm: Algorithm = build_algorithm(made, device=torch.device("cpu"))
        self._stack, self._artifacts = stack, LocalArtifacts(runs)
        self.actors: list[threading.Thread] = []
        self.evaluates_in: dict[int, int] = {}
        """The attempt that plays a round's episodes; default: the first."""
        stack.callback(self._join)

    def run(self, launch: Launch | None = None, **changes: object) -> NDArray[np.generic]:
        """Train to the end; return the weights."""

        def launch_all(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
            if made.num_actors:
                (launch or self.launch)(scaler, made, request)
            played = made.attempt == self.evaluates_in.get(made.round, 0)
            for index in range(made.num_evaluations * played):
                deliver_episode(
                    scaler.cache,
                    made.job_id,
                    index,
                    round_index=made.round,
                    policy_version=made.policy_version,
                )

        self.scaler.launch = launch_all
        self.scaler.changes = {"num_actors": 2, "quorum": 1, "num_evaluations": 0, **changes}
        parts = wired(
            self.scaler, self._stack, self._artifacts, self.cache, self.shutdown, max_reopenings=1
        )
        session = SynchronousRounds(
            **parts,
            state=RunState(next_round=0, policy_version=0, curvature=None, previous=None),
            earlier_policies={},
            algorithm=self.algorithm,
            detector=build_detector(self.job.spec.detector),
            observe=lambda line: self.results.append(line.result) if line.result else None,
        )
        session.run()
        return self.weights

    @property
    def weights(self) -> NDArray[np.generic]:
        return self.algorithm.state()[0]["weights"]

    def tasks(self, made: RoundPlan, request: RoundRequest) -> list[RolloutTask]:
        wanted = range(made.num_actors) if request.missing is None else request.missing
        return [*rollout_tasks(self.job, made, lease_id="l", samples=wanted, evaluations=())]

    def launch(self, _scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        for task in self.tasks(made, request):
            self.start(task)

    def start(self, task: RolloutTask) -> None:
        def play() -> None:
            with TrajectoryCache(self.url) as cache:
                try:
                    Actor(cache).run(task, cold_start=False)
                except Killed:
                    cache.announce_failure(
                        task.job_id,
                        task.round,
                        mode="sample",
                        actor_index=task.actor_index,
                        attempt=task.attempt,
                        reason="crashed",
                    )

        self.actors.append(threading.Thread(target=play))
        self.actors[-1].start()

    def die(self, made: RoundPlan, index: int) -> None:
        """Let an actor take a part and end, and tell the learner."""

        def take() -> None:
            with TrajectoryCache(self.url) as cache:
                assert cache.take_part(made.job_id, made.round, actor_index=index, timeout_s=5.0)
            fail_actors(self.scaler, made, index)

        self.actors.append(threading.Thread(target=take))
        self.actors[-1].start()

    def _join(self) -> None:
        for thread in self.actors:
            thread.join()


MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(cache_url: str, tmp_path: Path) -> Iterator[MakeRig]:
    with ExitStack() as stack:

        def make(rounds: int = 2, iterations: int = ITERATIONS, **changes: object) -> Rig:
            made = search_job(iterations, **changes)
            return Rig(made, stack, tmp_path, cache_url, rounds)

        yield make


@pytest.fixture
def undisturbed(make_rig: MakeRig) -> NDArray[np.generic]:
    """Weights after two rounds of three iterations."""
    return make_rig().run()


def test_a_round_has_several_iterations_and_its_actors_are_launched_once(
    make_rig: MakeRig, undisturbed: NDArray[np.generic]
) -> None:
    rig = make_rig()
    assert (rig.run(num_actors=3) == undisturbed).all()
    assert len(rig.actors) == 2 * 3
    assert [result.policy_version for result in rig.results] == [3, 6]
    first = rig.results[0]
    assert len(first.episode_returns) == ITERATIONS * PARTS
    assert first.env_steps == sum(first.episode_returns)
    assert first.stats["updates"] == ITERATIONS
    counts = first.trajectories
    assert (counts.launched, counts.used, counts.lost) == (3, 3, 0)
    with redis.Redis.from_url(rig.url) as server:
        left = {key.decode() for key in server.scan_iter(f"nitro:{{{rig.job.job_id}}}:*")}
    assert not {key for key in left if "queue" in key or ":search:" in key or ":policy:" in key}


def test_weights_do_not_depend_on_the_division_into_rounds(
    make_rig: MakeRig, undisturbed: NDArray[np.generic]
) -> None:
    alone = make_rig(rounds=6, iterations=1)
    assert (alone.run() == undisturbed).all()
    assert len(alone.results) == 6


def leave_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the learner leave before the round's second iteration."""

    def next_iteration(collector: SearchCollector, policy: bytes) -> None:
        if rig.algorithm is first:
            raise LeftEarly("asked to leave")
        whole(collector, policy)

    first, whole = rig.algorithm, SearchCollector.next_iteration
    with monkeypatch.context() as patch:
        patch.setattr(SearchCollector, "next_iteration", next_iteration)
        with pytest.raises(LeftEarly):
            rig.run()
    assert not rig.results
    rig.algorithm = build_algorithm(rig.job, device=torch.device("cpu"))


def test_a_learner_that_leaves_within_a_round_leaves_it_to_the_next_one(
    make_rig: MakeRig, undisturbed: NDArray[np.generic], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    leave_once(rig, monkeypatch)
    assert (rig.run() == undisturbed).all()


def test_a_learner_that_resumes_gives_up_the_same_parts(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if fails and arguments[0].round == 0 and arguments[2] == 1:
            raise RolloutError("it fell over")
        return search_episodes(*arguments, **more)

    fails = True
    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    alone = make_rig().run()
    rig = make_rig()
    leave_once(rig, monkeypatch)
    fails = False
    assert (rig.run() == alone).all()
    assert len(rig.results[0].episode_returns) == ITERATIONS * PARTS - 1


def test_a_round_ends_before_its_functions_do(
    make_rig: MakeRig, undisturbed: NDArray[np.generic]
) -> None:
    by_steps = {"stop": {"max_rounds": MAX_ROUNDS, "max_env_steps": 10**6}}
    short = make_rig(rounds=2 * ITERATIONS, **by_steps)
    assert (short.run(timeout_s=1e-9) == undisturbed).all()
    assert [result.policy_version for result in short.results] == [1, 2, 3, 4, 5, 6]
    for timeout_s, own, more in (
        (600.0, 0, by_steps),
        (1e-9, 2, by_steps),  # no functions
        (1e-9, 0, {}),  # the number of rounds ends the job, so each has all its iterations
    ):
        rig = make_rig(**more)
        rig.run(timeout_s=timeout_s, own=own)
        assert [result.policy_version for result in rig.results] == [3, 6]


@pytest.mark.parametrize("survivors", [1, 0])
def test_parts_of_dead_actors_are_played_by_others_and_all_are_launched_again_once_none_is_left(
    make_rig: MakeRig, undisturbed: NDArray[np.generic], survivors: int
) -> None:
    rig, asked = make_rig(), list[tuple[int, ...] | None]()

    def launch(_: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        asked.append(request.missing)
        for task in rig.tasks(made, request):
            if made.round or made.attempt or task.actor_index >= 2 - survivors:
                rig.start(task)
            else:
                rig.die(made, task.actor_index)

    assert (rig.run(launch) == undisturbed).all()
    assert asked == ([None, None] if survivors else [None, (0, 1), None])
    assert rig.results[0].trajectories.lost == survivors


class Refusals(logging.Handler):
    """Counts the results that the learner refused."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = threading.Event()
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._count += record.msg == "result refused"
        if self._count == 2:
            self.twice.set()


@pytest.fixture
def refusals() -> Iterator[Refusals]:
    handler, log = Refusals(), logging.getLogger("services.learner.rounds.inbox")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


@pytest.mark.parametrize("again", [False, True])
def test_actors_that_die_after_an_awaited_evaluation_are_noticed(
    make_rig: MakeRig,
    undisturbed: NDArray[np.generic],
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    rig, killed, asked = make_rig(**TARGET), list[int](), list[tuple[int, ...] | None]()

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if arguments[0].round == 1 and arguments[2] == PARTS + 1 and not killed:
            killed.append(arguments[2])
            raise Killed
        return search_episodes(*arguments, **more)

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        asked.append(request.missing)
        if again and made.round == 1 and not made.attempt:
            fail_actors(scaler, made, 0, mode="evaluate", kind="vanished")
        for task in rig.tasks(made, request):
            rig.start(task)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    rig.evaluates_in[1] = int(again)
    assert (rig.run(launch, num_evaluations=1) == undisturbed).all()
    assert killed
    assert asked == ([None, None, ()] if again else [None, None])
    assert [result.trajectories.lost for result in rig.results] == [0, 1]


@pytest.mark.parametrize("kills", [3, 8])
def test_a_part_is_given_up_after_four_actors_have_died_with_it(
    make_rig: MakeRig,
    undisturbed: NDArray[np.generic],
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
) -> None:
    rig, killed = make_rig(), list[int]()

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if arguments[0].round == 0 and arguments[2] == PARTS + 1 and len(killed) < kills:
            killed.append(arguments[2])
            raise Killed
        return search_episodes(*arguments, **more)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    weights = rig.run(num_actors=5)
    assert len(killed) == min(kills, 4)
    assert (weights == undisturbed).all() == (kills < 4)
    assert len(rig.results[0].episode_returns) == ITERATIONS * PARTS - (kills >= 4)
    assert rig.results[0].trajectories.lost == len(killed)


def test_a_failure_of_an_earlier_iteration_is_not_blamed(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if arguments[2] == 1:
            raise RolloutError("it fell over")
        if arguments[2] >= PARTS:
            raise Killed
        return search_episodes(*arguments, **more)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    with pytest.raises(RoundLostError, match="^crashed\n") as lost:
        make_rig(rounds=1).run()
    assert not lost.value.fails_again


def test_a_part_whose_environment_fails_twice_does_not_count_and_slower_parts_do(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, refusals: Refusals
) -> None:
    rig, tried = make_rig(rounds=1), list[int]()

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if arguments[2] == PARTS + 1:  # of the second iteration
            tried.append(arguments[2])
            raise RolloutError("it fell over")
        if arguments[2] == 2 * PARTS - 1:
            assert refusals.twice.wait(20.0)
        return search_episodes(*arguments, **more)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    rig.run()
    (result,) = rig.results
    assert len(tried) == 2
    assert len(result.episode_returns) == ITERATIONS * PARTS - 1
    assert result.stats["directions"] == pytest.approx(PARTS / 2 - 1 / ITERATIONS)


def test_an_environment_that_always_fails_ends_the_job_with_its_words(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(*_: object, **__: object) -> EpisodeSums:
        raise RolloutError("it fell over")

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    with pytest.raises(RoundLostError, match="^it fell over\n[1-8] of 8 parts of round 0") as lost:
        make_rig(rounds=1).run()
    assert lost.value.fails_again


def test_a_round_ends_when_the_job_has_its_steps(make_rig: MakeRig) -> None:
    rig = make_rig(rounds=1, stop={"max_rounds": 5, "max_env_steps": 1})
    rig.run()
    assert [result.policy_version for result in rig.results] == [1]


def test_a_request_to_stop_keeps_the_iterations_before_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(rounds=5)
    whole = SearchCollector.next_iteration

    def next_iteration(collector: SearchCollector, policy: bytes) -> None:
        whole(collector, policy)
        rig.cache.close_queue(rig.job.job_id, 0)  # nobody plays it
        rig.scaler.heartbeat = (200, {"expires_in_s": 30.0, "stop": "user"})

    monkeypatch.setattr(SearchCollector, "next_iteration", next_iteration)
    monkeypatch.setattr(SearchCollector, "after_silence", lambda _: None)
    with pytest.raises(LeftEarly):
        rig.run()
    assert [result.policy_version for result in rig.results] == [1]


def test_without_any_actor_the_round_is_lost(make_rig: MakeRig) -> None:
    rig = make_rig(rounds=1)

    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        fail_actors(scaler, made, 0, 1)

    with pytest.raises(
        RoundLostError, match=r"^crashed\nround 0: only 0 of 8 parts of iteration 0 arrived"
    ):
        rig.run(launch)


def test_an_iteration_waits_for_slow_parts_as_long_as_some_arrive(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make_rig(rounds=1, iterations=1).run()
    rig = make_rig(rounds=1, iterations=1)

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        time.sleep(0.7)
        return search_episodes(*arguments, **more)

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if not made.attempt:  # nobody else comes to help
            rig.launch(scaler, made, request)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    assert (rig.run(launch, deadline_s=0.9) == alone).all()
    assert len(rig.results[0].episode_returns) == PARTS


def test_actors_that_all_end_early_are_launched_again_as_long_as_parts_arrive(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = make_rig(rounds=1, iterations=1).run()
    rig, of_actor = make_rig(rounds=1, iterations=1), threading.local()

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if hasattr(of_actor, "has_played"):
            raise Killed
        of_actor.has_played = True
        return search_episodes(*arguments, **more)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    assert (rig.run() == alone).all()
    assert len(rig.actors) == PARTS


def test_an_iteration_without_some_of_its_parts_is_not_learned(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, over = make_rig(rounds=1), threading.Event()

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        if arguments[2] >= PARTS - 2:
            over.wait(60.0)
        return search_episodes(*arguments, **more)

    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    try:
        with pytest.raises(RoundLostError, match="only 6 of 8 .* all are needed.* lower hyper"):
            rig.run(deadline_s=1.0)
    finally:
        over.set()


def test_keys_outlive_an_iteration_that_advances(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, left_ms = make_rig(rounds=1, iterations=2), dict[int, int]()

    def play(*arguments: Any, **more: Any) -> EpisodeSums:
        named = keys.queue(rig.job.job_id, 0), keys.policy(rig.job.job_id, 0)
        with redis.Redis.from_url(rig.url) as server:
            left_ms[arguments[2]] = min(int(server.pttl(name)) for name in named)
            for name in named:
                server.pexpire(name, 60_000)  # as if most of the time had passed
        return search_episodes(*arguments, **more)

    monkeypatch.setattr("services.learner.rounds.search_collector._RENEWAL_S", 0.0)
    monkeypatch.setattr("functions.actor.actor.search_episodes", play)
    rig.run(num_actors=1)
    # The learner has taken in all parts of an iteration before it queues the next.
    assert left_ms[PARTS] > 60_000


def test_an_actor_goes_on_behind_a_part_of_an_iteration_that_is_over(make_rig: MakeRig) -> None:
    rig = make_rig()
    cache, job_id = rig.cache, rig.job.job_id
    (task,) = rollout_tasks(rig.job, plan(job_id), lease_id="l", samples=(0,), evaluations=())
    cache.open_queue(job_id, 0)
    cache.publish_policy(job_id, 2, codec.encode(*rig.algorithm.policy_payload()))
    # Its last call died between the result and the mark; the policy of then is deleted.
    cache.queue_parts(job_id, 0, [0, 2 * PARTS])
    assert cache.take_part(job_id, 0, actor_index=0, timeout_s=5.0)
    cache.store_result(job_id, 0, mode="search", actor_index=0, payload=b"played")
    reports: list[ActorReport] = []

    def stored(part: int) -> bool:
        return cache.load_results(job_id, 0, mode="search", actor_indices=[part]) != [None]

    def play() -> None:
        with TrajectoryCache(rig.url) as own:
            reports.append(Actor(own).run(task, cold_start=False))

    thread = threading.Thread(target=play)
    thread.start()
    while thread.is_alive() and not stored(2 * PARTS):
        thread.join(0.01)
    cache.close_queue(job_id, 0)
    thread.join()
    assert [len(report.episode_returns) for report in reports] == [1]


def test_a_round_of_many_iterations_has_few_policies_in_the_cache(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, held = make_rig(rounds=1, iterations=6), list[int]()
    whole = SearchCollector.next_iteration

    def next_iteration(collector: SearchCollector, policy: bytes) -> None:
        whole(collector, policy)
        with redis.Redis.from_url(rig.url) as server:
            held.append(sum(1 for _ in server.scan_iter(f"nitro:{{{rig.job.job_id}}}:policy:*")))

    monkeypatch.setattr(SearchCollector, "next_iteration", next_iteration)
    rig.run()
    assert held == [2, 3, 3, 3, 3]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_part_that_is_lost_or_damaged_in_the_cache_is_queued_again(
    make_rig: MakeRig,
    undisturbed: NDArray[np.generic],
    monkeypatch: pytest.MonkeyPatch,
    damaged: bool,
) -> None:
    rig, struck = make_rig(), list[int]()
    load = TrajectoryCache.load_results

    def lose_one(cache: TrajectoryCache, job_id: str, round: int, **of: object) -> object:
        if of["mode"] == "search" and 0 in of["actor_indices"] and not struck:  # type: ignore[operator]
            name = keys.result(job_id, round, "search", 0)
            with redis.Redis.from_url(rig.url) as server:
                struck.extend([0] * bool(server.exists(name)))
                if struck:
                    _ = server.set(name, b"?") if damaged else server.delete(name)
        return load(cache, job_id, round, **of)  # type: ignore[arg-type]

    monkeypatch.setattr(TrajectoryCache, "load_results", lose_one)
    assert (rig.run() == undisturbed).all()
    assert struck


def test_episodes_are_launched_before_actors_that_stay_for_the_round(make_rig: MakeRig) -> None:
    made = make_rig().job
    tasks = rollout_tasks(made, plan(made.job_id), lease_id="l", samples=(0, 1), evaluations=(0,))
    assert [task.mode for task in tasks] == ["evaluate", "sample", "sample"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let actors wait only briefly."""
    monkeypatch.setattr("functions.actor.actor._IDLE_S", 0.05)
    monkeypatch.setattr("functions.actor.actor._LOOK_S", 0.01)


@pytest.mark.usefixtures("impatient")
def test_an_idle_actor_takes_over_what_a_dead_one_had(make_rig: MakeRig) -> None:
    rig = make_rig()
    job_id = rig.job.job_id
    (task,) = rollout_tasks(rig.job, plan(job_id), lease_id="l", samples=(0,), evaluations=())
    rig.cache.open_queue(job_id, 0)
    rig.cache.publish_policy(job_id, 0, codec.encode(*rig.algorithm.policy_payload()))
    rig.cache.queue_parts(job_id, 0, [0, 1])
    # Nobody takes this part away from it: its learner is dead, or it waits to be called again.
    assert rig.cache.take_part(job_id, 0, actor_index=9, timeout_s=1.0)
    reports: list[ActorReport] = []

    def play() -> None:
        reports.append(Actor(rig.cache).run(task, cold_start=False))

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    thread.join(60.0)
    (report,) = reports
    assert (report.outcome, len(report.episode_returns)) == ("cancelled", 2)
    assert not rig.cache.has_unfinished(job_id, 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("played", "patience_s"), [(1, 2000.0), (0, 300.0)])
def test_a_hang_is_announced_before_others_take_the_part_over(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, played: int, patience_s: float
) -> None:
    rig, asked = make_rig(), list[float]()
    job_id = rig.job.job_id

    def noted(*_: object, after_s: float, **__: object) -> None:
        asked.append(after_s)
        rig.cache.close_queue(job_id, 0)

    monkeypatch.setattr(TrajectoryCache, "take_over_part", noted)
    (task,) = rollout_tasks(rig.job, plan(job_id), lease_id="l", samples=(0,), evaluations=())
    rig.cache.open_queue(job_id, 0)
    rig.cache.publish_policy(job_id, 0, codec.encode(*rig.algorithm.policy_payload()))
    rig.cache.queue_parts(job_id, 0, range(played))
    watchdog = Watchdog(timeout_s=1000.0, give_up=lambda _: None)
    report = Actor(rig.cache, watchdog=watchdog).run(task, cold_start=False)
    assert asked == [patience_s]
    assert len(report.episode_returns) == played


def test_parts_behind_many_that_are_played_are_taken_over(make_rig: MakeRig) -> None:
    cache, job_id, num_parts = make_rig().cache, "many", 25
    cache.open_queue(job_id, 0)
    cache.queue_parts(job_id, 0, range(num_parts))
    for dead in range(num_parts):
        assert cache.take_part(job_id, 0, actor_index=dead, timeout_s=1.0)
    until, found = time.monotonic() + 20.0, set[int]()
    while len(found) < num_parts and time.monotonic() < until:
        part = cache.take_over_part(job_id, 0, actor_index=num_parts, after_s=1.0)
        if part is not None:
            found.add(part.number)
    assert len(found) == num_parts


@pytest.mark.usefixtures("impatient")
def test_an_actor_without_work_ends_and_says_so(make_rig: MakeRig) -> None:
    rig = make_rig()
    (task,) = rollout_tasks(
        rig.job, plan(rig.job.job_id), lease_id="l", samples=(0,), evaluations=()
    )
    with pytest.raises(QueueClosedError):
        rig.cache.take_part(rig.job.job_id, 0, actor_index=0, timeout_s=0.01)
    assert Actor(rig.cache).run(task, cold_start=False).outcome == "stored"
    rig.cache.open_queue(rig.job.job_id, 0)
    assert Actor(rig.cache).run(task, cold_start=False).outcome == "cancelled"
