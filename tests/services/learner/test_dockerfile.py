"""Which build of torch the learner's image gets: its own commands, with pip and made-up indexes."""

import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.patience import ANSWER_S

_DOCKERFILE = Path(__file__).parents[3] / "services/learner/Dockerfile"
_VERSION = "2.13.0"
_METADATA = "Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
_WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_PIP = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
_PIP_S = 20 * ANSWER_S


def _installing() -> list[str]:
    """Return the image's commands that make its environment and install into it."""
    lines = _DOCKERFILE.read_text("utf-8").splitlines(keepends=True)
    # Comments may stand inside a command there, which no shell takes.
    text = "".join(line for line in lines if not line.lstrip().startswith("#"))
    commands = re.findall(r"^RUN ((?:.*\\\n)*.*)", text, re.MULTILINE)
    found = [command for command in commands if "venv" in command or "TORCH_BUILD" in command]
    assert len(found) == 2
    return found


def _index(root: Path, versions: Iterable[str]) -> str:
    """Make an index of wheels that hold nothing; return its address."""
    folder = root / "torch"
    folder.mkdir(parents=True)
    for version in versions:
        about = f"torch-{version}.dist-info"
        with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{about}/METADATA", _METADATA.format(version=version))
            wheel.writestr(f"{about}/WHEEL", _WHEEL)
            wheel.writestr(f"{about}/RECORD", "")
    links = "".join(f'<a href="{p.name}">{p.name}</a>\n' for p in sorted(folder.glob("*.whl")))
    (folder / "index.html").write_text(links)
    return root.as_uri()


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with what the first command makes: pip's environment and an empty `target`."""
    folder = tmp_path_factory.mktemp("environments")
    command = _installing()[0].replace("/opt/nitro", str(folder / "target"))
    subprocess.run(["sh", "-c", command], cwd=folder, check=True, timeout=_PIP_S)
    return folder


def _installed(folder: Path, environments: Path, **arguments: str) -> tuple[int, list[str], str]:
    """Install into an environment; return the exit status, what is in it, and what was said."""
    build, target = folder / "build", folder / "target"
    build.mkdir()
    (build / "pip").symlink_to(environments / "pip")
    shutil.copytree(environments / "target", target, symlinks=True)
    (build / "requirements.txt").write_text(f"torch=={_VERSION}\n")
    (build / "constraints.txt").write_text(f"torch=={_VERSION}\n")
    script = _installing()[1].replace("/opt/nitro", str(target))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    ended = subprocess.run(
        ["sh", "-c", script],
        cwd=build,
        env={**inherited, **_PIP, **arguments},
        capture_output=True,
        text=True,
        timeout=_PIP_S,
        check=False,
    )
    found = target.rglob("torch-*.dist-info")
    versions = [path.name.removeprefix("torch-").removesuffix(".dist-info") for path in found]
    return ended.returncode, versions, ended.stderr


@pytest.mark.parametrize(
    ("build", "version"),
    [("cuda", "2.13.0"), ("cu126", "2.13.0+cu126")],
)
def test_the_build_that_is_asked_for_is_installed(
    tmp_path: Path, environments: Path, build: str, version: str
) -> None:
    usual = _index(tmp_path / "usual", [_VERSION])
    ours = [] if build == "cuda" else [version, "2.13.0+other", "2.14.0+" + build]
    status, versions, said = _installed(
        tmp_path,
        environments,
        TORCH_BUILD=build,
        PIP_ARGS=f"--index-url {usual}",
        TORCH_INDEX_URL=_index(tmp_path / "torch", ours),
    )
    assert (status, versions) == (0, [version]), said


def test_a_build_for_a_cuda_version_that_is_not_there_ends_the_build(
    tmp_path: Path, environments: Path
) -> None:
    usual = _index(tmp_path / "usual", [_VERSION])
    status, versions, said = _installed(
        tmp_path,
        environments,
        TORCH_BUILD="cu126",
        PIP_ARGS=f"--index-url {usual}",
        TORCH_INDEX_URL=_index(tmp_path / "torch", ["2.13.0+cu130"]),
    )
    assert (status, versions) == (1, [])
    assert "torch==2.13.0+cu126" in said
