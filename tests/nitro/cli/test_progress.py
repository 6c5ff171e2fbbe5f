import io

from rich.console import Console

from nitro.cli.progress import LineView, LiveView, panel, progress_view, sparkline
from nitro.client.follow import Snapshot
from shared.contracts.jobs import JobProgress, Wait
from shared.contracts.rounds import ActorTrouble, RoundRecord
from tests.nitro.synthetic_run import evaluation, job, plan, result


def record(index: int, *, done: bool = True, actors: int = 8) -> RoundRecord:
    measured = evaluation(index, 100.0) if index == 0 else None
    return RoundRecord(
        plan=plan(index, num_actors=actors, requested=64),
        result=result(index, evaluation=measured) if done else None,
        cost_usd=0.001,
    )


def snapshot(*records: RoundRecord, rounds: int = 4, status: str = "running") -> Snapshot:
    done = sum(1 for each in records if each.result)
    progress = JobProgress(rounds=done, env_steps=2048 * done, last_return=100.0, best_return=100.0)
    return Snapshot(
        job(rounds=rounds, status=status, stop_reason=None, finished_at=None, progress=progress),
        records,
    )


def rendered(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(renderable)
    return out.getvalue()


def test_speed_and_time_left_follow_the_newest_rounds() -> None:
    now = snapshot(record(0), record(1), record(2, done=False))
    assert now.steps_per_s == 1024.0  # 2,048 steps in 2 s
    assert now.eta_s == 4.0  # two rounds of 2 s left


def test_nothing_is_claimed_before_the_first_round() -> None:
    now = snapshot()
    assert (now.steps_per_s, now.eta_s, now.training_return, now.plan) == (None,) * 4
    assert "round" in rendered(panel(now))


def test_what_a_job_waits_for_is_said_once() -> None:
    wait = Wait(reason="actors of before", until=1.75e9)
    waiting = snapshot()
    waiting = Snapshot(waiting.job.model_copy(update={"waits_for": wait}), ())
    assert "waits for actors of before" in rendered(panel(waiting))
    out = io.StringIO()
    view = LineView(Console(file=out, width=120))
    for seen in (waiting, waiting, snapshot()):
        view.show(seen)
    assert out.getvalue().count("waits for actors of before") == 1


def test_the_panel_shows_what_was_granted_and_what_was_asked() -> None:
    text = rendered(panel(snapshot(record(0), record(1, done=False, actors=9))))
    for part in (
        "time left",
        "1 / 4",
        "9 (asked 64)",
        "100.0",
        "0.500",
        "2,048",
        "1,024 steps/s",
        "of 5 USD",
    ):
        assert part in text


def test_the_round_that_only_stops_hides_no_actors() -> None:
    stop = RoundRecord(plan=plan(1, num_actors=0, stop="max_rounds"), result=None, cost_usd=0.0)
    newest = snapshot(record(0, actors=9), stop).plan
    assert newest is not None
    assert newest.num_actors == 9


def test_lines_come_once_per_finished_round() -> None:
    out = io.StringIO()
    view = LineView(Console(file=out, width=200))
    view.show(snapshot(record(0, done=False)))
    view.show(snapshot(record(0), record(1, done=False)))
    view.show(snapshot(record(0), record(1), record(2)))
    view.show(snapshot(record(0), record(1), record(2)))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("round")]
    assert [line.split("  ")[0] for line in lines] == ["round 1/4", "round 2/4", "round 3/4"]
    assert "evaluation 100.0" in lines[0]
    assert "evaluation –" in lines[1]
    assert "steps 4,096" in lines[1]


def test_a_line_says_how_many_actors_a_cut_round_had_asked_for() -> None:
    out = io.StringIO()
    view = LineView(Console(file=out, width=200))
    view.show(snapshot(record(0, actors=44), record(1, actors=64)))
    cut, whole = out.getvalue().splitlines()[:2]
    assert "actors 44 of 64 asked  score" in cut
    assert "actors 64  score" in whole


def test_a_line_says_when_episodes_of_an_evaluation_did_not_come() -> None:
    out = io.StringIO()
    came = len(evaluation(0, 100.0).returns)
    for asked in (came, came + 3):
        whole = record(0)
        asking = whole.plan.model_copy(update={"num_evaluations": asked})
        LineView(Console(file=out, width=200)).show(
            snapshot(whole.model_copy(update={"plan": asking}))
        )
    lines = [line for line in out.getvalue().splitlines() if line.startswith("round")]
    assert "evaluation 100.0  training" in lines[0]
    assert f"evaluation 100.0 ({came} of {came + 3} episodes)  training" in lines[1]


def test_a_change_of_status_is_told_once() -> None:
    out = io.StringIO()
    view = LineView(Console(file=out, width=200))
    for status in ("queued", "queued", "running", "running"):
        view.show(snapshot(status=status))
    assert [line.split(": ")[1] for line in out.getvalue().splitlines()] == ["queued", "running"]


def troubled(index: int, why: str, **counts: int) -> RoundRecord:
    trouble = ActorTrouble(latest=why, **counts)
    return record(index, done=False).model_copy(update={"trouble": trouble})


def test_the_panel_tells_how_many_actors_were_lost_and_why_while_a_round_is_going_on() -> None:
    assert "lost" not in rendered(panel(snapshot(record(0))))
    first = troubled(0, "Mine-v0 failed\n  File mine.py", lost=1)
    assert "actors lost 1, retried 0: Mine-v0 failed" in rendered(panel(snapshot(first)))
    text = rendered(panel(snapshot(first, troubled(1, "connection refused", lost=2, retried=3))))
    assert "actors lost 3, retried 3: connection refused" in text
    assert "mine.py" not in text


def test_lines_tell_of_lost_actors_once_a_round() -> None:
    out = io.StringIO()
    view = LineView(Console(file=out, width=200))
    for lost in (1, 2):
        view.show(snapshot(troubled(0, "crashed", lost=lost)))
    view.show(snapshot(troubled(0, "crashed", lost=2), troubled(1, "hung", lost=1)))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("actors")]
    assert lines == ["actors lost 1, retried 0: crashed", "actors lost 3, retried 0: hung"]


def test_the_view_fits_the_console() -> None:
    with progress_view(Console(file=io.StringIO())) as view:
        assert isinstance(view, LineView)
    out = io.StringIO()
    with progress_view(Console(file=out, force_terminal=True, width=120)) as view:
        assert isinstance(view, LiveView)
        view.note("stopping")
        view.show(snapshot(record(0)))
    assert "stopping" in out.getvalue()
    assert "Hopper-v5" in out.getvalue()


def test_sparklines_scale_to_the_largest_and_keep_the_newest() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([8, 64]) == "▂█"
    assert len(sparkline(list(range(100)))) == 32
    assert sparkline(list(range(100)))[-1] == "█"
