"""Steps of a job's rounds, against a real cache and a scaler that answers over HTTP by script."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import numpy as np
import pytest

from services.learner.rounds.job_rounds import JobRounds
from services.learner.rounds.streams import Streams
from services.learner.scaler.client import ScalerClient
from services.learner.scaler.held_lease import HeldLease
from shared.cache.client import TrajectoryCache
from shared.contracts.rollouts import SearchTask
from shared.contracts.rounds import RoundPlan, RoundRequest
from shared.trajectory.episode_sums import EpisodeSums, encode_sums
from tests.services.learner.made_rounds import ENVIRONMENT
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


@pytest.mark.parametrize("scaler", [SEARCH], indirect=True)
def test_of_a_search_all_that_is_missing_is_launched_again_although_there_is_a_quorum(
    rounds: JobRounds, scaler: ScriptedScaler
) -> None:
    scaler.changes |= {"num_actors": 4, "quorum": 2, "num_evaluations": 0}

    def launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
        for index in range(4) if request.missing is None else request.missing:
            # One crashes, and one answers with the episodes of another plan.
            share = SearchTask(
                seed=3,
                directions=2,
                actors=3 if index == 2 and not request.attempt else 4,
                exploration_std=1.0,
                longest=9,
                moments=True,
            )
            if index == 1 and not request.attempt:
                fail_actors(scaler, made, index)
            else:
                store_sums(scaler, made, index, share.episodes(index if share.actors == 4 else 0))

    scaler.launch = launch
    plan = rounds.ask(0, RoundRequest(lease_id=scaler.lease().lease_id, policy_version=0))
    opened = rounds.open(plan)
    assert rounds.collect(opened) is None
    assert [request.missing for _, request in scaler.asked] == [None, (1, 2)]
    episodes = [part.episode.tolist() for part in opened.collector.trajectories()]
    assert episodes == [[0], [1], [2], [3]]


def store_sums(scaler: ScriptedScaler, made: RoundPlan, index: int, episodes: range) -> None:
    """Store an actor's part of a search."""
    num, size = len(episodes), int(np.prod(ENVIRONMENT.observation.shape))
    sums = EpisodeSums(
        job_id=made.job_id,
        round=made.round,
        actor_index=index,
        policy_version=made.policy_version,
        episode=np.array(episodes),
        episode_returns=np.ones(num),
        episode_lengths=np.full(num, 3, np.int32),
        observation_mean=np.zeros((num, size)),
        observation_m2=np.zeros((num, size)),
    )
    scaler.cache.store_result(
        made.job_id, made.round, mode="sample", actor_index=index, payload=encode_sums(sums)
    )
