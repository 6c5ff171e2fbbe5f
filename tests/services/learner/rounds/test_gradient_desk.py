"""Gradients as a learner waits for them: each call comes back once, whatever goes wrong."""

import threading
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pytest
import redis

from learning.aggregation.function_steps import LostCall
from learning.aggregation.weighting import Arrived
from learning.algorithms.ppo import Ppo
from learning.arrays import Floats
from learning.data.samples import SAMPLE_FIELDS
from learning.losses.ppo import PpoRule
from services.learner.rounds import gradient_desk
from services.learner.rounds.gradient_desk import CachedGradientDesk
from services.learner.rounds.left_early import LeftEarly
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache import keys
from shared.cache.gradients import GradientCache, GradientRound
from shared.contracts.gradients import GradientCall, GradientGrant, GradientRecord, GradientRequest
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.leases import Lease, hash_of_lease
from shared.gradients.messages import GradientMessage
from shared.hyperparameters.ppo import STANDARD
from shared.trajectory.columns import Columns
from tests.learning.trajectories import CONTINUOUS

_JOBS = count()
VERSION = 7
DEADLINE_S = 40.0
RECORD = GradientRecord(asked=2, used=2, stale=0, lost=0)


def samples() -> Columns[Floats]:
    column = np.zeros((4, 1), np.float32)
    flat = dict.fromkeys(SAMPLE_FIELDS, column[:, 0])
    return Columns(**{**flat, "observation": column, "action": column, "outputs": column})


class Clock:
    """The desk's time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time


class GrantingScaler(ScalerClient):
    """Grants every request, and tells what was asked."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", None, patience_s=0.0)
        self.asked: list[GradientRequest] = []
        self.launch: Callable[[GradientRequest], None] = lambda _request: None

    def ask_gradients(
        self, job_id: str, round_index: int, request: GradientRequest
    ) -> GradientGrant:
        self.asked.append(request)
        self.launch(request)
        return GradientGrant(request=request.request, granted=True, deadline_s=DEADLINE_S)

    @property
    def numbers(self) -> list[int]:
        return [request.request for request in self.asked]


class Rig:
    """A desk in round 3, with an update of four slices begun, and its functions."""

    def __init__(self, cache: GradientCache) -> None:
        self.cache, self.scaler, self.shutdown = cache, GrantingScaler(), threading.Event()
        spec = JobSpec(preset="standard", learner="functions")
        job_id = f"desk-{next(_JOBS)}"
        self.job = Job(job_id=job_id, spec=spec, status="running", created_at=0.0)
        self.of = GradientRound(job_id=job_id, lease_hash=hash_of_lease("lease"), round=3)
        lease = Lease(lease_id="lease", job=self.job, expires_in_s=30.0, heartbeat_every_s=10.0)
        self.desk = CachedGradientDesk(
            job=self.job,
            cache=cache,
            scaler=self.scaler,
            lease=HeldLease(lease, self.scaler, self.shutdown),
        )
        learner = Ppo(CONTINUOUS, STANDARD, seed=7, max_rounds=8, steps=self.desk.steps)
        self.flat: Floats = learner.network.flat.numpy()
        self.desk.open_round(3)
        self.begin(VERSION)

    def begin(self, version: int) -> None:
        """Begin an update."""
        self.desk.begin([samples() for _ in range(4)])
        rule = PpoRule(hyperparameters=STANDARD, kl_coefficient=0.0)
        self.desk.publish(version, self.flat, rule, forget=[])

    def ask(self, *calls: int, base: int = VERSION) -> None:
        self.desk.ask([GradientCall(call=call, base=base) for call in calls])

    def store(self, call: int, *, base: int = VERSION) -> None:
        """Bring a gradient, as a function does."""
        message = GradientMessage(
            job_id=self.of.job_id,
            round=3,
            call=call,
            base=base,
            num_samples=4,
            flat=np.zeros_like(self.flat),
            stats=np.zeros(3),
            started_at=1000.0,
            fetch_s=0.0,
            compute_s=0.0,
        )
        self.cache.store_gradient(self.of, call, message.encode())

    def vanish(self, call: int, *, request: int = 0) -> None:
        """Announce that a call had no fair chance."""
        self.cache.announce_lost_gradient(
            self.of, call=call, request=request, reason="broken", vanished=True
        )

    def wait(self) -> dict[int, type[Arrived | LostCall]]:
        return {each.call: type(each) for each in self.desk.wait()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(gradient_desk, "time", made)
    monkeypatch.setattr(gradient_desk, "_LOOK_S", 0.01)
    return made


@pytest.fixture
def rig(cache_url: str, clock: Clock) -> Iterator[Rig]:
    with GradientCache(cache_url) as cache:
        made = Rig(cache)
        with made.scaler:
            yield made


def test_what_a_scaler_forgot_is_asked_again_while_other_gradients_arrive(
    rig: Rig, clock: Clock
) -> None:
    rig.ask(0, 3)
    rig.store(3)
    rig.wait()
    for call in (1, 2):
        clock.now += 2.0
        rig.ask(call)
        rig.store(call)
        assert rig.wait() == {call: Arrived}
    assert rig.scaler.numbers == [0, 1, 2, 0]
    assert [call.call for call in rig.scaler.asked[-1].calls] == [0], "what is answered is not"


def test_a_call_is_lost_at_its_deadline_while_other_gradients_arrive(
    rig: Rig, clock: Clock
) -> None:
    rig.ask(0)
    clock.now += DEADLINE_S
    rig.ask(1)
    rig.store(1)
    assert rig.wait() == {0: LostCall, 1: Arrived}


@pytest.mark.parametrize("asked_for", ["what is silent", "what vanished"])
def test_what_comes_while_the_scaler_does_not_answer_is_not_late(
    rig: Rig, clock: Clock, asked_for: str
) -> None:
    rig.ask(0)
    rig.ask(1)

    def answer_late(_request: GradientRequest) -> None:
        clock.now += DEADLINE_S
        rig.store(0)
        rig.scaler.launch = lambda _request: None

    rig.scaler.launch = answer_late
    if asked_for == "what vanished":
        rig.vanish(1, request=1)
    else:
        clock.now += 4.0
    assert rig.wait()[0] is Arrived


def test_a_learner_that_is_to_end_leaves_while_gradients_arrive(rig: Rig) -> None:
    rig.ask(0, 1)
    rig.store(0)
    rig.shutdown.set()
    with pytest.raises(LeftEarly, match="asked to leave"):
        rig.wait()


def test_a_gradient_whose_announcement_was_lost_is_found(
    rig: Rig, clock: Clock, cache_url: str
) -> None:
    rig.ask(0)
    rig.store(0)
    with redis.Redis.from_url(cache_url) as connection:
        connection.delete(keys.gradient_arrivals(rig.of.job_id, rig.of.lease_hash, 3))
    clock.now += 4.0
    assert rig.wait() == {0: Arrived}
    assert rig.scaler.numbers == [0]


def test_what_vanished_counts_if_it_is_stored_after_all(rig: Rig) -> None:
    rig.ask(0, 1)
    rig.vanish(0)
    rig.store(0)
    assert rig.wait() == {0: Arrived}, "the announcement and the gradient at a time"

    def first_function_ends(request: GradientRequest) -> None:
        assert (request.request, [call.call for call in request.calls]) == (1, [1])
        rig.store(1)

    rig.vanish(1)
    rig.scaler.launch = first_function_ends
    assert rig.wait() == {1: Arrived}, "the gradient after the call was asked for again"


def test_what_vanishes_again_and_again_is_lost(rig: Rig) -> None:
    rig.scaler.launch = lambda request: rig.vanish(0, request=request.request)
    rig.ask(0)
    assert rig.wait() == {0: LostCall}
    assert rig.scaler.numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("what", ["slices", "weights"])
def test_the_job_goes_on_elsewhere_when_the_cache_lost_what_functions_need(
    rig: Rig, what: str
) -> None:
    rig.ask(0)
    if what == "slices":
        rig.cache.forget_calls(rig.of, [0])
    else:
        rig.cache.forget_weights(rig.of, [VERSION])
    rig.vanish(0)
    with pytest.raises(LeftEarly, match="cache has lost") as left:
        rig.wait()
    assert left.value.stop is None
    assert rig.scaler.numbers == [0]


def test_a_second_update_of_a_round_finds_what_the_first_had_freed(rig: Rig) -> None:
    rig.ask(0, 1)
    rig.store(0)
    rig.store(1)
    assert rig.wait() == {0: Arrived, 1: Arrived}
    rig.desk.end(RECORD)
    for call in range(4):
        assert rig.cache.fetch(rig.of, call=call, versions=[VERSION]) == (None, [None])
    rig.begin(VERSION + 1)
    rig.ask(0, base=VERSION + 1)
    rig.store(0)  # of the first update
    rig.store(4, base=VERSION + 1)
    assert rig.wait() == {0: Arrived}
    rig.desk.end(RECORD)
    record = rig.desk.close_round()
    assert record is not None
    assert (record.asked, record.duplicate) == (4, 1)


def test_an_update_that_is_left_unfinished_leaves_no_slice_behind(rig: Rig) -> None:
    left, _ = rig.cache.fetch(rig.of, call=1, versions=[VERSION])
    assert left is not None
    rig.desk.leave()
    assert rig.cache.fetch(rig.of, call=1, versions=[VERSION]) == (None, [None])
    assert rig.cache.store_gradient(rig.of, 1, b"late") == "late"
    rig.desk.leave()


def test_leaving_does_not_fail_without_a_cache(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with GradientCache("redis://127.0.0.1:1/0", timeout_s=0.1) as gone:
        monkeypatch.setattr(rig.desk, "_cache", gone)
        rig.desk.leave()
