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
    own_packages,
    require_registered,
    write_module,
)
from nitro.local.own_files import files_source, require_no_files
from nitro.local.own_networks import OwnNetworks
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
    networks: OwnNetworks = OwnNetworks()
    """Custom networks of the learner."""

    def check(self) -> None:
        """Raise if the API no longer works."""
        if self.system is not None:
            self.system.check()

    def wait_ready(self) -> None:
        """Wait until the processes that train a job are ready."""
        if self.system is not None:
            self.system.wait_ready()


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemOptions:
    """Options of a local system that a command starts."""

    processes: int | None = None
    """Concurrent actors; None means one per core."""
    learners: int = 1
    """Concurrent jobs."""
    parallel: int | None = None
    """The user's number of concurrent jobs; None without one."""
    learner_ranks: int | None = None
    """Processes that share a learner's gradient steps; None usually means one."""
    environment_packages: Sequence[str] | None = None
    """Modules of custom environments."""
    networks: Sequence[str] = ()
    """Import names of custom networks, for the learner."""
    most_actors: int = 0
    """Most actors in a round of a job."""

    def require_none(self, used: str) -> None:
        """Check that the user gave no option.

        Args:
            used: Which other system is used.

        Raises:
            CommandError: An option is given.
        """
        given = {
            "--processes": self.processes,
            "--parallel": self.parallel,
            "--learner-ranks": self.learner_ranks,
            "--environment-package": self.environment_packages,
            "--network": self.networks or None,
        }
        for option, value in given.items():
            if value is not None:
                raise CommandError(f"{option}: is for a local system that is started, but {used}")


@contextmanager
def open_api(
    runs_dir: Path,
    *,
    job: NewJob | Resumption | None = None,
    options: SystemOptions | None = None,
    known_here: Callable[[], str | None] = lambda: None,
    api_url: str | None = None,
    token: str | None = None,
    tell: Callable[[str], object],
) -> Iterator[Api]:
    """Connect to the named or running API, or else start a local system.

    Args:
        runs_dir: Folder of the local runs.
        job: The job to train; None for several, or none.
        options: Options of a new local system.
        known_here: Returns the name of its environment's maker in this process, for new actors.
        api_url: The named API.
        token: The named API's bearer token; None means the settings' token.
        tell: Called with a line about the used or started system.

    Raises:
        CommandError: An argument does not fit the API, or the system cannot be started.
    """
    options = options or SystemOptions()
    named = api_url or read_settings().api_url
    if not named and not StateFolder(runs_dir).is_served():
        with _started(runs_dir, job, options, known_here, tell) as api:
            yield api
        return
    if isinstance(job, NewJob):
        require_no_files(job.spec)
    used = "an API is named" if named else f"the system that `nitro up` runs on {runs_dir} is used"
    options.require_none(used)
    if not named:
        tell(used)
    with connect(api_url, runs_dir, token=token) as client:
        yield Api(client=client, place=Place(runs_dir=runs_dir, api_url=api_url))


@contextmanager
def _started(
    runs_dir: Path,
    job: NewJob | Resumption | None,
    options: SystemOptions,
    known_here: Callable[[], str | None],
    tell: Callable[[str], object],
) -> Iterator[Api]:
    """Start a local system for the block."""
    ranks, learners = options.learner_ranks or 1, options.learners
    networks = _networks(runs_dir, job, options)
    if networks.names and ranks > 1:
        raise CommandError("learner_ranks: a network of your own is trained in one process")
    named = options.environment_packages
    packages = _packages(runs_dir, job, named, known_here())
    tell("starting cache, emulator, scaler and learner on this machine")
    system = LocalSystem(
        runs_dir,
        processes=options.processes,
        learners=learners,
        learner_ranks=ranks,
        own=isinstance(job, NewJob) and bool(job.spec.resolved().actors.own),
        max_concurrency=max(_FEWEST_INVOCATIONS, learners * options.most_actors),
        cache_url=read_settings().cache_address,
        actor_variables=actor_variables(packages),
        environment=dict.fromkeys(map(learner_name, range(learners)), networks.variables()),
        job_id=_job_id(job.job_id, runs_dir) if isinstance(job, Resumption) else None,
        key=job.idempotency_key if isinstance(job, NewJob) else None,
    )
    with system, NitroClient(system.api_url, system.token) as client:
        place = Place(runs_dir=runs_dir, environment_packages=named or ())
        yield Api(
            client=client,
            system=system,
            place=place,
            environment_packages=packages,
            networks=networks,
        )
        system.close(at_once=True)  # the job has ended: there is no lease to return


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


def _networks(
    runs_dir: Path, job: NewJob | Resumption | None, options: SystemOptions
) -> OwnNetworks:
    """Return the named networks, or those that a resumed job had before."""
    if not options.networks and isinstance(job, Resumption) and is_here(job.job_id, runs_dir):
        return OwnNetworks.kept(find_run(job.job_id, runs_dir))
    return OwnNetworks.imported(options.networks)


def _job_id(run: str, runs_dir: Path) -> str:
    return find_run(run, runs_dir).absolute().name if is_here(run, runs_dir) else run
