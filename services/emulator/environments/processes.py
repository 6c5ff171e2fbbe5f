"""The emulator's own environments: `python -m awslambdaric` processes, restarted on failure.

Requests of the Runtime API do not name their environment, and the client accepts only a host and a
port (a path prefix would break its `init/error` call). So every slot has its own loopback port,
which identifies the environment. This needs no privileges, no peer look-up and no change to the
client, and works on every system.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from services.emulator.dispatcher import Dispatcher
from services.emulator.environments.environment import Environment, Peer, State
from services.emulator.environments.output import Output
from services.emulator.invocation import Outcome, platform_error
from services.emulator.settings import Settings

_logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 5.0


def backoff_s(failures: int) -> float:
    """Return the pause before the next start after `failures` consecutive failed starts."""
    if failures == 0:
        return 0.0
    doublings = min(failures - 1, 16)  # a larger power would overflow
    return min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0**doublings)


@dataclass(slots=True, kw_only=True, eq=False)
class _Slot:
    index: int
    port: int
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    environment: Environment | None = None
    failures: int = 0
    starts: int = 0
    init_error: Outcome | None = None
    ahead: bool = False
    """Whether it is to start ahead of any invocation."""
    let_go: bool = False
    """Whether its last environment was ended for exceeding the idle time."""

    @property
    def starting(self) -> bool:
        return self.environment is not None and self.environment.state is State.STARTING


class ProcessEnvironments:
    """Starts environments on demand and replaces dead ones."""

    def __init__(
        self,
        settings: Settings,
        dispatcher: Dispatcher,
        *,
        ports: Sequence[int],
        prefix: str = "",
    ) -> None:
        """Wire one slot per loopback port; the Runtime API serves all ports.

        Names of environments and of their logs begin with `prefix`.
        """
        self._prefix = prefix
        self._settings = settings
        self._dispatcher = dispatcher
        self._slots = [_Slot(index=index, port=port) for index, port in enumerate(ports)]
        self._by_port = {slot.port: slot for slot in self._slots}
        self._supervisors: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()

    def open(self) -> list[asyncio.Task[None]]:
        """Start the supervisors, and in eager mode all environments.

        Returns:
            The supervisors' tasks: if one ends, the emulator has to end.
        """
        if self._settings.eager:
            self.prewarm(self._settings.eager_processes or len(self._slots))
        self._dispatcher.on_demand = self._meet_demand
        self._supervisors = [asyncio.create_task(self._supervise(slot)) for slot in self._slots]
        return self._supervisors

    def prewarm(self, count: int) -> None:
        """Start environments until there are `count`, up to the number of slots."""
        for slot in self._slots[:count]:
            if slot.environment is None or slot.environment.let_go:
                slot.ahead = True
                slot.wanted.set()

    def initialised(self, count: int) -> bool:
        """Return whether `count` environments, at most the number of slots, have polled."""
        return len(self._ready()) >= min(count, len(self._slots))

    def init_error(self) -> str | None:
        """Return why the function cannot be initialised; None if it can or is not known yet."""
        errors = [slot.init_error for slot in self._slots if slot.init_error is not None]
        return errors[0].payload.decode(errors="replace") if errors else None

    def missing(self) -> str | None:
        """Return why the emulator is not ready; None if it is."""
        eager = self._slots[: self._settings.eager_processes]
        expected = sum(not slot.let_go for slot in eager)
        if not self._settings.eager or self.initialised(expected):
            return None
        error = self.init_error()
        waiting = f"{len(self._ready())} of {expected} environments are initialised"
        return f"{waiting}; last init error: {error}" if error else waiting

    def all(self) -> list[Environment]:
        """Return the existing environments."""
        return [slot.environment for slot in self._slots if slot.environment is not None]

    def _ready(self) -> list[Environment]:
        live = (State.IDLE, State.BUSY)
        return [environment for environment in self.all() if environment.state in live]

    def identify(self, _client: Peer, port: int) -> Environment | None:
        """Return the environment that sent a request; None if it has already ended."""
        return self._by_port[port].environment

    def init_failed(self, environment: Environment, *, error: Outcome) -> None:
        """Record why an environment cannot start; it exits next."""
        for slot in self._slots:
            if slot.environment is environment:
                slot.init_error = error

    def connection_lost(self, client: Peer, port: int) -> None:
        """Give up an environment whose open poll broke off: it is dying, or is not a runtime."""
        environment = self._by_port[port].environment
        if environment is None or environment.connection != client:
            return
        if self._dispatcher.poll_lost(environment):
            environment.kill()

    def _meet_demand(self) -> None:
        starting = sum(slot.wanted.is_set() or slot.starting for slot in self._slots)
        free = [
            slot for slot in self._slots if slot.environment is None and not slot.wanted.is_set()
        ]
        for slot in free[: max(0, self._dispatcher.queued - starting)]:
            slot.wanted.set()

    async def _supervise(self, slot: _Slot) -> None:
        while await self._wanted(slot):
            slot.starts += 1
            slot.init_error = None
            slot.let_go = False
            name = f"{self._settings.function_name}-{slot.index}.{slot.starts}"
            environment = slot.environment = Environment(name=name, kill=lambda: None)
            try:
                reason = await self._live(slot, environment)
            except OSError as error:
                reason = f"cannot start {sys.executable}: {error}"
            slot.environment = None
            self._bury(slot, environment, reason)

    async def _wanted(self, slot: _Slot) -> bool:
        await slot.wanted.wait()
        if slot.failures:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), backoff_s(slot.failures))
        slot.wanted.clear()
        return not self._closing.is_set()

    async def _live(self, slot: _Slot, environment: Environment) -> str:
        def wrote(chunk: bytes) -> None:
            if environment.invocation is not None:
                environment.invocation.wrote(chunk)

        output = Output(environment.name, wrote=wrote, log_path=self._log_path(slot))
        try:
            environment.started_at = perf_counter()
            process = await self._spawn(slot, environment.name, output)
            slot.ahead = False
            output.handed_over()
            environment.kill = lambda: _kill_group(process.pid)
            environment.settle_output = output.settle
            environment.max_memory_mb = lambda: _max_memory_mb(process.pid)
            if self._closing.is_set():
                environment.kill()
            init_timer = asyncio.get_running_loop().call_later(
                self._settings.init_timeout_s, self._init_timed_out, slot, environment
            )
            return_code = await process.wait()
            environment.declined = return_code == os.EX_TEMPFAIL
            init_timer.cancel()
            environment.kill()  # its own children may remain
            return _exit_reason(return_code)
        finally:
            output.close()

    async def _spawn(self, slot: _Slot, name: str, output: Output) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "awslambdaric",
            self._settings.handler,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output.write_fd,
            stderr=output.write_fd,
            cwd=self._settings.task_root,
            env=dict(
                self._settings.environment_variables(
                    runtime_api=f"127.0.0.1:{slot.port}", log_stream=name, ahead=slot.ahead
                )
            ),
            start_new_session=True,
        )

    def _log_path(self, slot: _Slot) -> Path | None:
        folder = self._settings.log_folder
        return None if folder is None else folder / f"{self._prefix}environment-{slot.index}.log"

    def _init_timed_out(self, slot: _Slot, environment: Environment) -> None:
        if environment.state is State.STARTING:
            message = f"Init timed out after {self._settings.init_timeout_s:.2f} seconds"
            slot.init_error = platform_error("Sandbox.Timedout", message)
            environment.kill()

    def _bury(self, slot: _Slot, environment: Environment, reason: str) -> None:
        never_ready = environment.ready_at is None
        died_idle = environment.poll is not None and not environment.let_go
        slot.let_go = environment.let_go
        before = 0 if environment.served else slot.failures
        slot.failures = before + 1 if never_ready or died_idle else 0
        self._dispatcher.environment_lost(environment, reason)
        if never_ready and not self._closing.is_set():
            self._init_came_to_nothing(slot, environment, reason)
        else:
            _logger.info("%s ended: %s", environment.name, reason or "exit status 0")
        if not slot.let_go and (self._settings.eager or not never_ready):
            slot.wanted.set()
        elif self._dispatcher.queued:
            self._meet_demand()

    def _init_came_to_nothing(self, slot: _Slot, environment: Environment, reason: str) -> None:
        message = f"Runtime exited during initialisation: {reason or 'exit status 0'}"
        error = slot.init_error or platform_error("Runtime.ExitError", message)
        slot.init_error = error
        text = error.payload.decode(errors="replace")
        _logger.error("%s cannot be initialised: %s", environment.name, text)
        hopeful = any(slot.starting and slot.failures == 0 for slot in self._slots)
        if not self._ready() and not hopeful:
            self._dispatcher.fail_queued(error)

    async def close(self) -> None:
        """Kill all environments and wait for their end."""
        self._closing.set()
        for slot in self._slots:
            slot.wanted.set()
            if slot.environment is not None:
                slot.environment.kill()
        await asyncio.gather(*self._supervisors)


def _kill_group(pid: int) -> None:
    # The leader of its own group, so that the handler's children are killed with it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _exit_reason(return_code: int) -> str:
    if return_code == 0:
        return ""
    if return_code < 0:
        return f"signal: {signal.strsignal(-return_code) or -return_code}".lower()
    return f"exit status {return_code}"


def _max_memory_mb(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    return 0
