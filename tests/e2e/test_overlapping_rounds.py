"""Off-policy training with several rounds open at a time, through every real part."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundLine, RoundResult
from tests.e2e.runs import tiny, train, wait_finished, wait_until
from tests.patience import ANSWER_S

ACTORS = 8
HALF_EPISODES = {"env_id": "Pendulum-v1", "steps_per_actor": 100, "episodes": {"horizon": "limit"}}
"""Fragments of half an episode each: they end after 200 steps, never sooner."""


def overlapping(**changes: Any) -> JobSpec:
    """A job of eight actors a round, without evaluations."""
    body = {
        "algorithm": "impala",
        "rounds_in_flight": 2,
        "hyperparameters": {"hidden_sizes": [32, 32]},
        "scaling": {"policy": "fixed", "num_actors": ACTORS},
        "evaluation": {"every_rounds": 0},
        "stop": {"max_rounds": 6},
    }
    return tiny(**{**body, **changes})


@pytest.fixture
def faults(system: LocalSystem) -> Iterator[httpx.Client]:
    """The emulator's operator API; whatever was broken is mended at the end."""
    headers = {"Authorization": f"Bearer {system.lambda_token}"}
    with httpx.Client(base_url=system.lambda_url, headers=headers, timeout=ANSWER_S) as http:
        yield http
        http.put("/emulator/faults", json={})


def invoked(faults: httpx.Client) -> int:
    return int(faults.get("/emulator/stats").json()["invoked"])


def results(runs_dir: Path, job: Job) -> list[tuple[RoundLine, RoundResult]]:
    """Every round that was learned from, as recorded."""
    texts = (runs_dir / job.job_id / "rounds.jsonl").read_text().splitlines()
    lines = [RoundLine.model_validate_json(text) for text in texts]
    return [(line, line.result) for line in lines if line.result is not None]


@pytest.mark.parametrize(("algorithm", "rounds_in_flight"), [("impala", 2), ("impact", 3)])
def test_rounds_overlap_and_every_trajectory_is_used(
    client: NitroClient, runs_dir: Path, algorithm: str, rounds_in_flight: int
) -> None:
    spec = overlapping(
        algorithm=algorithm,
        rounds_in_flight=rounds_in_flight,
        evaluation={"every_rounds": 2, "episodes": 2},
        **HALF_EPISODES,
    )
    job = train(client, spec)
    assert (job.status, job.stop_reason) == ("succeeded", "max_rounds")
    assert job.progress.rounds == spec.stop.max_rounds
    recorded = results(runs_dir, job)
    assert [line.plan.round for line, _ in recorded] == [*range(spec.stop.max_rounds)]
    for _, result in recorded:
        assert (result.trajectories.launched, result.trajectories.used) == (ACTORS, ACTORS)
    _require_ends(recorded, rounds_in_flight)
    # Round k + m is opened at the end of round k, with the policy of that moment.
    opened_with = [line.plan.policy_version for line, _ in recorded]
    ended_with = [result.policy_version for _, result in recorded]
    assert opened_with == [*[0] * rounds_in_flight, *ended_with][: spec.stop.max_rounds]
    assert opened_with[1] < ended_with[0]
    updates = sum(result.stats["updates"] for _, result in recorded)
    assert recorded[-1][1].policy_version == updates > 0
    assert all("policy_lag_max" in r.stats for _, r in recorded if r.stats["updates"])
    evaluated = [line.plan.round for line, _ in recorded if line.evaluation]
    assert evaluated == [0, 2, 4]
    assert client.cost(job.job_id).reserved_usd == 0.0


def _require_ends(recorded: list[tuple[RoundLine, RoundResult]], rounds_in_flight: int) -> None:
    """Every open round has streams of its own, which end with every second fragment."""
    ended = [len(result.episode_returns) for _, result in recorded]
    pattern = [*[0] * rounds_in_flight, *[ACTORS] * rounds_in_flight]
    assert ended == (pattern * len(ended))[: len(ended)]
    assert all(result.begun_anew == 0 for _, result in recorded)


def test_lost_actors_are_counted_and_their_round_goes_on_without_them(
    client: NitroClient, faults: httpx.Client, runs_dir: Path
) -> None:
    spec = overlapping(scaling={"policy": "fixed", "num_actors": 3}, stop={"max_rounds": 3})
    train(client, overlapping(stop={"max_rounds": 1}))
    # The six executions that start first are killed: three actors of two rounds, or those of one
    # round and their second executions.
    faults.put("/emulator/faults", json={"crash_next": 6}).raise_for_status()
    job = train(client, spec)
    assert job.status == "succeeded"
    assert faults.get("/emulator/stats").json()["crashes_on_purpose"] >= 6
    counts = [result.trajectories for _, result in results(runs_dir, job)]
    assert all(c.launched == 3 == c.used + c.lost for c in counts)
    assert sum(c.lost for c in counts) <= 3
    assert counts[2].used == 3


def test_a_learner_killed_in_the_middle_launches_nothing_twice_and_lets_all_episodes_go_on(
    client: NitroClient, system: LocalSystem, faults: httpx.Client, runs_dir: Path
) -> None:
    train(client, overlapping(stop={"max_rounds": 1}))
    before = invoked(faults)
    faults.put("/emulator/faults", json={"start_delay_ms": 100.0}).raise_for_status()
    spec = overlapping(**HALF_EPISODES, stop={"max_rounds": 10})
    job_id = client.submit(spec).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 4, system)
    system.kill("learner")
    system.restart("learner")
    job = wait_finished(client, job_id)
    assert (job.status, job.progress.rounds) == ("succeeded", 10)
    assert invoked(faults) - before == 10 * ACTORS
    recorded = results(runs_dir, job)
    assert [line.plan.round for line, _ in recorded] == [*range(10)]
    assert all(result.trajectories.used == ACTORS for _, result in recorded)
    assert job.progress.env_steps == 10 * ACTORS * spec.steps_per_actor
    _require_ends(recorded, spec.open_rounds)


def test_a_job_stopped_in_the_middle_ends_in_order_and_goes_on_when_resumed(
    client: NitroClient, system: LocalSystem, runs_dir: Path
) -> None:
    spec = overlapping(
        stop={"max_rounds": 40},
        evaluation={"every_rounds": 100, "episodes": 2},
        episodes={"horizon": "limit"},
    )
    job_id = client.submit(spec).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds >= 2, system)
    client.stop(job_id)
    stopped = wait_finished(client, job_id)
    assert (stopped.status, stopped.stop_reason) == ("stopped", "user")
    assert 2 <= stopped.progress.rounds < 40
    texts = (runs_dir / job_id / "rounds.jsonl").read_text().splitlines()
    final = RoundLine.model_validate_json(texts[-1])
    assert (final.plan.stop, final.result) == ("user", None)
    assert final.evaluation is not None
    assert client.cost(job_id).reserved_usd == 0.0
    client.resume(job_id)
    resumed = wait_finished(client, job_id)
    assert (resumed.status, resumed.progress.rounds) == ("succeeded", 40)
    # The stop closed two open rounds, whose actors may not have answered yet.
    closed_by_stop = range(stopped.progress.rounds - 2, stopped.progress.rounds)
    for line, result in results(runs_dir, resumed):
        assert line.plan.round in closed_by_stop or result.trajectories.lost == 0
    recorded = [line for line, _ in results(runs_dir, resumed)]
    assert [line.plan.round for line in recorded] == [*range(40)]
    # Each measurement counts, those that came with the plans that ended the job among them.
    measured = {
        line.plan.round for line in recorded if line.curvature and line.curvature.lambda_min < 0
    }
    assert {line.plan.round for line in recorded if line.plan.ratio is not None} == {
        number + 2 for number in measured if number + 2 < 40
    }
