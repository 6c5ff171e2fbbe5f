"""Steps of a job's rounds, against a real cache and a scaler that answers over HTTP by script."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from services.learner.rounds.job_rounds import JobRounds
from services.learner.rounds.streams import Streams
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.client import TrajectoryCache
from shared.contracts.rounds import RoundRequest
from tests.services.learner.scripted_scaler import ScriptedScaler, fail_actors, job, serving

_JOBS = count()


SEARCH: dict[str, object] = {
    "algorithm": "ars",
    "hyperparameters": {"directions": 2},
    "actors": {"min": 2, "max": 4},
    "episodes": {"horizon": 9},
}


@pytest.fixture(params=[{"algorithm": "impala", "hyperparameters": {}, "rounds_in_flight": 2}])
def scaler(request: pytest.FixtureRequest, cache_url: str) -> Iterator[ScriptedScaler]:
    made = job(f"job-rounds-{next(_JOBS)}", **request.param)
    with serving(made, cache_url, rounds=4) as scaler:
        scaler.changes = {"deadline_s": 600.0, "num_evaluations": 2}
        yield scaler


@pytest.fixture
def rounds(scaler: ScriptedScaler, cache_url: str) -> Iterator[JobRounds]:
    with ExitStack() as stack:
        client, heartbeats = (
            stack.enter_context(ScalerClient(scaler.url, None, patience_s=5.0)) for _ in range(2)
        )
        yield JobRounds(
            job=scaler.job,
            scaler=client,
            cache=stack.enter_context(TrajectoryCache(cache_url)),
            lease=stack.enter_context(HeldLease(scaler.lease(), heartbeats, threading.Event())),
            streams=Streams(envs_per_actor=1),
            max_reopenings=1,
        )


def test_episodes_that_vanish_beside_overlapping_rounds_are_not_launched_again(
    rounds: JobRounds, scaler: ScriptedScaler
) -> None:
    scaler.launch = lambda scaler, made, _request: fail_actors(
        scaler, made, 0, 1, mode="evaluate", kind="vanished"
    )
    plan = rounds.ask(0, RoundRequest(lease_id=scaler.lease().lease_id, policy_version=0))
    assert rounds.evaluated(rounds.open(plan)) is None
    assert [(number, request.attempt) for number, request in scaler.asked] == [(0, 0)]
