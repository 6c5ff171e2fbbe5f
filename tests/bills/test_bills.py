"""The tool that compares bills: equal schedules have equal bills, and it sees any other line."""

from pathlib import Path

import pytest

from tests.bills.__main__ import main


def test_the_same_schedules_are_billed_the_same_and_another_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    for path in (one, other):
        assert main(["record", str(path), "--schedules", "4"]) == 0
    assert main(["compare", str(one), str(other)]) == 0
    other.write_text(other.read_text().replace('"round": 0', '"round": 1', 1))
    assert main(["compare", str(one), str(other)]) == 1
    assert "schedule 0: line 0: {'round': 0" in capsys.readouterr().out
