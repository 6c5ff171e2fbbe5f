import io
from contextlib import redirect_stdout

from nitro.client.follow import Snapshot
from nitro.python.progress import NotebookView, progress_line
from shared.contracts.jobs import JobProgress
from shared.contracts.rounds import RoundRecord
from tests.nitro.synthetic_run import job, plan, result


def _snapshot(done: int) -> Snapshot:
    records = tuple(
        RoundRecord(plan=plan(index), result=result(index), cost_usd=0.0) for index in range(done)
    )
    progress = JobProgress(rounds=done, env_steps=2048 * done)
    return Snapshot(job(rounds=12, status="running", progress=progress), records)


def test_a_line_says_how_far_the_job_is() -> None:
    line = progress_line(_snapshot(6))
    assert "████████████░░░░░░░░░░░░ 6/12" in line
    assert "return 10.0  12,288 steps  12 s left" in line


def test_a_notebook_has_one_line_that_is_written_over() -> None:
    with redirect_stdout(io.StringIO()) as written:
        view = NotebookView()
        view.note("starting")
        for done in (1, 2):
            view.show(_snapshot(done))
    first, second = written.getvalue().split("\n")
    assert first.strip("\r") == "starting"
    assert [text.split()[1] for text in second.split("\r")[1:]] == ["1/12", "2/12"]
