"""Overlapping rounds against a real cache and a scaler that answers over HTTP by script."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest

from services.learner.record.checkpoint import Checkpoint, CheckpointStore, RunState
from services.learner.rounds.left_early import LeftEarly
from services.learner.rounds.lost_round import RoundLostError
from services.learner.rounds.overlapping import OverlappingRounds
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import ROUNDS_FILE
from shared.cache.client import TrajectoryCache
from shared.cache.connection import CacheUnreachableError
from shared.contracts.rounds import RoundLine, RoundPlan, RoundRequest
from tests.services.learner.averaging import Averaging, VersionDetector
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
from tests.services.learner.test_worker import Fuse, FusedArtifacts, FusedCache, Killed

_JOBS = count()
_ROUNDS = 4
_ACTORS = range(4)


class Rig:
    """Overlapping rounds of one job, its scaler and what it leaves behind."""

    def __init__(self, scaler: ScriptedScaler, runs: Path, cache_url: str) -> None:
        self.scaler = scaler
        self.job_id = scaler.job.job_id
        self.shutdown = threading.Event()
        self.on_update: Callable[[Averaging], None] = lambda _: None
        self.on_saved: Callable[[RoundLine], None] = lambda _: None
        self.learns = True
        self._runs = runs
        self._cache_url = cache_url
        self._artifacts = LocalArtifacts(runs)
        self.store = CheckpointStore(self._artifacts, self.job_id, keep=3)

    def run(self, *, max_uses: int = 1, fuse: Fuse | None = None) -> tuple[Averaging, str]:
        """Train from the newest checkpoint to the end; return the algorithm and why it ended."""
        fuse = fuse or Fuse()
        artifacts = FusedArtifacts(self._runs, fuse)
        algorithm = _Watched(max_uses=max_uses, on_update=self.on_update, learns=self.learns)
        checkpoint = self.store.latest()
        state = RunState(next_round=0, policy_version=0, curvature=None, previous=None)
        if checkpoint is not None:
            algorithm.load_state(checkpoint.arrays, checkpoint.scalars)
            state = checkpoint.run
        with ExitStack() as stack:
            cache = stack.enter_context(FusedCache(self._cache_url))
            cache.fuse = fuse
            next_round = state.next_round
            loop = OverlappingRounds(
                **wired(self.scaler, stack, artifacts, cache, self.shutdown, next_round=next_round),
                state=state,
                earlier_policies={} if checkpoint is None else checkpoint.earlier_policies,
                algorithm=algorithm,
                detector=VersionDetector(),
                observe=self.on_saved,
            )
            return algorithm, loop.run()[0]

    def lines(self) -> list[RoundLine]:
        data = self._artifacts.read(self.job_id, ROUNDS_FILE) or b""
        return [RoundLine.model_validate_json(text) for text in data.splitlines()]

    def checkpoint(self) -> Checkpoint:
        found = self.store.latest()
        assert found is not None
        return found


class _Watched(Averaging):
    def __init__(
        self, *, max_uses: int, on_update: Callable[[Averaging], None], learns: bool
    ) -> None:
        super().__init__(max_uses=max_uses, batch_size=3 if learns else 10_000)
        self._on_update = on_update
        self._learns = learns

    def flush(self) -> None:
        if self._learns:
            super().flush()

    def advance(self, policy_version: int) -> None:
        super().advance(policy_version)
        self._on_update(self)


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url) as client:
        yield client


@pytest.fixture
def open_rounds() -> int:
    return 2


@contextmanager
def _rig(cache_url: str, runs: Path, open_rounds: int, algorithm: str = "impala") -> Iterator[Rig]:
    made = job(
        f"async-loop-{next(_JOBS)}",
        algorithm=algorithm,
        hyperparameters={},
        rounds_in_flight=open_rounds,
    )
    with serving(made, cache_url, rounds=_ROUNDS) as scaler:
        yield Rig(scaler, runs, cache_url)


@pytest.fixture
def rig(cache_url: str, tmp_path: Path, open_rounds: int) -> Iterator[Rig]:
    with _rig(cache_url, tmp_path, open_rounds) as made:
        yield made


@pytest.fixture
def in_order(cache_url: str, tmp_path: Path) -> Iterator[Rig]:
    """Rounds whose algorithm learns from whole ones, one after the other."""
    with _rig(cache_url, tmp_path, 2, "sac") as made:
        yield made


def _everything(rounds: int = _ROUNDS) -> list[tuple[int, int]]:
    return [(number, actor) for number in range(rounds) for actor in _ACTORS]


def _used(algorithm: Averaging) -> list[tuple[int, int]]:
    return sorted((number, actor) for number, actor, _ in algorithm.used)


def _deliver(scaler: ScriptedScaler, made: RoundPlan, *indices: int) -> None:
    for index in indices:
        deliver(
            scaler.cache,
            made.job_id,
            index,
            round_index=made.round,
            policy_version=made.policy_version,
        )


def _failing_in(*rounds: int) -> Launch:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round in rounds and made.stop is None:
            fail_actors(scaler, made, *_ACTORS)
        else:
            deliver_all(scaler, made, request)

    return launch


@pytest.mark.parametrize("open_rounds", [2, 3, 8])
def test_it_trains_until_the_scaler_says_stop(rig: Rig, open_rounds: int) -> None:
    algorithm, stop = rig.run()
    assert stop == "max_rounds"
    assert _used(algorithm) == _everything()
    # One round is asked for at the end of each, with its result; the first without.
    assert [number for number, _ in rig.scaler.asked] == [*range(_ROUNDS + open_rounds)]
    results = {line.plan.round: line.result for line in rig.lines()}
    for number, request in rig.scaler.asked:
        assert request.previous == results.get(number - open_rounds)
    assert [line.plan.round for line in rig.lines()] == [*range(_ROUNDS + open_rounds)]
    made, ending = rig.lines()[:_ROUNDS], rig.lines()[_ROUNDS:]
    assert {line.plan.stop for line in ending} == {"max_rounds"}
    *others, final = [line.evaluation for line in ending]
    assert others == [None] * (open_rounds - 1)
    assert final is not None
    assert final.policy_version == algorithm.version
    for line in made:
        assert line.result is not None
        assert line.result.trajectories.used == len(_ACTORS)
        assert line.result.env_steps == len(_ACTORS) * STEPS
    assert sum(line.result.stats["updates"] for line in rig.lines() if line.result) == (
        algorithm.version
    )


def test_a_rounds_policy_is_the_one_behind_as_many_rounds_as_its_job_says(
    rig: Rig, open_rounds: int
) -> None:
    rig.run()
    versions = [0, *(line.result.policy_version for line in rig.lines() if line.result)]
    spec = rig.scaler.job.spec
    assert spec.open_rounds == open_rounds
    for line in rig.lines():
        assert line.plan.policy_version == versions[spec.rounds_behind(line.plan.round)]


def test_the_newest_curvature_goes_into_the_next_request(rig: Rig) -> None:
    rig.run()
    measured = {line.plan.round: line.curvature for line in rig.lines()}
    for number, request in rig.scaler.asked:
        curvature = measured.get(number - 2)
        assert request.curvature == curvature
        assert request.gradient_noise == (curvature and curvature.gradient_noise)
    assert any(request.gradient_noise for _, request in rig.scaler.asked)


def test_the_lag_counts_the_updates_since_the_actors_policy(rig: Rig) -> None:
    algorithm, _ = rig.run()
    versions = {line.plan.round: line.plan.policy_version for line in rig.lines()}
    assert all(version == versions[number] for number, _, version in algorithm.used)
    told = [line.result for line in rig.lines() if line.result and line.result.stats["updates"]]
    assert told
    for result in told:
        stats = result.stats
        assert 0 <= stats["policy_lag_mean"] <= stats["policy_lag_max"]
        assert stats["policy_lag_max"] <= result.policy_version


def test_a_straggler_holds_up_neither_updates_nor_the_next_round(rig: Rig) -> None:
    late: list[RoundPlan] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 0:
            late.append(made)
            _deliver(scaler, made, 0, 1, 2)
        else:
            deliver_all(scaler, made, request)

    def on_update(algorithm: Averaging) -> None:
        # Only a learner that is past round 0's first arrivals gets its last.
        if late and any(number == 1 for number, _, _ in algorithm.used):
            assert [number for number, _ in rig.scaler.asked] == [0, 1]
            _deliver(rig.scaler, late.pop(), 3)

    rig.scaler.changes = {"deadline_s": 600.0}
    rig.scaler.launch, rig.on_update = launch, on_update
    algorithm, _ = rig.run()
    assert _used(algorithm) == _everything()


def test_the_next_round_is_asked_for_before_younger_ones_are_learned_from(rig: Rig) -> None:
    asked_at: dict[int, int] = {}

    def on_update(algorithm: Averaging) -> None:
        for number, _, _ in algorithm.used:
            asked_at.setdefault(number, len(rig.scaler.asked))

    rig.on_update = on_update
    rig.run()  # every round's trajectories are there before the learner looks
    assert asked_at == {number: number + 2 for number in range(_ROUNDS)}


def test_it_replays_while_nothing_arrives(rig: Rig) -> None:
    late: list[RoundPlan] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 1:
            late.append(made)
        else:
            deliver_all(scaler, made, request)

    def on_update(algorithm: Averaging) -> None:
        if late and algorithm.version >= 20:
            _deliver(rig.scaler, late.pop(), *_ACTORS)

    rig.scaler.changes = {"deadline_s": 600.0}
    rig.scaler.launch, rig.on_update = launch, on_update
    algorithm, _ = rig.run(max_uses=30)
    assert _used(algorithm) == _everything()
    replays = [line.result.stats["replays"] for line in rig.lines() if line.result]
    assert replays[1] >= 10


def test_what_is_lost_is_waited_for_to_the_deadline_and_not_launched_again(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 1:
            _deliver(scaler, made, 2)
            fail_actors(scaler, made, 0)
        else:
            deliver_all(scaler, made, request)

    rig.scaler.changes = {"deadline_s": 0.5}
    rig.scaler.launch = launch
    algorithm, _ = rig.run()
    assert _used(algorithm) == [(n, a) for n, a in _everything() if n != 1 or a == 2]
    counts = rig.lines()[1].result
    assert counts is not None
    assert (counts.trajectories.used, counts.trajectories.lost) == (1, 3)
    assert all(request.attempt == 0 for _, request in rig.scaler.asked)


def _vanishing(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
    """Lose two actors and an episode of round 1 at first, and an episode of the job's end."""
    if made.attempt or made.round not in (1, _ROUNDS + 1):
        deliver_all(scaler, made, request)
        return
    _deliver(scaler, made, 0, 2)
    fail_actors(scaler, made, 1, 3, kind="vanished")
    fail_actors(scaler, made, 0, mode="evaluate", kind="vanished")
    identity = {"round_index": made.round, "policy_version": made.policy_version}
    deliver_episode(scaler.cache, made.job_id, 1, **identity)


def test_what_vanishes_is_launched_again_with_its_policy_where_rounds_are_learned_from_in_order(
    in_order: Rig, cache: TrajectoryCache
) -> None:
    published: list[bool] = []

    def asked(number: int, request: RoundRequest) -> None:
        policy = cache.fetch_policy(in_order.job_id, request.policy_version)
        published.append(policy is not None)
        if request.attempt == 0 and number:  # rounds 0 and 1 share theirs
            cache.delete_policy(in_order.job_id, request.policy_version)  # as if it had expired

    in_order.scaler.changes = {"deadline_s": 600.0, "num_evaluations": 2}
    in_order.scaler.launch, in_order.scaler.on_asked = _vanishing, asked
    algorithm, stop = in_order.run()
    assert stop == "max_rounds"
    assert [(number, actor) for number, actor, _ in algorithm.used] == _everything()
    again = [(number, request) for number, request in in_order.scaler.asked if request.attempt]
    told = [(number, each.missing, each.missing_evaluations) for number, each in again]
    assert told == [(1, (1, 3), (0,)), (_ROUNDS + 1, (), (0,))]
    assert all(published)
    *others, waiting, final = (line.evaluation for line in in_order.lines())
    assert waiting is None
    assert [each and len(each.returns) for each in (*others, final)] == [2] * (_ROUNDS + 1)


def test_what_arrives_during_an_update_that_outlasts_the_deadline_counts(in_order: Rig) -> None:
    held: list[RoundPlan] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 1:
            held.append(made)
        else:
            deliver_all(scaler, made, request)

    def on_update(_: Averaging) -> None:
        if held:
            _deliver(in_order.scaler, held.pop(), *_ACTORS)

    in_order.scaler.changes = {"deadline_s": 0.0}
    in_order.scaler.launch, in_order.on_update = launch, on_update
    algorithm, _ = in_order.run()
    assert _used(algorithm) == _everything()
    assert all(request.attempt == 0 for _, request in in_order.scaler.asked)


def test_a_cache_that_lost_a_rounds_results_is_noticed_though_the_policy_stays_the_same(
    in_order: Rig, cache: TrajectoryCache
) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        _deliver(scaler, made, *_ACTORS[: 2 if made.round == 1 else None])

    def lose_round_1(line: RoundLine) -> None:
        if line.plan.round == 0:
            cache.forget_job(in_order.job_id, rounds=(1,), policy_versions=(0,))

    in_order.scaler.changes = {"deadline_s": 0.5}
    in_order.scaler.launch, in_order.on_saved = launch, lose_round_1
    in_order.learns = False
    with pytest.raises(CacheUnreachableError):
        in_order.run()
    assert in_order.checkpoint().run.next_round == 1


def test_a_wait_for_evaluation_episodes_is_no_work_of_the_learner(in_order: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round != 1:
            deliver_all(scaler, made, request)
            return
        _deliver(scaler, made, *_ACTORS)
        later = threading.Timer(1.0, deliver_all, (scaler, made, request))
        later.start()

    in_order.scaler.changes = {"deadline_s": 600.0, "num_evaluations": 2}
    in_order.scaler.launch = launch
    in_order.run()
    timings = [line.result.timing for line in in_order.lines() if line.result]
    assert timings[1].evaluate_s > 0.5
    assert max(timing.learner_s for timing in timings) < 0.5


def test_a_learner_that_takes_over_after_a_refused_relaunch_ends_the_job(in_order: Rig) -> None:
    plans: list[RoundPlan] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        plans.append(made)
        _vanishing(scaler, made, request)

    in_order.scaler.changes = {"deadline_s": 600.0}
    in_order.scaler.launch = launch
    in_order.scaler.refusals[(1, 1)] = "budget"
    with pytest.raises(LeftEarly):
        in_order.run()
    # The learner dies before it ends the job. The next one gets the newest plan of round 1.
    in_order.scaler.refusals[(1, 0)] = (200, plans[-1].model_dump(mode="json"))
    with pytest.raises(LeftEarly) as caught:
        in_order.run()
    assert caught.value.stop == "budget"


def test_the_job_ends_where_the_budget_does_not_cover_what_vanished(in_order: Rig) -> None:
    in_order.scaler.changes = {"deadline_s": 600.0}
    in_order.scaler.launch = _vanishing
    in_order.scaler.refusals[(1, 1)] = "budget"
    with pytest.raises(LeftEarly) as caught:
        in_order.run()
    assert caught.value.stop == "budget"
    assert in_order.checkpoint().run.next_round == 1


def test_what_comes_after_the_end_of_its_round_is_late(rig: Rig) -> None:
    held: list[RoundPlan] = []

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 0:
            held.append(made)
            _deliver(scaler, made, 0)
            fail_actors(scaler, made, 1, 2, 3)
            return
        if made.round == 2:
            _deliver(scaler, held.pop(), 1)
        deliver_all(scaler, made, request)

    rig.scaler.launch = launch
    algorithm, _ = rig.run()
    assert (0, 1) not in _used(algorithm)
    assert rig.scaler.cache.round_counters(rig.job_id, 0).late == 1


def test_empty_rounds_between_others_are_passed_over(rig: Rig) -> None:
    rig.scaler.launch = _failing_in(0, 2)
    algorithm, stop = rig.run()
    assert stop == "max_rounds"
    assert _used(algorithm) == [(n, a) for n, a in _everything() if n in (1, 3)]


def test_more_empty_rounds_in_a_row_than_are_open_fail_with_reasons_and_the_job_can_go_on(
    rig: Rig,
) -> None:
    rig.scaler.launch = _failing_in(1, 2, 3)
    with pytest.raises(RoundLostError) as caught:
        rig.run()
    for words in ("round 3", "only 0 of 4", "nor did any in the 2 rounds before", "crashed"):
        assert words in str(caught.value)
    rig.scaler.launch = deliver_all
    rig.scaler.plan_afresh()
    algorithm, stop = rig.run()
    assert stop == "max_rounds"
    assert _used(algorithm) == [(n, a) for n, a in _everything() if n in (0, 3)]


def test_as_many_empty_rounds_in_a_row_as_are_open_are_passed_over(rig: Rig) -> None:
    rig.scaler.launch = _failing_in(0, 1)
    algorithm, stop = rig.run()
    assert stop == "max_rounds"
    assert _used(algorithm) == [(n, a) for n, a in _everything() if n in (2, 3)]


def test_a_policy_that_was_removed_is_published_again_for_the_next_round(
    rig: Rig, cache: TrajectoryCache
) -> None:
    def remove(_scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        # No update follows an empty round, so the next one is opened with this version again.
        cache.forget_job(made.job_id, rounds=(), policy_versions=(made.policy_version,))
        _failing_in(0, 1)(rig.scaler, made, request)

    found: list[bool] = []

    def published(_: int, request: RoundRequest) -> None:
        found.append(cache.fetch_policy(rig.job_id, request.policy_version) is not None)

    rig.scaler.launch, rig.scaler.on_asked = remove, published
    rig.run()
    assert found == [True] * (_ROUNDS + 2)


def test_a_stop_ends_open_rounds_with_what_there_is(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.stop is not None:
            deliver_all(scaler, made, request)
        elif made.round == 1:
            _deliver(scaler, made, 1)
            scaler.refusals[(2, 0)] = "user"
            scaler.heartbeat = (200, {"expires_in_s": 30.0, "stop": "user"})
        else:
            _deliver(scaler, made, 0, 1)

    rig.scaler.changes = {"deadline_s": 600.0}
    rig.scaler.launch = launch
    algorithm, stop = rig.run()
    assert stop == "user"
    assert _used(algorithm) == [(0, 0), (0, 1), (1, 1)]
    assert [number for number, _ in rig.scaler.asked] == [0, 1, 2, 3]
    final = rig.lines()[-1]
    assert final.evaluation is not None
    assert final.evaluation.returns == (0.0, 1.0)
    assert rig.checkpoint().run.next_round == 2


def test_half_an_evaluation_counts_for_nothing_when_the_job_stops(rig: Rig) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.stop is not None:
            deliver_all(scaler, made, request)
            return
        _deliver(scaler, made, *_ACTORS)
        deliver_episode(
            scaler.cache,
            made.job_id,
            0,
            round_index=made.round,
            policy_version=made.policy_version,
        )
        if made.round == 1:
            scaler.refusals[(2, 0)] = "user"
            scaler.heartbeat = (200, {"expires_in_s": 30.0, "stop": "user"})

    rig.scaler.changes = {"deadline_s": 600.0, "num_evaluations": 2}
    rig.scaler.launch = launch
    rig.run()
    assert [line.evaluation is None for line in rig.lines()] == [True, True, True, False]


@pytest.mark.parametrize("how", ["lease", "shutdown"])
def test_a_learner_that_must_leave_does_so_at_once(rig: Rig, how: str) -> None:
    def launch(scaler: ScriptedScaler, made: RoundPlan, _: RoundRequest) -> None:
        if made.round == 1:
            scaler.heartbeat = REFUSED if how == "lease" else scaler.heartbeat
            if how == "shutdown":
                rig.shutdown.set()

    rig.scaler.changes = {"deadline_s": 600.0}
    rig.scaler.launch = launch
    with pytest.raises(LeftEarly) as caught:
        rig.run()
    assert caught.value.stop is None
    assert (rig.lines(), rig.store.latest()) == ([], None)


def test_it_leaves_no_payload_and_no_policy_in_the_cache(rig: Rig, cache: TrajectoryCache) -> None:
    algorithm, _ = rig.run()
    for version in range(algorithm.version + 1):
        assert cache.fetch_policy(rig.job_id, version) is None
    _require_no_payload(cache, rig)


def _require_no_payload(cache: TrajectoryCache, rig: Rig, where: str = "") -> None:
    for number in range(_ROUNDS + 2):
        loaded = cache.load_results(rig.job_id, number, mode="sample", actor_indices=_ACTORS)
        assert loaded == [None] * len(_ACTORS), where


def test_a_death_at_any_moment_costs_no_trajectory_uses_none_twice_and_leaves_none(
    cache_url: str, tmp_path: Path, cache: TrajectoryCache
) -> None:
    fuse = Fuse()
    with _rig(cache_url, tmp_path, 2) as whole:
        whole.run(fuse=fuse)
    closes = [i for i, touch in enumerate(fuse.touches) if touch == "cache close"]
    # From the end of one round to the end of the next; in between everything repeats.
    for kill_at in range(closes[1], closes[2] + 1):
        with _rig(cache_url, tmp_path, 2) as broken:
            where = f"killed at touch {kill_at}: {fuse.touches[kill_at]}"
            with pytest.raises(Killed):
                broken.run(fuse=Fuse(kill_at))
            algorithm, stop = broken.run()
            assert stop == "max_rounds", where
            assert _used(algorithm) == _everything(), where
            results = [line.result for line in broken.lines() if line.result is not None]
            assert [r.trajectories.used for r in results] == [4] * _ROUNDS, where
            assert [r.env_steps for r in results] == [4 * STEPS] * _ROUNDS, where
            assert [len(r.episode_returns) for r in results] == [4] * _ROUNDS, where
            _require_no_payload(cache, broken, where)


def test_a_death_before_the_end_is_reported_costs_no_final_evaluation(rig: Rig) -> None:
    rig.run()
    told = rig.lines()[-1]
    rig.run()
    assert rig.lines()[-1].evaluation == told.evaluation
    assert told.evaluation is not None
    assert told.evaluation.returns == (0.0, 1.0)


@pytest.mark.parametrize("open_rounds", [2, 3])
def test_a_job_that_goes_on_tells_again_what_the_rounds_that_ended_it_were_asked_for_with(
    rig: Rig, open_rounds: int
) -> None:
    ending = range(_ROUNDS, _ROUNDS + open_rounds)
    rig.run()
    told = {number: request.curvature for number, request in rig.scaler.asked}
    measured = {line.plan.round: line.curvature for line in rig.lines()}
    assert [told[number] for number in ending] == [measured[n - open_rounds] for n in ending]
    assert None not in [told[number] for number in ending]
    rig.scaler.asked.clear()
    rig.scaler.plan_afresh()
    rig.run()
    assert {number: request.curvature for number, request in rig.scaler.asked} == {
        number: told[number] for number in ending
    }


def _leave_in_round_2(rig: Rig) -> RunState:
    """Train until round 2 is learned from, while an actor of rounds 1 and 2 is missing.

    Round 0 ends after most of round 1 was learned from.
    """
    late: list[RoundPlan] = []

    def on_update(algorithm: Averaging) -> None:
        if late and any(number == 1 for number, _, _ in algorithm.used):
            _deliver(rig.scaler, late.pop(), 3)
        if any(number == 2 for number, _, _ in algorithm.used):
            rig.shutdown.set()

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        if made.round == 0:
            late.append(made)
        _deliver(scaler, made, 0, 1, 2)

    rig.scaler.launch, rig.on_update = launch, on_update
    with pytest.raises(LeftEarly):
        rig.run()
    rig.scaler.launch, rig.on_update = deliver_all, lambda _: None
    rig.shutdown.clear()
    return rig.checkpoint().run


@pytest.mark.parametrize("afresh", [False, True])
def test_a_resumed_learner_republishes_policies_and_uses_nothing_twice(
    rig: Rig, cache: TrajectoryCache, *, afresh: bool
) -> None:
    def published(number: int, request: RoundRequest) -> None:
        version = request.policy_version
        assert cache.fetch_policy(rig.job_id, version) is not None, (number, version)

    rig.scaler.changes = {"deadline_s": 600.0}
    rig.scaler.on_asked = published
    saved = _leave_in_round_2(rig)
    assert (saved.next_round, [r.round for r in saved.open_rounds]) == (1, [1])
    assert saved.open_rounds[0].taken == (0, 1, 2)
    cache.forget_job(rig.job_id, rounds=(), policy_versions=range(10))
    if afresh:
        rig.scaler.plan_afresh()
    else:
        for number, version in ((1, 0), (2, saved.policy_version)):
            deliver(cache, rig.job_id, 3, round_index=number, policy_version=version)
    asked_before = len(rig.scaler.asked)
    algorithm, stop = rig.run()
    again = [(n, request.curvature) for n, request in rig.scaler.asked[asked_before:][:2]]
    assert again == [(1, None), (2, saved.curvature)]
    assert stop == "max_rounds"
    assert _used(algorithm) == _everything()
    results = [line.result for line in rig.lines() if line.result is not None]
    assert [r.trajectories.used for r in results] == [4] * _ROUNDS
    assert [r.env_steps for r in results] == [4 * STEPS] * _ROUNDS
