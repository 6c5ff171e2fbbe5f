from pathlib import Path

import pytest

from nitro.errors import EXIT_USAGE, CommandError
from nitro.runs.reading import find_run, read_run, series
from tests.nitro.synthetic_run import JOB_ID, write_run


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, rounds=12))
    assert [line.plan.round for line in run.rounds] == list(range(13))
    assert [index for index, _ in run.evaluations] == [0, 5, 10, 12]
    assert run.stop == "max_rounds"
    assert {line.round for line in run.ledger} == set(range(13))


@pytest.mark.parametrize("batches", [1, 4])
def test_where_rounds_overlap_evaluations_stand_behind_what_their_policy_learned_from(
    tmp_path: Path, batches: int
) -> None:
    run = read_run(write_run(tmp_path, rounds=12, overlap=2, batches=batches))
    assert [line.plan.round for line in run.rounds] == list(range(15))
    assert [index for index, _ in run.evaluations] == [0, 3, 8, 12]


@pytest.mark.parametrize("batches", [1, 4])
def test_rounds_that_only_end_the_job_stand_behind_the_last_update(
    tmp_path: Path, batches: int
) -> None:
    run = read_run(write_run(tmp_path, rounds=12, overlap=2, batches=batches))
    assert [run.update(index) for index in (0, 11, 12, 13, 14)] == [0, 11, 12, 12, 12]
    assert series(run, lambda line: 1.0)[0] == [*range(12), 12, 12, 12]


def test_series_skip_rounds_without_a_value(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, rounds=3))
    rounds, scores = series(run, lambda line: line.plan.boosting_score)
    assert rounds == [1, 2]
    assert scores == [run.rounds[1].plan.boosting_score, run.rounds[2].plan.boosting_score]


def test_a_half_written_last_line_is_passed_over(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=4)
    path = folder / "rounds.jsonl"
    whole = path.read_bytes()
    for cut in (1, 2, 100):
        path.write_bytes(whole[:-cut])
        rounds = read_run(folder).rounds
        assert [line.plan.round for line in rounds] == list(range(5 if cut == 1 else 4))


def test_a_damaged_line_before_the_last_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=4)
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:50]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(CommandError, match=r"rounds\.jsonl, line 2: "):
        read_run(folder)


def test_a_repeated_round_counts_once_as_last_written(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=2)
    path = folder / "rounds.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, lines[1].replace('"num_actors": ', '"num_actors": 1')]))
    run = read_run(folder)
    assert len(run.rounds) == 3
    assert run.rounds[1].plan.num_actors > 100


def test_a_round_launched_again_after_a_resume_is_paid_twice(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=2)
    before = read_run(folder).ledger
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text() * 2)
    assert read_run(folder).ledger == before * 2


def test_a_run_that_has_just_begun_has_no_rounds(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=1)
    (folder / "rounds.jsonl").unlink()
    (folder / "ledger.jsonl").unlink()
    run = read_run(folder)
    assert run.rounds == ()
    assert run.ledger == ()


def test_a_run_is_found_by_path_and_by_job_id(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=1)
    assert find_run(str(folder), tmp_path / "elsewhere") == folder
    assert find_run(JOB_ID, tmp_path) == folder


def test_a_folder_that_is_no_run_is_refused_with_the_runs_there_are(tmp_path: Path) -> None:
    write_run(tmp_path, rounds=1)
    with pytest.raises(CommandError, match=f"no run at 'nonsense'.*{JOB_ID}") as caught:
        find_run("nonsense", tmp_path)
    with pytest.raises(CommandError, match="no run at"):
        find_run("longer-than-any-name" * 20, tmp_path)
    assert caught.value.exit_code == EXIT_USAGE


def test_a_damaged_job_file_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=1)
    (folder / "job.json").write_text('{"job_id": 3}')
    with pytest.raises(CommandError, match=r"job\.json: job_id: "):
        read_run(folder)


def test_what_a_newer_version_wrote_beside_it_is_passed_over(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=4)
    before = read_run(folder)
    for name in ("job.json", "rounds.jsonl", "ledger.jsonl"):
        lines = (folder / name).read_text().splitlines()
        added = [line.replace("{", '{"of_a_newer_version": 1, ', 1) for line in lines]
        (folder / name).write_text("".join(f"{line}\n" for line in added))
    assert read_run(folder) == before
