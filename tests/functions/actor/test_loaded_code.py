"""Whether the files that a process runs are seen to change."""

import importlib
import os
import sys
import time
from pathlib import Path

import pytest

from functions.actor.loaded_code import LoadedCode


def test_a_helper_that_a_constructor_imported_is_seen_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "helped_by.py"
    helper.write_text("REWARD = 1.0\n")
    (tmp_path / "helped_envs.py").write_text("def make():\n    import helped_by\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("helped_envs", "helped_by"):
        monkeypatch.setitem(sys.modules, name, sys)  # both are forgotten in the end
        del sys.modules[name]
    envs = importlib.import_module("helped_envs")
    code = LoadedCode(["helped_envs"], began_ns=time.time_ns())
    assert not code.has_changed()
    envs.make()
    code.note()
    assert not code.has_changed()
    helper.write_text("REWARD = 2.0\n")
    os.utime(helper, ns=(1, 1))  # an older file in its place, as copies that keep times are
    assert code.has_changed()
