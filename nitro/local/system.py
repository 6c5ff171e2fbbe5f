"""The whole system on one machine: cache, emulator, scaler and learner as separate processes.

    import nitro

    with nitro.LocalSystem("runs") as system, nitro.Client(system.api_url, system.token) as client:
        client.submit(nitro.JobSpec(env_id="CartPole-v1"))

All servers listen on 127.0.0.1 only. State and logs are in `runs/.nitro/`. Nothing is restarted
silently: an ended process is reported with the end of its log.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import httpx

from nitro.errors import EXIT_FAILED, CommandError
from nitro.local.module_path import module_path
from nitro.local.plan import (
    NAMES,
    LocalPlan,
    Ports,
    ProcessPlan,
    learner_name,
    plan_processes,
)
from nitro.local.ports import LOOPBACK, held_ports, require_free, require_loopback
from nitro.local.processes import ManagedProcess
from nitro.local.state_folder import StateFolder
from shared.service.cores import usable_cores
from shared.service.http_client import http_client

_POLL_S = 0.02
_START_S = 120.0
"""Libraries load slowly from a cold disk."""
_HAND_BACK_S = 3.0
"""Time for the learner to return its job to the scaler."""
_END_S = 7.0
"""Longer than an orderly end of emulator and scaler."""


class LocalSystemError(CommandError):
    """A process of the local system did not start, or ended."""

    exit_code = EXIT_FAILED


@dataclass(frozen=True, slots=True)
class _Member:
    process: ManagedProcess
    ready_url: str


class LocalSystem:
    """Starts the local system and ends it; a context manager.

    Enter it from a thread that lives as long as the system. On Linux the processes are killed when
    the thread that started them ends, so that no process is left after a SIGKILL.

    Args:
        runs_dir: Folder of the runs; made if missing.
        api_port: Port of the REST API; None takes a free one.
        lasting: Whether it outlives single jobs, so that `nitro train` may use it.
        processes: Actors that run at the same time; None means one per core.
        learners: Jobs that are trained at the same time, by a process each.
        learner_ranks: Processes that share the gradient steps of each learner.
        own: Whether its jobs' actors run on the learners' own cores: these are started ahead, and
            only one of the emulator's.
        max_concurrency: Invocations in flight before the emulator throttles.
        cache_url: A Redis to use in place of the embedded server.
        actor_variables: Settings of the actors, for example `NITRO_ENVIRONMENT_PACKAGES`.
        environment: Further variables by process name, which override ours (faults, for tests).
        job_id: A job of the runs folder to resume in this system.
        key: Alternatively, the idempotency key of a job that may have been submitted before.
        start_s: Time-out for the start of the processes.
    """

    def __init__(
        self,
        runs_dir: Path | str,
        *,
        api_port: int | None = None,
        lasting: bool = False,
        processes: int | None = None,
        learners: int = 1,
        learner_ranks: int = 1,
        own: bool = False,
        max_concurrency: int = 1000,
        cache_url: str | None = None,
        actor_variables: Mapping[str, str] | None = None,
        environment: Mapping[str, Mapping[str, str]] | None = None,
        job_id: str | None = None,
        key: str | None = None,
        start_s: float = _START_S,
    ) -> None:
        self._state = StateFolder(Path(runs_dir))
        self._api_port = api_port
        self._lasting = lasting
        self._processes = processes or usable_cores()
        self._learners = [learner_name(index) for index in range(learners)]
        self._learner_ranks = learner_ranks
        self._own = own
        self._max_concurrency = max_concurrency
        self._own_cache_url = cache_url
        self._actor_variables = actor_variables or {}
        self._environment = environment or {}
        self._goes_on = {"job_id": job_id, "key": key}
        self._start_s = start_s
        self._members: dict[str, _Member] = {}
        self._ports = contextlib.ExitStack()
        self.api_url = ""
        self.lambda_url = ""
        self.lambda_token = ""
        self.cache_url = ""
        self.token = ""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close(at_once=True)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(at_once=kind is not None)

    @property
    def token_path(self) -> Path:
        """File with the API's token."""
        return self._state.token_path

    @property
    def lambda_token_path(self) -> Path:
        """File with the emulator's token."""
        return self._state.lambda_token_path

    @property
    def logs(self) -> Path:
        """Folder of the processes' logs."""
        return self._state.logs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the processes: cache (if embedded), emulator, scaler, learners."""
        return tuple(self._members)

    def wait_ready(
        self, names: Iterable[str] | None = None, *, timeout_s: float = _START_S
    ) -> None:
        """Wait until these processes answer, or all of them.

        Raises:
            LocalSystemError: A process ended, or did not answer in time; has the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        with http_client(self.api_url, timeout_s=2.0) as http:
            for name in self.names if names is None else names:
                member = self._members.get(name)
                while member is not None and not _answers(member.ready_url, http):
                    self._check_processes()
                    if time.monotonic() > deadline:
                        raise LocalSystemError(
                            self._report(member.process, f"was not ready after {timeout_s:g} s")
                        )
                    time.sleep(_POLL_S)

    def check(self) -> None:
        """Check that every process runs and can write.

        Raises:
            CommandError: The disk is full.
            LocalSystemError: A process has ended; names its log and shows the log's end.
        """
        self._state.require_room()
        self._check_processes()

    def _check_processes(self) -> None:
        for member in self._members.values():
            code = member.process.exit_code()
            if code is not None:
                self._state.require_room()  # with a full disk the log is empty
                raise LocalSystemError(self._report(member.process, f"ended with code {code}"))

    def process(self, name: str) -> ManagedProcess:
        """Return one of the processes, to inject faults."""
        return self._members[name].process

    def pid(self, name: str) -> int:
        """Return the process id of a process."""
        return self.process(name).pid

    def kill(self, name: str) -> None:
        """Kill a process and its group with SIGKILL."""
        self.process(name).kill()

    def restart(self, *names: str, timeout_s: float = _START_S) -> None:
        """Restart killed processes with the same settings, and wait until they answer."""
        for name in names:
            self._members[name].process.start()
        self.wait_ready(names, timeout_s=timeout_s)

    def close(self, *, at_once: bool = False) -> None:
        """End every process, by force if necessary; safe to repeat.

        Args:
            at_once: Kill immediately, so that the learner cannot return its job nor the scaler
                finish its calls.
        """
        hand_back = ((name, _HAND_BACK_S) for name in self._learners)
        stages = (*hand_back, ("scaler", 0.0), ("emulator", 0.0))
        members = [
            (self._members[name].process, patience_s)
            for name, patience_s in stages
            if name in self._members
        ]
        try:
            # In this order, because the learner reports to the scaler last. The emulator always
            # ends gracefully, to end its actors.
            for process, patience_s in members:
                if at_once and process.name != "emulator":
                    process.kill()
                process.terminate()
                process.wait(patience_s)
            deadline = time.monotonic() + _END_S
            for process, _ in members:
                process.wait(deadline - time.monotonic())
        finally:
            for member in self._members.values():
                member.process.kill()
            self._members = {}
            self._ports.close()
            self._state.release()

    def _start(self) -> None:
        require_loopback()
        if self._api_port is not None:
            require_free(self._api_port, setting="--port")
        if self._own_cache_url is not None:
            _require_answer(self._own_cache_url)
        self._state.acquire(lasting=self._lasting)
        self._state.take_over(**self._goes_on)
        held = held_ports(3 + len(self._learners))
        cache, invoke, api, *learners = self._ports.enter_context(held)
        plan = LocalPlan(
            state=self._state,
            lambda_token=self._state.write_lambda_token(),
            cache_password=self._state.write_cache_password(),
            ports=Ports(
                cache=cache,
                invoke=invoke,
                learners=tuple(learners),
                api=self._api_port or api,
            ),
            processes=self._processes,
            max_concurrency=self._max_concurrency,
            cache_url=self._own_cache_url,
            actor_variables=self._actor_variables,
            learner_ranks=self._learner_ranks,
            own=self._own,
        )
        self.api_url = plan.api_url
        self.lambda_url = plan.lambda_url
        self.lambda_token = plan.lambda_token
        self.cache_url = plan.redis_url
        self.token = self._state.write_token()
        self._state.write_viewer_token()
        for process_plan in plan_processes(plan):
            self._members[process_plan.name] = member = self._member(process_plan)
            member.process.start()
        # Learners load their libraries while jobs are submitted.
        self.wait_ready(NAMES[:-1], timeout_s=self._start_s)
        self._state.write_address(self.api_url)

    def _member(self, plan: ProcessPlan) -> _Member:
        process = ManagedProcess(
            plan.name,
            plan.command,
            env={**_inherited(), **plan.env, **self._environment.get(plan.name, {})},
            log_path=self._state.fresh_log(plan.name),
            # A folder without packages, so that a caller's own `services` is not imported.
            folder=self._state.folder,
            death_signal=plan.death_signal,
        )
        return _Member(process, plan.ready_url)

    @staticmethod
    def _report(process: ManagedProcess, what: str) -> str:
        return (
            f"the {process.name} {what}; its log is {process.log_path}, and ends with:\n"
            f"{process.log_tail() or '(nothing was logged)'}"
        )


def _inherited() -> dict[str, str]:
    """Return our environment without variables that redirect a process, above all to AWS."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("NITRO_", "AWS_", "BOTO"))
    }
    # Our processes talk to each other directly, without any proxy.
    around = [LOOPBACK, "localhost", *filter(None, [kept.get("no_proxy") or kept.get("NO_PROXY")])]
    kept["no_proxy"] = kept["NO_PROXY"] = ",".join(around)
    kept["PYTHONPATH"] = module_path()
    return kept


def _answers(url: str, http: httpx.Client) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "tcp":
        with contextlib.suppress(OSError):
            socket.create_connection((parts.hostname, parts.port), timeout=1.0).close()
            return True
        return False
    with contextlib.suppress(httpx.TransportError):
        return http.get(url).is_success
    return False


def _require_answer(cache_url: str) -> None:
    """Raise unless Redis answers: the processes would wait silently."""
    from shared.cache.client import TrajectoryCache
    from shared.cache.connection import CacheError

    try:
        with TrajectoryCache(cache_url) as cache:
            cache.ping()
    except CacheError as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from error
