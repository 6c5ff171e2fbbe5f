from pathlib import Path

import matplotlib as mpl
import pytest

from nitro.errors import CommandError
from nitro.runs.drawing.compared_picture import draw_together
from nitro.runs.reading import Run, read_run
from tests.nitro.synthetic_run import write_run


def a_run(folder: Path, job_id: str, *, rounds: int = 12, **asked: object) -> Run:
    return read_run(write_run(folder, job_id=job_id, rounds=rounds, asked=asked))


def texts(runs: list[Run], folder: Path) -> str:
    with mpl.rc_context({"svg.fonttype": "none"}):
        return draw_together(runs, folder / "compared.svg").read_text(encoding="utf-8")


def test_seeds_of_one_configuration_are_one_line_named_by_what_sets_it_apart(
    tmp_path: Path,
) -> None:
    runs = [
        a_run(tmp_path, "a", seed=1),
        a_run(tmp_path, "b", seed=2),
        a_run(tmp_path, "c", seed=1, algorithm="impact", hyperparameters={"clip": 0.25}),
    ]
    drawn = texts(runs, tmp_path)
    assert "Hopper-v5" in drawn
    assert "2 seeds: mean, lowest to highest" in drawn
    assert drawn.count("seed 1") == 1
    assert "evaluation" in drawn


def test_few_differences_are_named_in_the_legend(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path, "a", seed=1, steps_per_actor=128),
        a_run(tmp_path, "b", seed=2, steps_per_actor=128),
        a_run(tmp_path, "c", seed=1),
    ]
    drawn = texts(runs, tmp_path)
    assert "steps_per_actor 128 (2 seeds: mean, lowest to highest)" in drawn
    assert "steps_per_actor 256 (seed 1)" in drawn


def test_the_picture_lies_in_the_first_runs_folder(tmp_path: Path) -> None:
    runs = [a_run(tmp_path, "a"), a_run(tmp_path, "b", rounds=3)]
    picture = draw_together(runs)
    assert picture == tmp_path / "a" / "plots" / "compared.png"
    assert picture.stat().st_size > 10_000


def test_what_cannot_share_a_picture_is_named(tmp_path: Path) -> None:
    one, other = a_run(tmp_path, "a"), a_run(tmp_path, "b", env_id="Walker2d-v5")
    with pytest.raises(CommandError, match="Hopper-v5, Walker2d-v5 cannot share a picture"):
        draw_together([one, other])
    (tmp_path / "b" / "rounds.jsonl").unlink()
    (tmp_path / "b" / "job.json").write_text(one.job.model_dump_json())
    with pytest.raises(CommandError, match="b: no return yet"):
        draw_together([one, read_run(tmp_path / "b")])
