"""The peers: other people's software, each in an environment of its own.

The environments are made on first use. A variable for each (such as `NITRO_PEERS_PYTHON`) names an
interpreter to use instead, one that has the peer installed; `PIP_ARGS` is passed to pip, as the
Makefile does.
"""

import importlib.metadata
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from benchmarks.measurement import progress
from benchmarks.peers.contestant import ROOT, Contestant

_SAME_AS_OURS = ("torch", "gymnasium[mujoco]", "mujoco", "numpy")
"""Libraries a peer must not differ in, or the comparison would be theirs."""
_TAIL_CHARS = 2000


class PeerError(RuntimeError):
    """The peers cannot be installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One peer: what is installed for it, where, and the script that measures it."""

    name: str
    pins: tuple[str, ...]
    same_as_ours: tuple[str, ...]
    """Libraries of which it gets our versions."""
    environment: Path
    script: Path
    variable: str
    """Names an interpreter to use instead."""

    def requirements(self) -> list[str]:
        """Return what its environment consists of."""
        return [*self.pins, *(f"{name}=={_public_version(name)}" for name in self.same_as_ours)]


STABLE_BASELINES3 = Peer(
    name="stable-baselines3",
    pins=(
        "stable-baselines3==2.9.2",
        "sb3-contrib==2.9.2",
        "box2d==2.3.10; platform_machine!='aarch64'",  # it has no wheel for Arm
    ),
    same_as_ours=(*_SAME_AS_OURS, "ale-py", "opencv-python-headless"),
    environment=ROOT / ".venv-peers",
    script=Path(__file__).with_name("stable_baselines3_peer.py"),
    variable="NITRO_PEERS_PYTHON",
)
HESSIAN_LIBRARIES = Peer(
    name="PyHessian and hessian-eigenthings",
    pins=("PyHessian==0.1", "hessian-eigenthings==1.0.0a5"),
    same_as_ours=("torch", "numpy"),
    environment=ROOT / ".venv-peers-hessian",
    script=Path(__file__).with_name("hessian_peer.py"),
    variable="NITRO_HESSIAN_PYTHON",
)
SAMPLE_FACTORY = Peer(
    name="sample-factory",
    # Its newest release wants a Gymnasium without the `-v5` environments, and NumPy 1.
    pins=("sample-factory==2.1.1", "gymnasium[mujoco]"),
    same_as_ours=("torch", "mujoco"),
    environment=ROOT / ".venv-peers-sample-factory",
    script=Path(__file__).with_name("sample_factory_peer.py"),
    variable="NITRO_SAMPLE_FACTORY_PYTHON",
)
RLLIB = Peer(
    name="ray[rllib]",
    # It names one Gymnasium, another than ours.
    pins=("ray[rllib]==2.60.0", "gymnasium[mujoco]"),
    same_as_ours=("torch", "mujoco", "numpy"),
    environment=ROOT / ".venv-peers-rllib",
    script=Path(__file__).with_name("rllib_peer.py"),
    variable="NITRO_RLLIB_PYTHON",
)


EVOTORCH = Peer(
    name="evotorch",
    pins=("evotorch==0.6.1", "imageio==2.37.3"),
    same_as_ours=_SAME_AS_OURS,
    environment=ROOT / ".venv-peers-evotorch",
    script=Path(__file__).with_name("evotorch_peer.py"),
    variable="NITRO_EVOTORCH_PYTHON",
)
SBX = Peer(
    name="sbx",
    pins=("sbx-rl==0.28.0", "jax==0.10.2"),
    same_as_ours=_SAME_AS_OURS,
    environment=ROOT / ".venv-peers-sbx",
    script=Path(__file__).with_name("sbx_peer.py"),
    variable="NITRO_SBX_PYTHON",
)


class PeerSettings(BaseSettings):
    """The user's settings of the peers' environment."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    python: Annotated[Path | None, Field(validation_alias="NITRO_PEERS_PYTHON")] = None
    """Interpreter that has Stable-Baselines3."""
    sample_factory_python: Annotated[
        Path | None, Field(validation_alias="NITRO_SAMPLE_FACTORY_PYTHON")
    ] = None
    """Interpreter that has Sample Factory."""
    rllib_python: Annotated[Path | None, Field(validation_alias="NITRO_RLLIB_PYTHON")] = None
    """Interpreter that has RLlib."""
    evotorch_python: Annotated[Path | None, Field(validation_alias="NITRO_EVOTORCH_PYTHON")] = None
    """Interpreter that has evotorch."""
    sbx_python: Annotated[Path | None, Field(validation_alias="NITRO_SBX_PYTHON")] = None
    """Interpreter that has sbx."""
    hessian_python: Annotated[Path | None, Field(validation_alias="NITRO_HESSIAN_PYTHON")] = None
    """Interpreter that has PyHessian and hessian-eigenthings."""
    pip_args: Annotated[str, Field(validation_alias="PIP_ARGS")] = ""
    """Further arguments of pip."""

    def named(self, peer: Peer) -> Path | None:
        """Return the interpreter named for a peer."""
        by_name = {
            STABLE_BASELINES3.name: self.python,
            HESSIAN_LIBRARIES.name: self.hessian_python,
            SAMPLE_FACTORY.name: self.sample_factory_python,
            RLLIB.name: self.rllib_python,
            EVOTORCH.name: self.evotorch_python,
            SBX.name: self.sbx_python,
        }
        return by_name[peer.name]


def contestant(peer: Peer, *arguments: str) -> Contestant:
    """Return a peer ready to be measured, installing it if need be (see its script's arguments).

    Raises:
        PeerError: It cannot be installed.
    """
    # -I: neither our packages nor the user's can shadow the peer's.
    python = peer_python(PeerSettings(), peer=peer)
    return Contestant([str(python), "-I", str(peer.script), *arguments])


def if_installable(peer: Peer, *arguments: str) -> dict[str, Contestant]:
    """Return the peer by its name; nothing, and say so, where it cannot be installed."""
    try:
        return {peer.name: contestant(peer, *arguments)}
    except PeerError as error:
        progress(f"{peer.name} is left out: {error}")
        return {}


def stable_baselines3(*arguments: str) -> Contestant:
    """Return the Stable-Baselines3 peer; see `contestant`."""
    return contestant(STABLE_BASELINES3, *arguments)


def hessian_library(*arguments: str) -> Contestant:
    """Return a library for Hessians; see `contestant`."""
    return contestant(HESSIAN_LIBRARIES, *arguments)


def peer_python(
    settings: PeerSettings, *, environment: Path | None = None, peer: Peer = STABLE_BASELINES3
) -> Path:
    """Return an interpreter that has a peer, installing it if need be.

    Args:
        settings: What the user says about it.
        environment: Where to install it; None means the peer's own place.
        peer: Which.

    Raises:
        PeerError: The interpreter named does not exist, or installing failed.
    """
    named = settings.named(peer)
    if named is not None:
        if not named.is_file():
            raise PeerError(
                f"{peer.variable} is {named}, which is no file: name an interpreter that has "
                f"{peer.name}, or unset it"
            )
        return named
    environment = environment or peer.environment
    python = environment / "bin" / "python"
    wanted = "\n".join(peer.requirements())
    installed = environment / "installed.txt"
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        progress(f"installing {peer.name} into {environment.name} (once; some minutes)")
        _run([sys.executable, "-m", "venv", "--clear", str(environment)], peer)
        (environment / ".gitignore").write_text("*\n", encoding="utf-8")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *shlex.split(settings.pip_args), *peer.requirements()], peer)
        installed.write_text(wanted, encoding="utf-8")
    return python


def _run(command: list[str], peer: Peer) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerError(
            f"{peer.name} cannot be installed: {shlex.join(command[:4])} ... failed:\n"
            f"{done.stderr[-_TAIL_CHARS:]}\n"
            "Pass an index or a proxy to pip with PIP_ARGS, or name an interpreter that has the "
            f"peer in {peer.variable}"
        )


def _public_version(name: str) -> str:
    """Return our version of a library without the `+cpu` that only one index knows."""
    return importlib.metadata.version(name.partition("[")[0]).partition("+")[0]
