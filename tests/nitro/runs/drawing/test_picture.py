import json
import struct
from pathlib import Path

import matplotlib.figure
import pytest

from nitro.errors import EXIT_USAGE, CommandError
from nitro.runs.drawing.picture import draw, return_band
from nitro.runs.reading import Run, read_run
from tests.nitro.synthetic_run import write_run


def size(png: Path) -> tuple[int, int]:
    """Width and height from the PNG's own header (ISO 15948, section 11.2.2)."""
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[12:16] == b"IHDR"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize("rounds", [1, 2, 30])
def test_a_run_of_any_length_is_drawn(tmp_path: Path, rounds: int) -> None:
    folder = write_run(tmp_path, rounds=rounds)
    picture = draw(read_run(folder))
    assert picture == folder / "plots" / "run.png"
    width, height = size(picture)
    assert width > 1000
    assert height > 1000


def test_a_run_without_scores_evaluations_or_bill_is_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=1)
    first = (folder / "rounds.jsonl").read_text().splitlines()[0]
    (folder / "rounds.jsonl").write_text(first + "\n")
    (folder / "ledger.jsonl").unlink()
    target = tmp_path / "elsewhere" / "picture.png"
    assert draw(read_run(folder), target) == target
    assert size(target)[0] > 1000


def with_stats(tmp_path: Path, *stats: dict[str, float]) -> Run:
    """Return a run whose rounds have these stats, in turn."""
    folder = write_run(tmp_path, rounds=len(stats))
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    finished = (line["result"] for line in lines if line["result"])
    for result, more in zip(finished, stats, strict=True):
        result["stats"] |= more
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_run(folder)


def test_a_search_has_a_band_of_returns_and_its_noise_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_stats(
        tmp_path, {"return_std": 5.0, "noise_scale": 9.0}, {}, {"return_std": 0.0}, {"kl": 0.1}
    )
    rounds, low, high = return_band(run)
    means = run_means(run)
    assert rounds == [0, 2]
    assert low == pytest.approx([means[0] - 5.0, means[2]])
    assert high == pytest.approx([means[0] + 5.0, means[2]])
    labels = drawn_labels(run, monkeypatch)
    assert "noise scale\n(directions)" in labels
    assert "boosting score (0–1)" not in labels


def test_without_a_search_there_is_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = with_stats(tmp_path, {}, {})
    assert return_band(run) == ([], [], [])
    assert "boosting score (0–1)" in drawn_labels(run, monkeypatch)


def run_means(run: Run) -> list[float]:
    returns = [line.result.episode_returns for line in run.rounds if line.result]
    return [sum(each) / len(each) for each in returns]


def drawn_labels(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the labels of the panels' left axes as they are saved."""
    labels: list[str] = []
    save = matplotlib.figure.Figure.savefig

    def noted(figure: matplotlib.figure.Figure, *args: object, **more: object) -> None:
        labels.extend(panel.get_ylabel() for panel in figure.axes)
        save(figure, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", noted)
    draw(run)
    return labels


def test_policy_lag_has_a_panel_of_its_own_where_rounds_overlap(tmp_path: Path) -> None:
    plain = size(draw(read_run(write_run(tmp_path, rounds=3))))
    folder = tmp_path / "overlapping"
    folder.mkdir()
    run = with_stats(folder, *[{"policy_lag_mean": 1.5, "policy_lag_max": 3.0}] * 3)
    width, height = size(draw(run))
    assert width == plain[0]
    assert height > plain[1]


def test_a_run_without_a_finished_round_is_not_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=1)
    (folder / "rounds.jsonl").write_text("")
    with pytest.raises(CommandError, match="no finished round yet"):
        draw(read_run(folder))


@pytest.mark.parametrize("name", ["x.txt", "picture", "plots/"])
def test_a_file_that_is_no_picture_is_refused_with_what_would_be_one(
    tmp_path: Path, name: str
) -> None:
    run = read_run(write_run(tmp_path, rounds=1))
    with pytest.raises(CommandError, match=r"--output: .* end in one of \.png, \.pdf, \.svg") as no:
        draw(run, tmp_path / name)
    assert no.value.exit_code == EXIT_USAGE
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("name", "begins"), [("x.pdf", b"%PDF"), ("x.svg", b"<?xml")])
def test_a_picture_can_be_made_of_lines_too(tmp_path: Path, name: str, begins: bytes) -> None:
    picture = draw(read_run(write_run(tmp_path, rounds=1)), tmp_path / name)
    assert picture.read_bytes().startswith(begins)


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=1)
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"cannot write .*file/run\.png"):
        draw(read_run(folder), tmp_path / "file" / "run.png")
