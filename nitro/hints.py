"""Suggested commands, complete and quoted, ready to paste."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RUNS = Path("runs")
"""Where runs are kept unless the user says otherwise."""
_WHERE = ("--runs-dir", "--api-url")
_OPTIONS: Mapping[str, Sequence[str]] = {
    "train": (*_WHERE, "--environment-package"),
    "jobs": _WHERE,
    "sweep": _WHERE,
    "track": _WHERE,
    "dashboard": _WHERE,
    "evaluate": ("--runs-dir", "--environment-package"),
    "up": ("--runs-dir", "--environment-package"),
    "export": ("--runs-dir",),
    "plot": ("--runs-dir",),
    "runs": ("--runs-dir",),
    "check-env": ("--environment-package",),
}
"""By command: options that say where a run is, and what makes its environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a user works, as named on the command line; suggested commands name the same."""

    runs_dir: Path = RUNS
    api_url: str | None = None
    """None where no option names an API: then settings find it again."""
    environment_packages: Sequence[str] = ()

    def command(self, *words: object) -> str:
        """Return a command of this program, as a shell reads it.

        >>> Place(runs_dir=Path("my runs")).command("runs", "show", "hopper-v5-3f2a")
        "nitro runs show hopper-v5-3f2a --runs-dir 'my runs'"
        """
        takes = _OPTIONS.get(str(words[0]), ())
        line, variables = [_program(), *map(str, words)], ""
        if self.runs_dir != RUNS and "--runs-dir" in takes:
            line += ["--runs-dir", str(self.runs_dir)]
        if self.api_url is not None and "--api-url" in takes:
            line += ["--api-url", self.api_url]
        elif self.api_url is not None and takes:
            variables = f"NITRO_API_URL={shlex.quote(self.api_url)} "
        if "--environment-package" in takes:
            for package in self.environment_packages:
                line += ["--environment-package", package]
        return variables + shlex.join(line)


def near(path: Path) -> str:
    """Return a path as it is typed here: one too long for a line could not be copied."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _program() -> str:
    """Return how this program is called here: `make train` leaves it off the path."""
    if shutil.which("nitro") is None:
        beside = Path(sys.executable).with_name("nitro")
        if beside.exists():
            return near(beside)
    return "nitro"
