"""`import nitro`: light, and clear where another project's package hides one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nitro

_CLI = Path(sys.executable).with_name("nitro")


def _python(
    *arguments: str, folder: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": "" if path is None else str(path)}
    return subprocess.run(
        arguments,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_public_name_is_there() -> None:
    for name in nitro.__all__:
        assert getattr(nitro, name) is not None
        assert name in dir(nitro)
    with pytest.raises(AttributeError, match="no attribute 'tain'"):
        nitro.tain  # noqa: B018


def test_the_import_loads_no_library(tmp_path: Path) -> None:
    source = "import nitro, sys; print({'torch', 'numpy', 'pydantic', 'httpx'} & {*sys.modules})"
    assert _python(sys.executable, "-c", source, folder=tmp_path).stdout == "set()\n"


@pytest.mark.parametrize("name", ["shared", "services", "functions", "learning"])
def test_another_package_of_that_name_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    theirs.mkdir()
    (theirs / "__init__.py").write_text("")
    away = tmp_path / "away"
    away.mkdir()
    imported = _python(sys.executable, "-c", "import nitro", folder=tmp_path)
    command = _python(str(_CLI), "--version", folder=away, path=tmp_path)
    for done in (imported, command):
        assert done.returncode == 1
        assert done.stderr.startswith(f"{theirs} hides Nitro's own package {name!r}: rename it, or")
        assert len(done.stderr.splitlines()) == 1
    caught = "try:\n    import nitro\nexcept ImportError as error:\n    print(error.name)"
    assert _python(sys.executable, "-c", caught, folder=tmp_path).stdout == f"{name}\n"


def test_a_folder_of_that_name_without_code_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    assert _python(sys.executable, "-c", "import nitro", folder=tmp_path).returncode == 0
