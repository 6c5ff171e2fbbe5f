import json
import struct
from pathlib import Path

import pytest

from nitro.errors import EXIT_USAGE, CommandError
from nitro.runs.drawing.picture import draw
from nitro.runs.reading import read_run
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


def test_policy_lag_has_a_panel_of_its_own_where_rounds_overlap(tmp_path: Path) -> None:
    plain = size(draw(read_run(write_run(tmp_path, rounds=3))))
    folder = tmp_path / "overlapping"
    folder.mkdir()
    run = write_run(folder, rounds=3)
    lines = [json.loads(text) for text in (run / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        if line["result"]:
            line["result"]["stats"] |= {"policy_lag_mean": 1.5, "policy_lag_max": 3.0}
    (run / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    width, height = size(draw(read_run(run)))
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
