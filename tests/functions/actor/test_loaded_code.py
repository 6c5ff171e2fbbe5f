"""Which of the files that a process has loaded have changed since."""

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from functions.actor.loaded_code import LoadedCode


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "some_of_mine.py"
    path.write_text("import helper_of_mine\n")
    (tmp_path / "helper_of_mine.py").write_text("")
    long_ago = time.time() - 1000
    for each in (path, tmp_path / "helper_of_mine.py"):
        os.utime(each, (long_ago, long_ago))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    importlib.import_module("some_of_mine")
    yield path
    for name in ("some_of_mine", "helper_of_mine"):
        sys.modules.pop(name, None)


def touch(path: Path, at: float) -> None:
    os.utime(path, (at, at))


def test_a_file_that_is_written_again_has_changed_and_so_has_one_it_imports(file: Path) -> None:
    for each in (file, file.with_name("helper_of_mine.py")):
        code = LoadedCode(["some_of_mine:make"], began_ns=time.time_ns())
        assert not code.has_changed()
        touch(each, time.time() - 500)
        assert code.has_changed()


def test_one_that_is_gone_has_changed(file: Path) -> None:
    code = LoadedCode(["some_of_mine"], began_ns=time.time_ns())
    file.unlink()
    assert code.has_changed()


def test_one_that_was_written_while_the_process_began_counts_as_changed(file: Path) -> None:
    began = time.time() - 10
    touch(file, began + 5)
    assert LoadedCode(["some_of_mine"], began_ns=int(began * 1e9)).has_changed()


def test_a_time_in_the_future_is_nothing_to_wait_for(file: Path) -> None:
    touch(file, time.time() + 1000)
    assert not LoadedCode(["some_of_mine"], began_ns=time.time_ns()).has_changed()


def test_without_packages_nothing_is_looked_at(file: Path) -> None:
    code = LoadedCode([], began_ns=time.time_ns())
    touch(file, time.time() - 500)
    assert not code.has_changed()


def test_a_helper_that_a_constructor_imports_is_seen_to_change(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "late_of_mine.py"
    late.write_text("")
    touch(late, time.time() - 1000)
    code = LoadedCode([file.stem], began_ns=time.time_ns())
    monkeypatch.setitem(sys.modules, late.stem, sys)  # what is imported is forgotten in the end
    del sys.modules[late.stem]
    importlib.invalidate_caches()
    importlib.import_module(late.stem)
    code.note()
    assert not code.has_changed()
    touch(late, time.time() - 500)
    assert code.has_changed()
