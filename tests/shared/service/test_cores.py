"""How many cores a process may use."""

import os
from pathlib import Path

import pytest

from shared.service import cores as module
from tests.documents import ROOT


@pytest.mark.parametrize(
    ("allowed", "quota", "expected"),
    [
        (4, None, 4),
        (4, "max 100000\n", 4),
        (4, "200000 100000\n", 2),
        (4, "150000 100000\n", 1),
        (4, "50000 100000\n", 1),
        (2, "800000 100000\n", 2),
        (4, "nonsense\n", 4),
    ],
)
def test_a_quota_counts_as_much_as_the_cores_it_pays_for(
    allowed: int, quota: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)), raising=False)
    absent = tmp_path / "absent"
    for name in ("_QUOTA", "_QUOTA_V1", "_PERIOD_V1"):
        monkeypatch.setattr(module, name, absent)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
        monkeypatch.setattr(module, "_QUOTA", tmp_path / "cpu.max")
    assert module.usable_cores() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 4), ("200000", 2), ("10000", 1)])
def test_so_does_one_of_the_first_version(
    quota: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr(module, "_QUOTA", tmp_path / "absent")
    for name, text in (("_QUOTA_V1", quota), ("_PERIOD_V1", "100000")):
        (tmp_path / name).write_text(text + "\n")
        monkeypatch.setattr(module, name, tmp_path / name)
    assert module.usable_cores() == expected


def test_nothing_counts_cores_that_it_may_not_use() -> None:
    packages = ("nitro", "services", "functions", "learning", "shared")
    files = [path for package in packages for path in (ROOT / package).rglob("*.py")]
    counting = [path for path in files if "cpu_count()" in path.read_text("utf-8")]
    assert counting == [ROOT / "shared" / "service" / "cores.py"]
