"""The tests mirror the tree: whoever knows a module knows where its tests are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
OF_THE_WHOLE = {"bills", "compose", "e2e", "faults", "lifecycle", "security"}
"""Folders whose tests are of no single module."""


def test_every_test_file_is_named_after_what_it_tests() -> None:
    """`a/b.py` is tested by `tests/a/test_b.py`; where there is much, also by `test_b_*.py`."""
    tests = ROOT / "tests"
    found = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
    strays = [
        str(path)
        for path in found
        if len(path.parts) > 1 and path.parts[0] not in OF_THE_WHOLE and not _tested(path)
    ]
    assert strays == []


def _tested(path: Path) -> bool:
    folder, about = ROOT / path.parent, path.stem.removeprefix("test_")
    entries = folder.iterdir() if folder.is_dir() else ()
    names = [entry.name.partition(".")[0].strip("_").lower() for entry in entries]
    return any(f"{about}_".startswith(f"{name}_") for name in names if name)
