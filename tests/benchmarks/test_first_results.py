"""The study of first results: a run that was made is not made again."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.records.first_results import read_results


def test_a_run_is_made_once_and_played_twenty_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results.jsonl"
    command = ["first_results", "--only", "CartPole-v1", "--seeds", "1", "--steps", "2048"]
    command += ["--contestants", "nitro", "--runs-dir", str(tmp_path), "--out", str(out)]
    assert main(command) == 0
    (found,) = read_results(out)
    assert (found.contestant, found.seed, found.env_steps) == ("nitro", 1, 2048)
    assert len(found.returns) == 20
    assert len(set(found.returns)) > 1
    monkeypatch.setattr("benchmarks.first_results.SeedTrainer.opened", pytest.fail)
    assert main(command) == 0
    assert read_results(out) == [found]


def test_a_first_seed_above_the_last_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["first_results", "--seeds", "1", "--first-seed", "3"])
    assert "--first-seed 3 is above --seeds 1" in capsys.readouterr().err
