"""The place that trains a sweep's jobs: its own local system, `nitro up`, or an API."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nitro.errors import CommandError
from nitro.foreign_output import foreign_code
from nitro.local.access import Api, SystemOptions, open_api
from nitro.local.own_environments import own_packages, require_registered
from nitro.local.state_folder import StateFolder
from nitro.settings import read_settings
from nitro.spec.fit import require_fit
from nitro.sweeps.folder import Asked, SweepFolder
from nitro.sweeps.grid import kinds_of
from nitro.sweeps.rows import Row
from shared.contracts.environment_spec import EnvironmentSpec
from shared.service.cores import usable_cores

AUTO = "auto"
_ON_AN_API = 8
"""Default number of jobs at once on an API; it trains as many as it has learners."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """The number of concurrent jobs, with the reason."""

    jobs: int
    reason: str


def parallel_jobs(text: str, *, rows: int, here: bool) -> Parallel:
    """Read `--parallel`.

    Args:
        text: `auto` or a number.
        rows: Jobs of the sweep.
        here: Whether this machine trains them.

    Raises:
        CommandError: It is neither.
    """
    if text == AUTO and here:
        cores = usable_cores()
        return Parallel(
            max(1, min(rows, cores)),
            f"one job for each of {cores} cores: a job's learner and its actors take turns",
        )
    if text == AUTO:
        reason = "an API queues jobs that it cannot train yet"
        return Parallel(max(1, min(rows, _ON_AN_API)), reason)
    if not text.isdigit() or int(text) < 1:
        raise CommandError(f"--parallel: must be auto or a number from 1, got {text!r}")
    return Parallel(min(rows, int(text)) or 1, "as asked for")


def is_here(folder: SweepFolder, api_url: str | None) -> bool:
    """Whether a sweep would start a local system."""
    named = api_url or read_settings().api_url
    return not named and not StateFolder(folder.runs_dir).is_served()


def require_possible(asked: Asked, runs_dir: Path, *, api_url: str | None) -> None:
    """Check that the jobs of a new sweep can learn their environments on this machine.

    An API has environments of its own, and refuses the jobs itself.

    Raises:
        CommandError: An environment is not on this machine, or jobs cannot learn theirs; a line
            for each setting.
    """
    folder = SweepFolder(runs_dir, asked.spec.known_name)
    if is_here(folder, api_url) and not folder.exists():
        own_packages(asked.environment_packages or None)
        for env_id in asked.spec.environments:
            require_registered(env_id)
        _require_fit(kinds_of(asked.spec, runs_dir=runs_dir))


def _require_fit(rows: Sequence[Row]) -> None:
    from shared.environments.describing import describe  # Gymnasium takes a while to load
    from shared.environments.spaces import UnsupportedEnvironment
    from shared.environments.variables import set_variables

    described: dict[str, EnvironmentSpec] = {}
    wrong: list[str] = []
    try:
        for row in rows:
            spec = row.spec.resolved()
            key = spec.environment_ref.model_dump_json()
            try:
                if key not in described:
                    with foreign_code():
                        described[key] = describe(spec.environment_ref)
                require_fit(spec, described[key], here=True)
            except (UnsupportedEnvironment, CommandError) as error:
                wrong.append(f"{row.env_id}, {row.setting}: {error}")
    finally:
        set_variables({})  # actors inherit this process's variables
    if wrong:
        raise CommandError("\n".join(wrong))


@contextmanager
def open_place(
    folder: SweepFolder,
    rows: Sequence[Row],
    *,
    parallel: int,
    api_url: str | None,
    environment_packages: Sequence[str],
    tell: Callable[[str], object],
) -> Iterator[Api]:
    """Connect to the selected API, or start a local system in the sweep's folder.

    Raises:
        CommandError: An environment is unknown here, or the system or API is unavailable.
    """
    if not is_here(folder, api_url):
        with open_api(folder.runs_dir, api_url=api_url, tell=tell) as api:
            yield api
        return
    packages = own_packages(environment_packages or None)
    for env_id in dict.fromkeys(row.env_id for row in rows):
        require_registered(env_id)
    with open_api(
        folder.path,
        options=SystemOptions(
            learners=parallel,
            parallel=parallel,
            environment_packages=packages or None,
            most_actors=max(row.spec.actors.max for row in rows),
        ),
        tell=tell,
    ) as api:
        yield api
