import io

from rich.console import Console

from nitro.cli.progress import LineView, LiveView, panel, progress_view, sparkline
from nitro.client.follow import Snapshot
from shared.contracts.jobs import JobProgress, Wait
from shared.contracts.rounds import ActorTrouble, RoundRecord, RoundTiming
from tests.nitro.synthetic_run import evaluation, job, plan, rendered, result


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


def lines(*snapshots: Snapshot) -> list[str]:
    """Return what the view for pipes says of a job that stands like this, one after the other."""
    out = io.StringIO()
    view = LineView(Console(file=out, width=200))
    for each in snapshots:
        view.show(each)
    return out.getvalue().splitlines()


def test_speed_and_time_left_follow_the_newest_rounds() -> None:
    now = snapshot(record(0), record(1), record(2, done=False))
    assert now.steps_per_s == 1024.0  # 2,048 steps in 2 s
    assert now.eta_s == 4.0  # two rounds of 2 s left


def test_rounds_that_were_done_before_are_not_repeated() -> None:
    done = [record(index) for index in range(4)]
    told = lines(snapshot(*done[:3]), snapshot(*done))
    rounds = [line.split()[1] for line in told if line.startswith("round ")]
    assert rounds == ["3/4", "4/4"]


def test_the_time_left_is_of_the_newer_half_of_the_rounds() -> None:
    """The first round, in which everything starts, counts only while there is no other."""

    def timed(*seconds: float) -> Snapshot:
        rounds = [record(index) for index in range(len(seconds))]
        return snapshot(
            *(
                each.model_copy(update={"result": result(k, timing=timing(taken))})
                for k, (each, taken) in enumerate(zip(rounds, seconds, strict=True))
            ),
            rounds=10,
        )

    def timing(seconds: float) -> RoundTiming:
        return RoundTiming.model_validate(
            {**dict.fromkeys(RoundTiming.model_fields, 0.0), "total_s": seconds}
        )

    assert timed(9.0).eta_s == 9 * 9.0
    assert timed(9.0, 1.0).eta_s == 8 * 1.0
    assert timed(9.0, 1.0, 2.0, 4.0).eta_s == 6 * 3.0


def test_nothing_is_claimed_before_the_first_round() -> None:
    now = snapshot()
    assert (now.steps_per_s, now.eta_s, now.training_return, now.plan) == (None,) * 4
    assert "round" in rendered(panel(now))


def test_what_a_job_waits_for_is_said_once() -> None:
    wait = Wait(reason="actors of before", until=1.75e9)
    waiting = snapshot()
    waiting = Snapshot(waiting.job.model_copy(update={"waits_for": wait}), ())
    assert "waits for actors of before" in rendered(panel(waiting))
    told = lines(waiting, waiting, snapshot())
    assert sum("waits for actors of before" in line for line in told) == 1


def test_the_panel_shows_what_was_granted_and_what_was_asked() -> None:
    text = rendered(panel(snapshot(record(0), record(1, done=False, actors=9))))
    for part in (
        "time left",
        "1/4",
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
    told = lines(
        snapshot(record(0, done=False)),
        snapshot(record(0), record(1, done=False)),
        snapshot(record(0), record(1), record(2)),
        snapshot(record(0), record(1), record(2)),
    )
    rounds = [line for line in told if line.startswith("round")]
    assert [line.split("  ")[0] for line in rounds] == ["round 1/4", "round 2/4", "round 3/4"]
    assert "evaluation 100.0" in rounds[0]
    assert "evaluation –" in rounds[1]
    assert "steps 4,096" in rounds[1]


def test_a_line_says_how_many_actors_a_cut_round_had_asked_for() -> None:
    rounds = record(0, actors=44), record(1, actors=64)
    told = lines(snapshot(), snapshot(*rounds))
    cut, whole = (line for line in told if line.startswith("round"))
    assert "actors 44 of 64 asked  score" in cut
    assert "actors 64  score" in whole


def test_a_line_says_when_episodes_of_an_evaluation_did_not_come() -> None:
    came = len(evaluation(0, 100.0).returns)

    def told(asked: int) -> str:
        asking = plan(0, num_evaluations=asked)
        return lines(snapshot(record(0).model_copy(update={"plan": asking})))[0]

    assert "evaluation 100.0 of policy 0  training" in told(came)
    assert f"evaluation 100.0 of policy 0 ({came} of {came + 3} episodes)  training" in told(
        came + 3
    )


def test_a_change_of_status_is_told_once() -> None:
    told = lines(*(snapshot(status=s) for s in ("queued", "queued", "running", "running")))
    assert [line.split(": ")[1] for line in told] == ["queued", "running"]


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
    told = lines(
        snapshot(troubled(0, "crashed", lost=1)),
        snapshot(troubled(0, "crashed", lost=2)),
        snapshot(troubled(0, "crashed", lost=2), troubled(1, "hung", lost=1)),
    )
    assert [line for line in told if line.startswith("actors")] == [
        "actors lost 1, retried 0: crashed",
        "actors lost 3, retried 0: hung",
    ]


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
