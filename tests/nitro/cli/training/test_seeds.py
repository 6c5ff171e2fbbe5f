"""`nitro train --seeds`: several seeds of one job, by the real system."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nitro.cli.interrupts import Interrupts
from nitro.cli.main import app
from nitro.cli.training.seeds import progress_table, train_seeds
from nitro.cli.training.train import TrainRequest
from nitro.cli.training.train_command import learners_for
from nitro.client.beginning import NewJob
from nitro.client.client import NitroClient
from nitro.client.follow import Snapshot
from nitro.errors import EXIT_INTERRUPTED, EXIT_USAGE
from nitro.hints import Place
from nitro.local.access import Api
from nitro.local.system import LocalSystem
from nitro.runs.curves import interval
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from tests.e2e.runs import final_weights
from tests.nitro.conftest import NEVER_LEARNS
from tests.nitro.synthetic_run import job, rendered


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1-2", "--seed", "3"], "--seeds: cannot be given together with --seed"),
        (["--seeds", "1-2", "--resume", "job"], "cannot be given together with --resume"),
        (["--parallel", "2"], "--parallel: is for several seeds; add --seeds"),
        (["--seeds", "5-1"], "--seeds: must look like 5, 1-5 or 1,3,7"),
        (["--seeds", "101"], "--seeds: at most 100 at a time"),
        (
            ["--seeds", "1-2", "--parallel", "2", "--api-url", "https://example.com"],
            "--parallel: is for a local system that is started",
        ),
        (
            ["--learner-ranks", "2", "--api-url", "https://example.com"],
            "--learner-ranks: is for a local system that is started",
        ),
    ],
)
def test_what_does_not_go_with_seeds_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    runs = tmp_path / "runs"
    result = CliRunner().invoke(app, ["train", *arguments, "--runs-dir", str(runs)])
    assert result.exit_code == EXIT_USAGE, result.output
    assert message in result.stderr
    assert not runs.exists()


def test_no_more_learners_than_seeds_are_started() -> None:
    assert learners_for((1, 2), 8) == 2
    assert learners_for((1, 2, 3), 2) == 2
    assert 1 <= learners_for(range(999), None) < 999
    assert learners_for((), None) == 1


def test_the_live_view_has_a_line_a_seed() -> None:
    running = job(status="running", finished_at=None, stop_reason=None)
    waiting = job(status="queued", spec=JobSpec(seed=8), progress={})
    text = rendered(progress_table({7: Snapshot(running, ()), 8: Snapshot(waiting, ())}, width=120))
    lines = text.splitlines()
    assert lines[0].split()[:3] == ["seed", "status", "round"]
    assert lines[1].split()[:4] == ["7", "running", "12/12", "400.0"]
    assert lines[2].split()[:4] == ["8", "queued", "0/50", "–"]


def test_seeds_side_by_side_train_the_policies_that_they_train_alone(
    client: NitroClient, runs_dir: Path, tiny_job: JobSpec, tmp_path: Path
) -> None:
    request = TrainRequest(job=NewJob(spec=tiny_job), runs_dir=tmp_path / "runs", as_json=True)
    output = io.StringIO()
    with (
        Interrupts() as interrupts,
        LocalSystem(request.runs_dir, learners=2) as system,
        NitroClient(system.api_url, system.token) as side_by_side,
    ):
        api = Api(client=side_by_side, system=system, place=Place(runs_dir=request.runs_dir))
        assert train_seeds(request, (3, 5), api, interrupts=interrupts, stdout=output) == 0
    summary = json.loads(output.getvalue())
    assert [each["seed"] for each in summary["seeds"]] == [3, 5]
    assert [each["status"] for each in summary["seeds"]] == ["succeeded", "succeeded"]
    returns = [each["final_return"] for each in summary["seeds"]]
    assert summary["final_return"] == interval(returns).model_dump()
    assert summary["cost_usd"] == sum(each["projected"]["cost_usd"] for each in summary["seeds"])
    first = request.runs_dir / summary["seeds"][0]["job_id"]
    assert (first / "plots" / "compared.png").stat().st_size > 10_000

    one_by_one = TrainRequest(job=NewJob(spec=tiny_job), runs_dir=runs_dir, as_json=True)
    again = io.StringIO()
    with Interrupts() as interrupts:
        api = Api(client=client, place=Place(runs_dir=runs_dir))
        assert train_seeds(one_by_one, (3, 5), api, interrupts=interrupts, stdout=again) == 0
    for here, there in zip(summary["seeds"], json.loads(again.getvalue())["seeds"], strict=True):
        assert (
            final_weights(request.runs_dir, here["job_id"])[2]
            == (final_weights(runs_dir, there["job_id"])[2])
        )


def test_a_warning_about_the_job_is_shown_once(client: NitroClient, runs_dir: Path) -> None:
    spec = JobSpec.model_validate({**NEVER_LEARNS, "env_id": "Pendulum-v1"})
    request = TrainRequest(job=NewJob(spec=spec), runs_dir=runs_dir, as_json=False)
    output = io.StringIO()
    with Interrupts() as interrupts:
        api = Api(client=client, place=Place(runs_dir=runs_dir))
        assert train_seeds(request, (1, 2), api, interrupts=interrupts, stdout=output) == 0
    assert output.getvalue().count("warning: the policy will not change") == 1


class Interrupting(NitroClient):
    """Presses Ctrl-C once a job has made a round."""

    def __init__(self, system: LocalSystem, interrupts: Interrupts) -> None:
        super().__init__(system.api_url, system.token)
        self._interrupts = interrupts

    def get(self, job_id: str) -> Job:
        found = super().get(job_id)
        self._interrupts.asked |= found.progress.rounds > 0
        return found


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    with Interrupts() as found:
        yield found


def test_an_interrupt_stops_every_seed_gracefully(
    shared_system: LocalSystem, interrupts: Interrupts, endless_job: JobSpec, runs_dir: Path
) -> None:
    request = TrainRequest(job=NewJob(spec=endless_job), runs_dir=runs_dir, as_json=True)
    output = io.StringIO()
    with Interrupting(shared_system, interrupts) as client:
        api = Api(client=client, place=Place(runs_dir=request.runs_dir))
        code = train_seeds(request, (1, 2), api, interrupts=interrupts, stdout=output)
    assert code == EXIT_INTERRUPTED
    first, second = json.loads(output.getvalue())["seeds"]
    assert (first["stop_reason"], second["stop_reason"]) == ("user", "user")
    assert first["rounds"] > 0
    assert second["rounds"] == 0
