"""Rows on a real system: side by side, under one budget, and from wherever they stand."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nitro.client.client import NitroClient
from nitro.client.errors import NoAnswerError
from nitro.sweeps.folder import Asked, SweepFolder
from nitro.sweeps.grid import expand
from nitro.sweeps.rows import Row
from nitro.sweeps.runner import Runner
from nitro.sweeps.spec import SweepSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import FINISHED, Job
from tests.nitro.conftest import NEVER_LEARNS, TINY

JOB = {name: value for name, value in TINY.items() if name != "env_id"} | {"preset": "paper"}


class Quiet:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.most_open = 0
        self.notes: list[str] = []

    def show(self, rows: Sequence[Row], jobs: Mapping[str, Job]) -> None:
        del jobs
        self.most_open = max(self.most_open, sum(row.status == "open" for row in rows))

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., SweepFolder]:
    """Return what writes a sweep of tiny jobs down."""

    def begun(**fields: Any) -> SweepFolder:
        asked = {"environments": ["CartPole-v1"], "job": JOB, "name": "sweep"}
        spec = SweepSpec.model_validate(asked | fields)
        folder = SweepFolder(tmp_path, spec.known_name)
        folder.begin(Asked(spec=spec), expand(spec))
        return folder

    return begun


def run(
    client: NitroClient,
    folder: SweepFolder,
    *,
    asked: Callable[[], bool] = lambda: False,
    view: Quiet | None = None,
) -> list[Row]:
    return Runner(
        client,
        folder,
        places=2,
        budget_usd=folder.asked().spec.budget_usd,
        plan=lambda rows: rows,
        view=view or Quiet(),
        begun=lambda _: None,
        check=lambda: None,
        asked=asked,
        pause=lambda _: time.sleep(0.02),
    ).run()


def test_all_rows_are_trained_and_a_wrong_one_is_a_row_with_its_reason(
    client: NitroClient, begin: Callable[..., SweepFolder]
) -> None:
    folder = begin(seeds="2", environments=["CartPole-v1", "Nowhere-v0"])
    view = Quiet()
    rows = run(client, folder, view=view)
    assert [row.status for row in rows] == ["finished", "failed"] * 2
    assert "Nowhere-v0" in rows[1].reason
    assert 1 <= view.most_open <= 2
    assert folder.rows() == rows
    first = rows[0].outcome
    assert first is not None
    job = client.get(rows[0].job_id or "")
    assert (first.rounds, first.env_steps) == (job.progress.rounds, job.progress.env_steps)
    assert first.final_return == job.progress.last_return
    assert job.spec.tags == (folder.asked().spec.tag,)


def test_a_warning_about_all_jobs_of_a_sweep_is_shown_once(
    client: NitroClient, begin: Callable[..., SweepFolder]
) -> None:
    view = Quiet()
    run(client, begin(seeds="2", environments=["Pendulum-v1"], job=NEVER_LEARNS), view=view)
    (note,) = view.notes
    assert note.startswith("warning: pendulum-v1-")
    assert "the policy will not change" in note


def test_the_sum_stays_under_a_budget_that_is_too_small_and_rows_say_so(
    client: NitroClient, begin: Callable[..., SweepFolder]
) -> None:
    alone = run(client, begin(seeds="1", name="alone"))[0]
    refused = run(client, begin(seeds="3", name="poor", budget_usd=0.001))
    assert [row.status for row in refused] == ["not started"] * 3
    assert "stop.budget_usd" in refused[0].reason
    # Enough for the worst case of one job, and not for all of them.
    needed = float(refused[0].reason.rpartition("$")[2].split()[0])
    budget = needed + 1.5 * alone.spent_usd
    rows = run(client, begin(seeds="8", name="tight", budget_usd=budget))
    assert {row.status for row in rows} <= {"finished", "budget", "not started"}
    assert rows[0].status == "finished"
    assert rows[-1].status == "not started"
    assert sum(row.spent_usd for row in rows) <= budget


def test_a_stopped_sweep_goes_on_to_equal_returns(
    client: NitroClient, begin: Callable[..., SweepFolder]
) -> None:
    job = {**JOB, "stop": {"max_rounds": 6}}
    whole = run(client, begin(seeds="3", name="whole", job=job))
    folder = begin(seeds="3", name="cut", job=job)

    def begun() -> bool:
        return any(row.job_id for row in folder.rows())

    cut = run(client, folder, asked=begun)
    assert {row.status for row in cut} <= {"stopped", "finished", "waiting"}
    assert any(row.status != "finished" for row in cut)
    rows = run(client, folder)
    assert [row.status for row in rows] == ["finished"] * 3
    assert [curve(row) for row in rows] == [curve(row) for row in whole]


class LosingAnswers(NitroClient):
    """Ends the command between the submission of a job and its note."""

    lost = 0

    def submit(self, spec: JobSpec, *, idempotency_key: str | None = None) -> Job:
        job = super().submit(spec, idempotency_key=idempotency_key)
        if not self.lost:
            self.lost += 1
            raise KeyboardInterrupt(job.job_id)
        return job


def test_a_job_of_which_nobody_noted_the_id_is_not_submitted_twice(
    client: NitroClient, begin: Callable[..., SweepFolder], shared_system: Any
) -> None:
    folder = begin(seeds="1")
    with LosingAnswers(shared_system.api_url, shared_system.token) as losing:
        with pytest.raises(KeyboardInterrupt) as lost:
            run(losing, folder)
        (row,) = run(losing, folder)
    assert row.job_id == str(lost.value)
    assert row.status == "finished"


def test_a_command_killed_again_and_again_leaves_caps_within_the_budget(
    client: NitroClient, begin: Callable[..., SweepFolder], shared_system: Any
) -> None:
    """It dies whenever a job has begun; nobody looks after the jobs then."""
    ids: list[str] = []

    class Dying(NitroClient):
        def submit(self, spec: JobSpec, *, idempotency_key: str | None = None) -> Job:
            job = super().submit(spec, idempotency_key=idempotency_key)
            if job.job_id not in ids:
                ids.append(job.job_id)
                raise KeyboardInterrupt
            return job

    refused = run(client, begin(seeds="1", name="poor", budget_usd=0.001))
    budget = 2 * float(refused[0].reason.rpartition("$")[2].split()[0])
    folder = begin(seeds="3", budget_usd=budget)
    with Dying(shared_system.api_url, shared_system.token) as dying:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                run(dying, folder)
            jobs = [client.get(job_id) for job_id in ids]
            most = [j.spent_usd if j.status in FINISHED else j.spec.stop.budget_usd for j in jobs]
            assert sum(most) <= budget
    assert len(ids) == 3
    rows = run(client, folder)
    assert [row.job_id for row in rows] == ids
    assert sum(row.spent_usd for row in rows) <= budget


def test_an_end_by_steps_counts_the_first_evaluation_behind_it(
    client: NitroClient, begin: Callable[..., SweepFolder]
) -> None:
    job = {**JOB, "stop": {}, "evaluation": {"every_rounds": 2, "episodes": 1}}
    (row,) = run(client, begin(seeds="1", job=job, total_steps=100))
    assert row.end_steps == 100
    assert row.status == "finished"
    assert row.outcome is not None
    *before, last = row.outcome.curve
    assert last.env_steps >= 100 > max(point.env_steps for point in before)


@pytest.mark.parametrize("reason", ["user", "budget"])
def test_a_job_stopped_after_its_last_round_is_finished(
    reason: str, client: NitroClient, begin: Callable[..., SweepFolder], shared_system: Any
) -> None:
    """It has nothing left to resume, and its last evaluation counts."""

    class ToldLate(NitroClient):
        def get(self, job_id: str) -> Job:
            job = super().get(job_id)
            if job.status != "succeeded":
                return job
            return job.model_copy(update={"status": "stopped", "stop_reason": reason})

    (whole,) = run(client, begin(seeds="1", name="whole"))
    with ToldLate(shared_system.api_url, shared_system.token) as late:
        (row,) = run(late, begin(seeds="1", name="late", budget_usd=100.0))
    assert row.status == "finished"
    assert curve(row) == curve(whole)


def test_a_job_that_went_to_its_end_beyond_its_rung_pauses_there_and_is_promoted(
    client: NitroClient, begin: Callable[..., SweepFolder]
) -> None:
    """However fast its last rounds were: so a search has the same rows each time."""
    folder = begin(seeds="1")
    (row,) = folder.rows()
    folder.write([row.model_copy(update={"pause_steps": 1.0})])
    (paused,) = run(client, folder)
    assert paused.status == "paused"
    folder.write([paused.model_copy(update={"status": "waiting", "pause_steps": None})])
    (whole,) = run(client, folder)
    assert (whole.status, whole.job_id) == ("finished", paused.job_id)


def curve(row: Row) -> object:
    assert row.outcome is not None
    return row.outcome.curve


def test_an_api_that_is_away_for_a_moment_is_asked_again(
    begin: Callable[..., SweepFolder], shared_system: Any
) -> None:
    class Away(NitroClient):
        failures = 3

        def get(self, job_id: str) -> Job:
            if self.failures:
                self.failures -= 1
                raise NoAnswerError("away")
            return super().get(job_id)

    with Away(shared_system.api_url, shared_system.token) as away:
        (row,) = run(away, begin(seeds="1"))
    assert row.status == "finished"
