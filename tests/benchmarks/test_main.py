from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import NAMES, main


def test_unknown_name_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wires"]) == 2
    assert "no benchmark wires; known: actor_rollout" in capsys.readouterr().err


def test_help_names_every_benchmark_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES)
    assert "python -m benchmarks wire start_up" in out


def test_quick_run_prints_its_table_and_saves_only_where_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wire", "--quick", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "CartPole-v1: bytes" in captured.out
    assert [path.name for path in tmp_path.iterdir()] == ["wire.json"]


def test_the_gpus_benchmark_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["gpu", "--quick"]) == 1
    assert "torch finds no GPU on this machine" in capsys.readouterr().err
