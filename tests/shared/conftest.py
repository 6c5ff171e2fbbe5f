"""Fixtures of what every part shares."""

from pathlib import Path

import pytest


@pytest.fixture
def spool(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of temporary files: artifact stores leave theirs behind, as ended processes do."""
    folder = tmp_path_factory.mktemp("spool")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
