"""`nitro.train`: one call from an environment to a trained policy."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_jsonable_python

from nitro.client.beginning import NewJob, Resumption
from nitro.client.follow import Snapshot, follow, line_of, stop_unfinished
from nitro.errors import EXIT_FAILED, CommandError
from nitro.local.access import Api, SystemOptions, open_api
from nitro.local.left_over import end_left_over
from nitro.local.own_environments import keep_packages, require_admitted_here, write_module
from nitro.python.makers import Maker, maker_name, registered_name
from nitro.python.progress import View, shown_progress
from nitro.python.run import Run, read
from nitro.runs.finished import finished_folder
from nitro.runs.reading import find_run, is_here
from nitro.runs.summary import going_on
from nitro.settings import read_settings
from nitro.spec.earlier_policy import earlier_policy
from nitro.spec.fields import field_named
from nitro.spec.short_forms import written_out
from nitro.spec.total_steps import parse_steps
from nitro.spec.train_spec import train_spec
from shared.contracts.jobs import Job
from shared.contracts.rounds import RoundLine
from shared.environments.packages import maker_env_id
from shared.environments.scripts import end_import
from shared.policy.onnx_network import INSTALL

_OPTION = re.compile(r"--([a-z][a-z-]*)")
NetworkMaker = Callable[..., Any]
"""Takes the description of an environment, and returns a torch module."""
OnRound = Callable[[RoundLine], object]
"""Called with every finished round; it stops the job by returning False, or by raising."""


def train(
    env: str | Maker | None = None,
    *,
    total_steps: float | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    algorithm: str | None = None,
    preset: str | None = None,
    budget_usd: float | None = None,
    init_from: str | Path | Run | None = None,
    resume: str | Path | Run | None = None,
    fresh_schedule: bool = False,
    api_url: str | None = None,
    token: str | None = None,
    on_round: OnRound | None = None,
    runs_dir: str | Path = "runs",
    progress: bool | None = None,
    processes: int | None = None,
    environment_packages: Sequence[str] | None = None,
    network: NetworkMaker | None = None,
    **fields: Any,
) -> Run:
    """Train an agent and return its run, once the job has ended.

    Without `api_url`, or NITRO_API_URL, everything runs on this machine: this call starts the
    system and ends it, unless `nitro up` runs it already. Ctrl-C stops the job after the current
    update; a second one returns at once. Defaults are those of `nitro train`.

    Args:
        env: Name of a registered environment; default: Hopper-v5. On this machine it may also be a
            function or class that makes one, at the top level of a file that can be imported.
        total_steps: Environment steps, instead of `rounds`; with `resume`, the new total.
        rounds: Policy updates.
        seed: Equal seeds train equal policies.
        algorithm: `ppo`, `impact`, `impala`, `sac`, `crossq`,
            `ars` or `es`.
        preset: Hyper-parameters to start from: `standard` or `paper`.
        budget_usd: Cap on the projected AWS cost; default: 5 with an API, no cap on this machine.
        init_from: An earlier run, its id or its folder: a new job starts from its newest policy.
            `run:best`, or a run loaded with its best checkpoint, starts from the best policy.
        resume: A run to continue instead of a new one; `rounds`, `total_steps` and `budget_usd`
            raise limits.
        fresh_schedule: With `resume` and more rounds: restarts the decay of the step size.
        api_url: REST API of a deployment.
        token: Its bearer token; default: NITRO_TOKEN or NITRO_TOKEN_FILE.
        on_round: Called with the record of every round when it is finished, in order; with `resume`
            earlier rounds are left out. If it returns False or raises, the job stops after the
            current update; then its exception is raised.
        runs_dir: Folder of the local runs.
        progress: Whether to show progress; by default on a terminal and in a notebook.
        processes: Actors that run at once on this machine; default: one per core.
        environment_packages: Modules that register your own environments, for actors on this
            machine; default: NITRO_ENVIRONMENT_PACKAGES.
        network: Class or function that makes a torch module with `actor` and `critic` for an
            environment, on this machine: the learner trains it instead of its own network. It must
            be at the top level of an importable file, and gets a description such as
            `environment.observation.shape`. With `resume` the default is the run's network.
        **fields: Any field of a job, as `nitro fields` and `nitro presets` list them:
            `envs_per_actor=4`, `learning_rate=1e-4`, `stop={"target_return": 475}`. `scaling` and
            `actors` may be texts as on the command line: `scaling="fixed:8"`, `actors="8:64"`.

    Raises:
        CommandError: A field is wrong, the job was refused or failed, or the system or the API is
            unreachable. Wrong fields are reported before anything starts.
    """
    end_import()
    _require_arguments(processes=processes, on_round=on_round, api_url=api_url)
    folder = Path(runs_dir)
    if isinstance(environment_packages, str):  # a single name instead of a list
        environment_packages = [environment_packages]
    if env is not None and not isinstance(env, str):
        env, environment_packages = _with_maker(env, environment_packages, folder)
    said: dict[str, JsonValue] = {
        "env_id": env,
        "seed": seed,
        "algorithm": algorithm,
        "preset": preset,
    }
    limits: dict[str, JsonValue] = {"stop.max_rounds": rounds, "stop.budget_usd": budget_usd}
    given = {name: value for name, value in said.items() if value is not None}
    networks = () if network is None else (_network_name(network, folder),)
    with _in_keywords():
        steps = None if total_steps is None else parse_steps(str(total_steps))
        if resume is not None:
            _require_resume_alone({**given, **fields, "init_from": init_from})
            job: NewJob | Resumption = Resumption(
                job_id=_named(resume, folder),
                max_rounds=rounds,
                max_env_steps=steps,
                budget_usd=budget_usd,
                fresh_schedule=fresh_schedule,
            )
        else:
            options = _plain(fields, folder) | given
            options |= {name: value for name, value in limits.items() if value is not None}
            if networks:
                options["hyperparameters.network"] = maker_env_id(networks[0])
            if init_from is not None:
                options |= earlier_policy(_named(init_from, folder), folder, env_id=env)
            here = not (api_url or read_settings().api_url)
            job = NewJob(spec=train_spec(options=options, total_steps=steps, here=here))
    with (
        shown_progress(wanted=progress) as view,
        open_api(
            folder,
            job=job,
            options=SystemOptions(
                processes=processes,
                environment_packages=environment_packages,
                networks=networks,
                most_actors=job.spec.actors.max if isinstance(job, NewJob) else 0,
            ),
            known_here=partial(_known_here, job, folder),
            api_url=api_url,
            token=token,
            tell=view.note,
        ) as api,
    ):
        return _trained(job, api, runs_dir=folder, on_round=on_round, view=view)


def _known_here(job: NewJob | Resumption, runs_dir: Path) -> str | None:
    """Return this process's packages for the environment of a new job."""
    if not isinstance(job, NewJob):
        return None
    return registered_name(job.spec.env_id, partial(write_module, runs_dir))


def _named(run: str | Path | Run, runs_dir: Path) -> str:
    """Return a run's name for the command line."""
    if isinstance(run, Run):
        return f"{run.job_id}:{run.checkpoint}" if run.checkpoint != "newest" else run.job_id
    text = str(run)
    return find_run(text, runs_dir).absolute().name if is_here(text, runs_dir) else text


def _require_resume_alone(given: Mapping[str, object]) -> None:
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise CommandError(
            f"--resume: the job continues as it was specified; leave out "
            f"{', '.join(named)}. Only rounds, total_steps and budget_usd can be raised"
        )


def _require_arguments(*, processes: object, on_round: object, api_url: object) -> None:
    """Check arguments before the system starts.

    Raises:
        CommandError: An argument is invalid; names it.
    """
    if processes is not None and (type(processes) is not int or processes < 1):
        raise CommandError(f"processes: must be a whole number from 1, got {processes!r}")
    if on_round is not None and not callable(on_round):
        raise CommandError(f"on_round: must be a function of a round, got {on_round!r}")
    if api_url is not None and not isinstance(api_url, str):
        raise CommandError(f"api_url: must be a text such as https://host, got {api_url!r}")


@contextmanager
def _in_keywords() -> Iterator[None]:
    """Translate the command line's names in errors to Python's arguments."""
    try:
        yield
    except CommandError as error:
        text = _OPTION.sub(lambda option: option[1].replace("-", "_"), str(error))
        raise CommandError(text, exit_code=error.exit_code) from error


def _with_maker(
    maker: Maker, packages: Sequence[str] | None, runs_dir: Path
) -> tuple[str, Sequence[str]]:
    """Return the name of a maker's environment, and the packages that actors import for it."""
    name = maker_name(maker, partial(write_module, runs_dir))
    known = read_settings().environment_packages if packages is None else packages
    return maker_env_id(name), [*known, name]


def _network_name(network: NetworkMaker, runs_dir: Path) -> str:
    """Return the import name of a custom network for a learner on this machine.

    Raises:
        CommandError: The learner could not import it, or the packages to publish it are missing.
    """
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise CommandError(f"network: needs {' and '.join(missing)}: {INSTALL}")
    return maker_name(network, partial(write_module, runs_dir), argument="network")


def _plain(fields: Mapping[str, Any], runs_dir: Path) -> dict[str, JsonValue]:
    """Return fields as JSON values by dotted path, with short forms expanded.

    Raises:
        CommandError: A value is not JSON, or its short form is wrong.
    """
    plain: dict[str, JsonValue] = {}
    for name, value in fields.items():
        path = field_named(name) or name
        group, _, last = path.rpartition(".")
        if path in plain or last in (fields.get(group) or ()):
            raise CommandError(f"{last}: is given twice")
        try:
            plain[path] = to_jsonable_python(value)
        except PydanticSerializationError as error:
            raise CommandError(f"{name}: {error}; use plain numbers and texts") from error
    return written_out(plain, runs_dir)


def _trained(
    job: NewJob | Resumption, api: Api, *, runs_dir: Path, on_round: OnRound | None, view: View
) -> Run:
    """Train a job to its end and return its run."""
    if api.system is not None:
        kept = job.job_id if isinstance(job, Resumption) else None
        end_left_over(api, keep=kept, tell=view.note, pause=sleep)
    begun = job.begin(api.client)
    job_id = begun.job_id
    keep_packages(runs_dir / job_id, api.environment_packages)
    api.networks.keep(runs_dir / job_id)
    view.note(f"job {job_id}")
    ended = _Watch(api, begun, on_round=on_round, view=view).to_the_end()
    require_admitted_here(ended.job)
    folder = finished_folder((runs_dir / job_id).absolute())
    if ended.job.status == "failed":
        again = going_on(ended.job, wall_s=0.0, place=api.place)
        where = "" if folder is None else f"\nits folder is {folder}"
        raise CommandError(
            f"{job_id} failed: {ended.job.error}{where}\n"
            f"once the error is fixed, continue with: {again}",
            exit_code=EXIT_FAILED,
        )
    if folder is not None:
        return read(folder)
    lines = [line_of(record) for record in ended.records]
    cost = api.client.cost(job_id)
    return Run(ended.job, rounds=lines, cost_usd=cost.settled_usd, folder=None)


class _Watch:
    """Follows a job to its end, and stops it on request."""

    def __init__(self, api: Api, begun: Job, *, on_round: OnRound | None, view: View) -> None:
        self._api = api
        self._job_id = begun.job_id
        self._on_round = on_round
        self._view = view
        self._told = begun.progress.rounds
        """Number of rounds passed to `on_round`, or finished before the job was resumed."""
        self._raised: Exception | None = None
        """By `on_round`."""

    def to_the_end(self) -> Snapshot:
        """Return the job as it ended.

        Raises:
            KeyboardInterrupt: The user interrupted, and the job was stopped.
            Exception: Raised by `on_round`, and the job was stopped.
        """
        try:
            ended = self._follow()
        except KeyboardInterrupt:
            self._view.note("stopping after the current update; interrupt again to return at once")
            self._stop()
            self._follow()
            self._view.note(f"continue with: nitro.train(resume={self._job_id!r})")
            raise
        if self._raised is not None:
            raise self._raised
        return ended

    def _follow(self) -> Snapshot:
        snapshot: Snapshot | None = None
        ready = False
        for snapshot in follow(self._api.client, self._job_id, check=self._api.check):
            self._view.show(snapshot)
            if not ready and snapshot.job.environment is not None:
                ready = True
                self._api.wait_ready()
            self._tell(snapshot)
        if snapshot is None:
            raise RuntimeError("following a job yields at least once")
        return snapshot

    def _tell(self, snapshot: Snapshot) -> None:
        done = [record for record in snapshot.records if record.result is not None]
        while self._on_round is not None and self._told < len(done):
            line = line_of(done[self._told])
            self._told += 1
            try:
                go_on = self._on_round(line) is not False
            except (
                Exception
            ) as error:  # the user's own exception: raised again when the job has ended
                self._raised, go_on = error, False
            if not go_on:
                self._stop()

    def _stop(self) -> None:
        self._on_round = None
        stop_unfinished(self._api.client, self._job_id)
