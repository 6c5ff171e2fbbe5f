"""Which recorded runs a scheduler practises on."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.minionsrl.practice_runs import long_enough, practised_range, read_runs
from nitro.errors import CommandError
from shared.contracts.scaling_spec import ActorRange
from tests.nitro.synthetic_run import JOB_ID, write_run


def other_run(folder: Path, *, name: str, env_id: str, rounds: int = 3) -> None:
    """A run of another environment beside those that are there."""
    made = write_run(folder / "made", rounds=rounds)
    job = (made / "job.json").read_text().replace("Hopper-v5", env_id)
    (made / "job.json").write_text(job)
    made.rename(folder / name)


def test_runs_of_several_environments_are_told_apart_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, rounds=3)
    other_run(tmp_path, name="a-walk", env_id="Walker2d-v5")
    with pytest.raises(
        CommandError, match="runs of Hopper-v5, Walker2d-v5, .* train Hopper-v5 --runs"
    ):
        read_runs(tmp_path)
    assert [run.folder.name for run in read_runs(tmp_path, "Walker2d-v5")] == ["a-walk"]
    assert [run.folder.name for run in read_runs(tmp_path, "Hopper-v5")] == [JOB_ID]
    with pytest.raises(CommandError, match="Ant-v5 is none of Hopper-v5, Walker2d-v5"):
        read_runs(tmp_path, "Ant-v5")


def test_runs_of_a_single_round_are_no_model(tmp_path: Path) -> None:
    write_run(tmp_path, rounds=3)
    other_run(tmp_path, name="short", env_id="Hopper-v5", rounds=1)
    found = read_runs(tmp_path)
    assert [run.folder.name for run in long_enough(found)] == [JOB_ID]
    with pytest.raises(CommandError, match="--runs: none has 2 finished rounds: short"):
        long_enough([run for run in found if run.folder.name == "short"])


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="holds no run with a finished round"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    ("ranges", "practised"),
    [([(4, 4), (32, 32), (8, 16)], (4, 32)), ([(2, 6)], (2, 6)), ([(16, 16), (16, 16)], (8, 64))],
    ids=["together", "one", "nothing to choose"],
)
def test_what_is_practised_is_what_all_runs_together_could_choose(
    tmp_path: Path, ranges: list[tuple[int, int]], practised: tuple[int, int]
) -> None:
    (run,) = read_runs(write_run(tmp_path, rounds=3))
    runs = []
    for low, high in ranges:
        actors = ActorRange(min=low, max=high)
        spec = run.job.spec.model_copy(update={"actors": actors})
        runs.append(replace(run, job=run.job.model_copy(update={"spec": spec})))
    found = practised_range(runs)
    assert (found.min, found.max) == practised
