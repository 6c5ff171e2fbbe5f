"""Synchronous rounds against a real cache and a scaler that answers over HTTP by script."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
import torch

from learning.algorithms.registry import build_algorithm
from learning.detectors.detector import Measurement, PolicySamples
from learning.detectors.registry import DETECTORS, build_detector
from learning.networks.actor_critic import ActorCritic
from services.learner.record.checkpoint import RunState
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.lost_round import RoundLostError
from services.learner.rounds.synchronous import SynchronousRounds
from services.learner.scaler.client import LeaseLostError
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import ROUNDS_FILE
from shared.cache.client import TrajectoryCache
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.jobs import StopReason
from shared.contracts.rounds import EvaluationResult, RoundLine, RoundPlan, RoundRequest
from tests.services.learner.made_rounds import STEPS, deliver, deliver_episode
from tests.services.learner.scripted_scaler import (
    REFUSED,
    Launch,
    ScriptedScaler,
    deliver_all,
    fail_actors,
    job,
    serving,
    wired,
)

_JOBS = count()


class Rig:
    """Synchronous rounds of one job, its scaler and what it leaves behind."""

    def __init__(self, scaler: ScriptedScaler, stack: ExitStack, runs: Path, url: str) -> None:
        self.scaler = scaler
        self.cache = stack.enter_context(TrajectoryCache(url))
        self.job_id = scaler.job.job_id
        self.shutdown = threading.Event()
        self.observed: list[RoundLine] = []
        self._stack = stack
        self._artifacts = LocalArtifacts(runs)

    def run(
        self, launch: Launch = deliver_all, *, max_reopenings: int = 1, **changes: object
    ) -> tuple[StopReason, EvaluationResult | None]:
        """Train to the end, with launches like this and plans that differ from the usual."""
        self.scaler.launch, self.scaler.changes = launch, changes
        made = self.scaler.job
        session = SynchronousRounds(
            **wired(
                self.scaler,
                self._stack,
                self._artifacts,
                self.cache,
                self.shutdown,
                max_reopenings=max_reopenings,
            ),
            state=RunState(next_round=0, policy_version=0, curvature=None, previous=None),
            earlier_policies={},
            algorithm=build_algorithm(made, device=torch.device("cpu")),
            detector=build_detector(made.spec.detector),
            observe=self.observed.append,
        )
        return session.run()

    def lines(self) -> list[RoundLine]:
        data = self._artifacts.read(self.job_id, ROUNDS_FILE) or b""
        return [RoundLine.model_validate_json(text) for text in data.splitlines()]

    def checkpoints(self) -> list[str]:
        return self._artifacts.names(self.job_id, "checkpoints")


@pytest.fixture
def rig(cache_url: str, tmp_path: Path) -> Iterator[Rig]:
    made = job(f"round-loop-{next(_JOBS)}")
    with serving(made, cache_url, rounds=3) as scaler, ExitStack() as stack:
        yield Rig(scaler, stack, tmp_path, cache_url)


def _without(*missing: int, then: Callable[[], None]) -> Launch:
    """A launch in which some actors are silent."""

    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        for index in set(range(made.num_actors)) - set(missing):
            deliver(scaler.cache, made.job_id, index, round_index=made.round)
        then()

    return launch


def test_it_trains_until_the_scaler_says_stop(rig: Rig) -> None:
    stop, evaluation = rig.run(num_evaluations=2)
    assert stop == "max_rounds"
    assert evaluation is not None
    assert (evaluation.policy_version, evaluation.returns) == (3, (0.0, 1.0))
    assert rig.checkpoints() == ["000001", "000002", "000003"]
    assert [line.plan.round for line in rig.lines()] == [0, 1, 2, 3]
    assert rig.lines() == rig.observed
    for line in rig.lines()[:3]:
        assert line.result is not None
        assert line.result.env_steps == 4 * STEPS
        assert line.result.policy_version == line.plan.policy_version + 1
        assert line.evaluation is not None
        assert line.evaluation.policy_version == line.plan.policy_version


class _Countdown:
    """A detector of a number of its own, which scaling policies know nothing of."""

    def __init__(self, rule: DetectorRule) -> None:
        self._left = 3

    def measure(self, policy: ActorCritic, samples: PolicySamples) -> Measurement | None:
        self._left -= 1
        return {"left": float(self._left)} if self._left else None


def test_what_a_detector_measures_by_name_is_in_the_rounds_record(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DETECTORS, DetectorRule().name, _Countdown)
    rig.run()
    done = [line for line in rig.lines() if line.result is not None]
    stats = [line.result.stats for line in done if line.result is not None]
    assert [each.get("measured_left") for each in stats] == [2.0, 1.0, None]
    assert [line.curvature for line in done] == [None] * 3


def test_at_the_target_it_ends_with_the_policy_that_reached_it(rig: Rig) -> None:
    made = rig.scaler.job
    stop_rule = made.spec.stop.model_copy(update={"target_return": 0.5})
    spec = made.spec.model_copy(update={"stop": stop_rule})
    rig.scaler.job = made.model_copy(update={"spec": spec})
    stop, evaluation = rig.run(num_evaluations=2)  # of 0.0 and 1.0
    assert stop == "target_return"
    assert evaluation is not None
    # The initial policy has no checkpoint, so it is not the one.
    assert (evaluation.policy_version, evaluation.mean_return) == (1, 0.5)
    assert rig.checkpoints() == ["000001"]
    last = rig.lines()[-1]
    assert (last.plan.round, last.plan.stop, last.result) == (1, "target_return", None)
    assert "reached the target 0.5" in last.plan.reason
    assert last.evaluation == evaluation
    assert rig.lines() == rig.observed


def test_an_evaluation_that_lacks_episodes_says_so(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        deliver_all(scaler, made.model_copy(update={"num_evaluations": 1}), request)
        fail_actors(scaler, made, 1, mode="evaluate", reason="timed out")

    _, evaluation = rig.run(launch, num_evaluations=2)
    assert evaluation is not None
    assert evaluation.returns == (0.0,)
    told = [r for r in caplog.records if r.getMessage() == "evaluation lacks episodes"]
    assert [(r.__dict__["round"], r.__dict__["episodes"], r.__dict__["asked"]) for r in told] == [
        (number, 1, 2) for number in range(4)
    ]


def test_what_was_lost_is_launched_again_although_there_is_a_quorum(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 1 and made.attempt < 2:
            deliver(scaler.cache, made.job_id, made.attempt, round_index=1)
            deliver(scaler.cache, made.job_id, 2, round_index=1)
            fail_actors(scaler, made, 0, 1, 3, kind="vanished")
        else:
            deliver_all(scaler, made, request)

    rig.run(launch)
    again = [request for number, request in rig.scaler.asked if number == 1 and request.attempt]
    # More often than a round whose actors fail is.
    assert [request.missing for request in again] == [(1, 3), (3,)]
    assert [line.result and line.result.trajectories.used for line in rig.lines()[:3]] == [4, 4, 4]


def test_lost_episodes_are_played_again_with_the_policy_they_were_to_evaluate(rig: Rig) -> None:
    policies: dict[tuple[int, int], bytes | None] = {}

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        policies[made.round, made.attempt] = rig.cache.fetch_policy(
            made.job_id, made.policy_version
        )
        if made.round in (1, 3) and made.attempt == 0:
            deliver_all(scaler, made.model_copy(update={"num_evaluations": 1}), request)
            fail_actors(scaler, made, 1, mode="evaluate", kind="vanished")
        else:
            deliver_all(scaler, made, request)

    _, final = rig.run(launch, num_evaluations=2)
    again = [(number, asked) for number, asked in rig.scaler.asked if asked.attempt]
    # Round 3 is the last plan: its episodes are the job's final evaluation.
    assert [number for number, _ in again] == [1, 3]
    assert {(asked.missing, asked.missing_evaluations) for _, asked in again} == {((), (1,))}
    assert policies[1, 1] == policies[1, 0] != policies[2, 0]
    assert final is not None
    for evaluation in (final, rig.lines()[1].evaluation):
        assert evaluation is not None
        assert len(evaluation.returns) == 2


def test_actors_that_vanish_time_after_time_end_the_job_with_the_reason(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.attempt == 0:
            for index in (0, 1, 3):
                deliver(scaler.cache, made.job_id, index, round_index=made.round)
        fail_actors(scaler, made, 2, reason="the emulator ended", kind="vanished")

    with pytest.raises(RoundLostError, match=r"the emulator ended\n.*3 of 4.*again 3 times"):
        rig.run(launch)
    assert [asked.attempt for _, asked in rig.scaler.asked] == [0, 1, 2, 3]


def test_a_round_goes_on_without_episodes_that_vanish_time_after_time(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        deliver_all(scaler, made.model_copy(update={"num_evaluations": 0}), request)
        episodes = range(made.num_evaluations)
        fail_actors(scaler, made, *episodes, mode="evaluate", kind="vanished")

    stop, evaluation = rig.run(launch, num_evaluations=1)
    assert (stop, evaluation) == ("max_rounds", None)
    asked = [(number, request.attempt) for number, request in rig.scaler.asked]
    assert asked == [(number, attempt) for number in range(4) for attempt in range(4)]


def test_each_request_reports_the_round_before_it(rig: Rig) -> None:
    rig.run()
    lines = rig.lines()
    asked = [request for _, request in rig.scaler.asked]
    assert [number for number, _ in rig.scaler.asked] == [0, 1, 2, 3]
    assert (asked[0].previous, asked[0].curvature) == (None, None)
    for request, line in zip(asked[1:], lines[:3], strict=True):
        assert request.previous == line.result
        assert request.curvature == line.curvature
        assert request.curvature is not None
        assert request.gradient_noise == request.curvature.gradient_noise
        assert request.policy_version == line.plan.policy_version + 1


def test_it_leaves_no_policy_and_of_its_rounds_no_payload_in_the_cache(rig: Rig) -> None:
    rig.run()
    for number in range(4):
        assert rig.cache.fetch_policy(rig.job_id, number) is None
    for number in range(3):
        loaded = rig.cache.load_results(rig.job_id, number, mode="sample", actor_indices=range(4))
        assert loaded == [None] * 4
        assert rig.cache.wait_arrivals(rig.job_id, number, timeout_s=0.0) == []


def test_a_quorum_is_enough_and_the_rest_is_lost(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.stop is not None:
            return deliver_all(scaler, made, request)
        deliver(scaler.cache, made.job_id, 2, round_index=made.round)
        deliver(scaler.cache, made.job_id, 0, round_index=made.round)
        return fail_actors(scaler, made, 1, 3)

    rig.run(launch)
    for line in rig.lines()[:3]:
        assert line.result is not None
        counts = line.result.trajectories
        assert (counts.launched, counts.used, counts.lost) == (4, 2, 2)
        assert line.result.env_steps == 2 * STEPS


def test_too_little_is_launched_again_and_only_what_is_missing(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 1 and made.attempt == 0:
            deliver(scaler.cache, made.job_id, 2, round_index=1)
            fail_actors(scaler, made, 0, 1, 3)
        else:
            deliver_all(scaler, made, request)

    rig.run(launch)
    again = [request for number, request in rig.scaler.asked if (number, request.attempt) == (1, 1)]
    assert [request.missing for request in again] == [(0, 1, 3)]
    assert [line.result and line.result.trajectories.used for line in rig.lines()[:3]] == [4, 4, 4]


def test_a_policy_that_the_cache_lost_is_there_again_when_its_round_is_reopened(rig: Rig) -> None:
    found: list[bytes | None] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if (made.round, made.attempt) == (1, 0):
            found.append(rig.cache.fetch_policy(made.job_id, 1))
            rig.cache.delete_policy(made.job_id, 1)
            fail_actors(scaler, made, 0, 1, 2, 3)
        else:
            if made.round == 1:
                found.append(rig.cache.fetch_policy(made.job_id, 1))
            deliver_all(scaler, made, request)

    rig.run(launch)
    lost, there_again = found
    assert lost is not None
    assert there_again == lost


def test_a_round_lost_again_says_what_arrived_why_and_what_to_do(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        fail_actors(scaler, made, 0, 1, 2, 3)

    with pytest.raises(RoundLostError) as caught:
        rig.run(launch, max_reopenings=2)
    assert [request.attempt for _, request in rig.scaler.asked] == [0, 1, 2]
    for words in ("only 0 of 4", "2 are needed", "crashed", "steps_per_actor"):
        assert words in str(caught.value)
    assert str(caught.value).startswith("crashed\n")
    assert not caught.value.fails_again
    assert (rig.lines(), rig.checkpoints()) == ([], [])


def test_an_environment_that_fails_in_all_actors_fails_the_job_at_once_cause_first(
    rig: Rig,
) -> None:
    why = 'Toy-v0 failed at step 2: OSError()\n  File "toy.py", line 3, in step\n    raise OSError'

    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        fail_actors(scaler, made, 0, 1, 2, 3, reason=why, kind="environment")

    with pytest.raises(RoundLostError) as caught:
        rig.run(launch)
    assert [request.attempt for _, request in rig.scaler.asked] == [0]
    told = str(caught.value)
    assert told.startswith(why + "\n")
    assert "actors of round 0 failed like this within " in told
    assert caught.value.fails_again


def test_one_actor_alone_is_launched_again_before_its_environment_is_blamed(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        fail_actors(scaler, made, 0, reason="Toy-v0 hung", kind="hung")

    with pytest.raises(RoundLostError, match="^Toy-v0 hung\n1 of 1 actors") as caught:
        rig.run(launch, num_actors=1, quorum=1)
    assert [request.attempt for _, request in rig.scaler.asked] == [0, 1]
    assert caught.value.fails_again


def test_what_to_do_is_told_however_many_actors_have_reasons_of_their_own(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        for index in range(made.num_actors):
            why = f"Runtime.ExitError: RequestId: {index:036}"
            fail_actors(scaler, made, index, reason=why)

    with pytest.raises(RoundLostError) as caught:
        rig.run(launch, num_actors=64)
    told = str(caught.value)
    assert told.count("RequestId") == 3
    assert "and 61 more" in told
    assert "steps_per_actor" in told[:1000]


def test_never_trained_on_nothing_whatever_the_quorum(rig: Rig) -> None:
    with pytest.raises(RoundLostError, match="only 0 of 4"):
        rig.run(
            lambda scaler, made, _: fail_actors(scaler, made, 0, 1, 2, 3),
            max_reopenings=0,
            quorum=0,
        )


@pytest.mark.parametrize("played", [0, 2], ids=["played at the end", "played beside the round"])
def test_a_reopening_that_is_refused_ends_the_job_for_that_reason(rig: Rig, played: int) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        fail_actors(scaler, made, *range(made.num_actors))
        if made.num_evaluations:
            for index in range(2):
                deliver_episode(scaler.cache, made.job_id, index, round_index=0, policy_version=0)

    rig.scaler.refusals[(0, 1)] = "budget"
    stop, evaluation = rig.run(launch, num_evaluations=played)
    assert stop == "budget"
    assert evaluation is not None
    assert (evaluation.policy_version, evaluation.returns) == (0, (0.0, 1.0))
    (line,) = rig.lines()
    assert (line.plan.attempt, line.plan.stop, line.result) == (1, "budget", None)
    assert rig.checkpoints() == []


def test_a_stop_ends_the_wait_for_what_is_missing(rig: Rig) -> None:
    def stop() -> None:
        rig.scaler.heartbeat = (200, {"expires_in_s": 30.0, "stop": "user"})

    with pytest.raises(LeftEarly) as caught:
        rig.run(_without(3, then=stop), deadline_s=600.0)
    assert caught.value.stop == "user"
    assert rig.lines() == []


def test_the_final_evaluation_is_waited_for_when_the_user_stops(rig: Rig, cache_url: str) -> None:
    threads: list[threading.Thread] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.stop is None:
            deliver_all(scaler, made, request)
            scaler.heartbeat = (200, {"expires_in_s": 30.0, "stop": "user"})
            scaler.refusals[(1, 0)] = "user"
            return
        deliver_episode(scaler.cache, made.job_id, 0, round_index=made.round)
        scaler.heard.clear()
        threads.append(threading.Thread(target=_the_other, args=(made,)))
        threads[0].start()

    def _the_other(made: RoundPlan) -> None:
        # Once the learner has heard of the stop for certain.
        assert rig.scaler.heard.wait(20)
        with TrajectoryCache(cache_url) as actor:
            deliver_episode(actor, made.job_id, 1, round_index=made.round)

    stop, evaluation = rig.run(launch)
    threads[0].join()
    assert stop == "user"
    assert evaluation is not None
    assert evaluation.returns == (0.0, 1.0)


def test_a_shutdown_while_episodes_are_played_leaves_the_round_to_the_next_learner(
    rig: Rig,
) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        deliver_all(scaler, made.model_copy(update={"num_evaluations": 1}), request)
        rig.shutdown.set()

    with pytest.raises(LeftEarly) as caught:
        rig.run(launch, num_evaluations=2, deadline_s=600.0)
    assert caught.value.stop is None
    assert (rig.lines(), rig.checkpoints()) == ([], [])


def test_a_shutdown_after_the_last_trajectory_keeps_the_round_and_opens_no_other(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        deliver_all(scaler, made, request)
        rig.shutdown.set()

    with pytest.raises(LeftEarly):
        rig.run(launch)
    assert rig.checkpoints() == ["000001"]
    assert [number for number, _ in rig.scaler.asked] == [0]


def test_a_lost_lease_leaves_no_trace_of_the_round(rig: Rig) -> None:
    def lose() -> None:
        rig.scaler.heartbeat = REFUSED

    with pytest.raises(LeftEarly) as caught:
        rig.run(_without(0, then=lose), deadline_s=600.0)
    assert caught.value.stop is None
    assert (rig.lines(), rig.checkpoints()) == ([], [])


def test_a_conflict_is_passed_on(rig: Rig) -> None:
    rig.scaler.refusals[(1, 0)] = REFUSED
    with pytest.raises(LeaseLostError, match="out of order"):
        rig.run()
    assert rig.checkpoints() == ["000001"]


def test_rounds_between_two_measurements_have_none(cache_url: str, tmp_path: Path) -> None:
    made = job(f"round-loop-{next(_JOBS)}")
    detector = DetectorRule(every_rounds=2)
    made = made.model_copy(update={"spec": made.spec.model_copy(update={"detector": detector})})
    with serving(made, cache_url, rounds=3) as scaler, ExitStack() as stack:
        rig = Rig(scaler, stack, tmp_path, cache_url)
        rig.run()
        asked = [request for _, request in scaler.asked]
    assert [line.curvature is not None for line in rig.lines()[:3]] == [True, False, True]
    assert [request.curvature is not None for request in asked] == [False, True, False, True]
