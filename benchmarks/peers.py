"""The peers: other people's software, in an environment of its own.

`.venv-peers` is made on first use. `NITRO_PEERS_PYTHON` names an interpreter to use instead, one
that has the peers installed; `PIP_ARGS` is passed to pip, as the Makefile does.
"""

import importlib.metadata
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.contestant import ROOT, Contestant
from benchmarks.measurement import progress

_ENVIRONMENT = ROOT / ".venv-peers"
_SCRIPT = Path(__file__).with_name("stable_baselines3_peer.py")
_HESSIAN_SCRIPT = Path(__file__).with_name("hessian_peer.py")
_PEERS = ("stable-baselines3==2.9.2", "PyHessian==0.1", "hessian-eigenthings==1.0.0a5")
_SAME_AS_OURS = ("torch", "gymnasium[mujoco]", "mujoco", "numpy")
"""Libraries a peer must not differ in, or the comparison would be theirs."""
_TAIL_CHARS = 2000


class PeerError(RuntimeError):
    """The peers cannot be installed."""


class PeerSettings(BaseSettings):
    """What the user can say about the peers' environment."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    python: Annotated[Path | None, Field(validation_alias="NITRO_PEERS_PYTHON")] = None
    """Interpreter that has the peers installed."""
    pip_args: Annotated[str, Field(validation_alias="PIP_ARGS")] = ""
    """Further arguments of pip."""


def stable_baselines3(*arguments: str) -> Contestant:
    """Return the Stable-Baselines3 peer, installing it if need be (see its script's arguments).

    Raises:
        PeerError: It cannot be installed.
    """
    # -I: neither our packages nor the user's can shadow the peer's.
    return Contestant([str(peer_python(PeerSettings())), "-I", str(_SCRIPT), *arguments])


def hessian_library(*arguments: str) -> Contestant:
    """Return a library for Hessians, installing it if need be (see its script's arguments).

    Raises:
        PeerError: It cannot be installed.
    """
    return Contestant([str(peer_python(PeerSettings())), "-I", str(_HESSIAN_SCRIPT), *arguments])


def peer_python(settings: PeerSettings, *, environment: Path = _ENVIRONMENT) -> Path:
    """Return an interpreter that has the peers, installing them if need be.

    Raises:
        PeerError: The interpreter named does not exist, or installing failed.
    """
    if settings.python is not None:
        if not settings.python.is_file():
            raise PeerError(
                f"NITRO_PEERS_PYTHON is {settings.python}, which is no file: name an interpreter "
                f"that has {', '.join(_PEERS)}, or unset it"
            )
        return settings.python
    python = environment / "bin" / "python"
    wanted = "\n".join(requirements())
    installed = environment / "installed.txt"
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        progress(f"installing the peers into {environment.name} (once; a minute or two)")
        _run([sys.executable, "-m", "venv", "--clear", str(environment)])
        (environment / ".gitignore").write_text("*\n", encoding="utf-8")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *shlex.split(settings.pip_args), *requirements()])
        installed.write_text(wanted, encoding="utf-8")
    return python


def requirements() -> list[str]:
    """Return what the peers' environment consists of."""
    return [*_PEERS, *(f"{name}=={_public_version(name)}" for name in _SAME_AS_OURS)]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerError(
            f"{shlex.join(command[:4])} ... failed:\n{done.stderr[-_TAIL_CHARS:]}\n"
            "Pass an index or a proxy to pip with PIP_ARGS, or name an interpreter that has the "
            "peers in NITRO_PEERS_PYTHON"
        )


def _public_version(name: str) -> str:
    """Return our version of a library without the `+cpu` that only one index knows."""
    return importlib.metadata.version(name.partition("[")[0]).partition("+")[0]
