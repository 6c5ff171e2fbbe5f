import pytest

from benchmarks.measurement import Effort, interleaved, progress, seconds


def test_contestants_take_turns_after_one_warm_up_each() -> None:
    order: list[str] = []

    def sampler(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = interleaved({"a": lambda: sampler("a"), "b": lambda: sampler("b")}, repeats=2)
    assert "".join(order) == "ababab"
    assert samples == {"a": (3.0, 5.0), "b": (4.0, 6.0)}


def test_seconds_is_the_mean_over_all_runs() -> None:
    runs: list[int] = []
    assert seconds(lambda: runs.append(1), times=5) >= 0.0
    assert len(runs) == 5


def test_quick_takes_the_small_number() -> None:
    assert Effort(quick=False).of(15) == 15
    assert Effort(quick=True).of(15) == 2
    assert Effort(quick=True).of(15, quick=1) == 1


def test_progress_goes_to_standard_error_and_hides_what_only_a_watcher_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress("started")
    progress("sample 1 of 9", transient=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "started\n"
