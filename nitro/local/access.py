"""The REST API that trains a job: a named one, `nitro up`'s, or that of a new local system.

The command line, `nitro.train` and experiments get it here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nitro.client.beginning import NewJob, Resumption
from nitro.client.client import NitroClient
from nitro.client.connection import connect
from nitro.errors import CommandError
from nitro.hints import Place
from nitro.local.own_environments import (
    actor_variables,
    kept_maker,
    learner_variables,
    own_packages,
    require_registered,
    write_module,
)
from nitro.local.own_files import files_source, require_no_files
from nitro.local.plan import learner_name
from nitro.local.state_folder import StateFolder
from nitro.local.system import LocalSystem
from nitro.runs.reading import find_run, is_here, read_job
from nitro.settings import read_settings

_FEWEST_INVOCATIONS = 1000
"""The initial quota of an AWS account, so that a local system throttles no earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A REST API to train against."""

    client: NitroClient
    system: LocalSystem | None = None
    """The processes behind it, if we started them."""
    place: Place
    """Options with which suggested commands reach it."""
    environment_packages: tuple[str, ...] = ()
    """Modules that actors import to register the user's environments."""

    def check(self) -> None:
        """Raise if the API no longer works."""
        if self.system is not None:
            self.system.check()

    def wait_ready(self) -> None:
        """Wait until the processes that train a job are ready."""
        if self.system is not None:
            self.system.wait_ready()


@contextmanager
def open_api(
    runs_dir: Path,
    *,
    job: NewJob | Resumption | None = None,
    known_here: Callable[[], str | None] = lambda: None,
    most_actors: int = 0,
    api_url: str | None = None,
    token: str | None = None,
    processes: int | None = None,
    learners: int = 1,
    parallel: int | None = None,
    learner_ranks: int | None = None,
    environment_packages: Sequence[str] | None = None,
    networks: Sequence[str] = (),
    tell: Callable[[str], object],
) -> Iterator[Api]:
    """Connect to the named or running API, or else start a local system.

    Args:
        runs_dir: Folder of the local runs.
        job: The job to train; None for several, or none.
        known_here: Returns the name of its environment's maker in this process, for new actors.
        most_actors: Most actors in one of its rounds.
        api_url: The named API.
        token: The named API's bearer token; None means the settings' token.
        processes: Concurrent actors of a new local system.
        learners: Concurrent jobs of a new local system.
        parallel: The user's number of concurrent jobs; None without one.
        learner_ranks: Processes that share a learner's gradient steps; None usually means one.
        environment_packages: Custom environments for a new local system.
        networks: Custom networks for the learner of a new local system.
        tell: Called with a line about the used or started system.

    Raises:
        CommandError: An argument does not fit the API, or the system cannot be started.
    """
    settings = read_settings()
    named = api_url or settings.api_url
    spec = job.spec if isinstance(job, NewJob) else None
    if not named and not StateFolder(runs_dir).is_served():
        if networks and (learner_ranks or 1) > 1:
            raise CommandError("learner_ranks: a network of your own is trained in one process")
        packages = _packages(runs_dir, job, environment_packages, known_here())
        tell("starting cache, emulator, scaler and learner on this machine")
        system = LocalSystem(
            runs_dir,
            processes=processes,
            learners=learners,
            learner_ranks=learner_ranks or 1,
            own=spec is not None and bool(spec.resolved().actors.own),
            max_concurrency=max(_FEWEST_INVOCATIONS, learners * most_actors),
            cache_url=settings.cache_address,
            actor_variables=actor_variables(packages),
            environment=dict.fromkeys(
                map(learner_name, range(learners)), learner_variables(networks)
            ),
            job_id=_job_id(job.job_id, runs_dir) if isinstance(job, Resumption) else None,
            key=job.idempotency_key if isinstance(job, NewJob) else None,
        )
        with system, NitroClient(system.api_url, system.token) as client:
            place = Place(runs_dir=runs_dir, environment_packages=environment_packages or ())
            yield Api(client=client, system=system, place=place, environment_packages=packages)
            system.close(at_once=True)  # the job has ended: there is no lease to return
        return
    if spec is not None:
        require_no_files(spec)
    used = "an API is named" if named else f"the system that `nitro up` runs on {runs_dir} is used"
    local = {
        "--processes": processes,
        "--parallel": parallel,
        "--learner-ranks": learner_ranks,
        "--environment-package": environment_packages,
        "--network": networks or None,
    }
    for option, value in local.items():
        if value is not None:
            raise CommandError(f"{option}: is for a local system that is started, but {used}")
    if not named:
        tell(used)
    with connect(api_url, runs_dir, token=token) as client:
        yield Api(client=client, place=Place(runs_dir=runs_dir, api_url=api_url))


def _packages(
    runs_dir: Path,
    job: NewJob | Resumption | None,
    option: Sequence[str] | None,
    known_here: str | None,
) -> tuple[str, ...]:
    """Import the modules that actors on this machine need for a job, and return their names.

    Raises:
        CommandError: A module cannot be imported, or nothing makes the job's environment.
    """
    if isinstance(job, NewJob):
        env_id = job.spec.env_id
        names = own_packages(option, known_here=known_here or kept_maker(runs_dir, env_id))
        require_registered(env_id)
        files = files_source(job.spec)
        return names if files is None else (*names, write_module(runs_dir, "files", files))
    if job is None or not is_here(job.job_id, runs_dir):
        return own_packages(option)
    run = find_run(job.job_id, runs_dir)
    names = own_packages(option, runs=[run])
    require_registered(read_job(run).spec.env_id)
    return names


def _job_id(run: str, runs_dir: Path) -> str:
    return find_run(run, runs_dir).absolute().name if is_here(run, runs_dir) else run
