"""The REST API that a job is trained by: one that is named, `nitro up`'s, or a system started here.

Whoever trains takes it from here: the command line, `nitro.train` and experiments.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
from shared.contracts.job_spec import JobSpec

_FEWEST_INVOCATIONS = 1000
"""The first quota of an AWS account, so that a local system throttles no sooner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A REST API to train against."""

    client: NitroClient
    system: LocalSystem | None = None
    """The processes behind it, if they are ours."""
    place: Place
    """Options that suggested commands need to reach it again."""
    environment_packages: tuple[str, ...] = ()
    """Modules that actors import to know the user's environments."""

    def check(self) -> None:
        """Raise if the API cannot do its work any more."""
        if self.system is not None:
            self.system.check()

    def wait_ready(self) -> None:
        """Wait for what a job needs beyond being submitted."""
        if self.system is not None:
            self.system.wait_ready()


@contextmanager
def open_api(
    runs_dir: Path,
    *,
    spec: JobSpec | None,
    resume: str | None = None,
    key: str | None = None,
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
    """Connect to the API that is meant or is up here, or else start the local system.

    Args:
        runs_dir: Folder of the local runs.
        spec: What will be trained, where that is known here.
        resume: The job that goes on, where that is not a new one.
        key: The idempotency key that a new one is submitted with.
        known_here: Names what this process knows its environment by, for actors that are started.
        most_actors: How many actors a round of it may have.
        api_url: The API that is named.
        token: The named API's bearer token; None for that of the settings.
        processes: Actors that run at once, for a local system that is started.
        learners: Jobs that are trained at once, for a local system that is started.
        parallel: How many of them the user asked for; None where nobody did.
        learner_ranks: Processes that share a learner's gradient steps; None for one, as a rule.
        environment_packages: Of environments of one's own, for a local system that is started.
        networks: Of one's own, for the learner of a local system that is started.
        tell: Takes a line on what is used or started.

    Raises:
        CommandError: Something given does not fit the API, or the system cannot be started.
    """
    settings = read_settings()
    named = api_url or settings.api_url
    if not named and not StateFolder(runs_dir).is_served():
        if networks and (learner_ranks or 1) > 1:
            raise CommandError("learner_ranks: a network of your own is trained in one process")
        packages = _packages(runs_dir, spec, resume, environment_packages, known_here())
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
            job_id=resume and _job_id(resume, runs_dir),
            key=key,
        )
        with system, NitroClient(system.api_url, system.token) as client:
            place = Place(runs_dir=runs_dir, environment_packages=environment_packages or ())
            yield Api(client=client, system=system, place=place, environment_packages=packages)
            system.close(at_once=True)  # the job has ended: there is nothing to hand back
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
    spec: JobSpec | None,
    resume: str | None,
    option: Sequence[str] | None,
    known_here: str | None,
) -> tuple[str, ...]:
    """Return what actors on this machine import for a job, which is imported here as well.

    Raises:
        CommandError: It cannot be imported, or nothing makes the job's environment.
    """
    if spec is not None:
        names = own_packages(option, known_here=known_here or kept_maker(runs_dir, spec.env_id))
        require_registered(spec.env_id)
        files = files_source(spec)
        return names if files is None else (*names, write_module(runs_dir, "files", files))
    if resume is None or not is_here(resume, runs_dir):
        return own_packages(option)
    run = find_run(resume, runs_dir)
    names = own_packages(option, runs=[run])
    require_registered(read_job(run).spec.env_id)
    return names


def _job_id(resume: str, runs_dir: Path) -> str:
    return find_run(resume, runs_dir).absolute().name if is_here(resume, runs_dir) else resume
