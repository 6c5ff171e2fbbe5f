"""One actor process of the learner: spawned for its first task, kept, replaced when it ends."""

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from shared.cache.connect_token import AwsCredentials
from shared.contracts.own_calls import OwnCall, OwnCredentials, OwnReply
from shared.contracts.rollouts import RolloutTask

MODULE = "functions.actor.own"
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""An own actor has one core."""
_END_S = 2.0
_MAX_REPLY_BYTES = 16 * 2**20
"""A reply is some hundred bytes, and 20 for each episode."""


class OwnActorLostError(RuntimeError):
    """The process ended, or was killed at its time limit, before it answered."""


class OwnProcess:
    """An actor process; use it from a single thread that lives as long as the process.

    On Linux the kernel kills it when that thread ends.

    Args:
        variables: Settings of the actor, beyond this process's own environment.
        credentials: Return AWS credentials for the cache; None where it needs none.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        credentials: Callable[[], AwsCredentials] | None = None,
    ) -> None:
        self._variables = variables
        self._credentials = credentials
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None without a process."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it unless it runs; it loads its libraries meanwhile."""
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        self._process = subprocess.Popen(
            # -P: ignore a folder called `functions` in the working folder.
            [sys.executable, "-P", "-m", MODULE, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **self._variables, **_ONE_THREAD},
            bufsize=0,
        )

    def run(self, task: RolloutTask, *, limit_s: float) -> OwnReply:
        """Run a task and return its end.

        If the environment's files have changed, the process leaves the task to a new process.

        Raises:
            OwnActorLostError: The process ended, or exceeded the time limit.
        """
        until = time.monotonic() + limit_s
        while True:
            try:
                return self._run(task, limit_s=max(0.0, until - time.monotonic()))
            except OwnActorLostError:
                if self._process is None or self._process.returncode != os.EX_TEMPFAIL:
                    raise

    def _run(self, task: RolloutTask, *, limit_s: float) -> OwnReply:
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        call = OwnCall(task=task, credentials=self._told_credentials())
        try:
            process.stdin.write(call.model_dump_json().encode() + b"\n")
            line = self._line(process, until=time.monotonic() + limit_s)
            reply = OwnReply.read(line)
        except (OSError, EOFError, TimeoutError, ValidationError) as error:
            self.end()
            code = process.returncode
            why = f"took more than {limit_s:g} s" if isinstance(error, TimeoutError) else ""
            raise OwnActorLostError(
                f"an actor on the learner's cores {why or f'ended with {code}'}"
            ) from error
        if reply.report is None:
            self.end()  # it may be permanently broken
        return reply

    def kill(self) -> None:
        """Kill it and lose its current task; from any thread."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """End it."""
        process = self._process
        if process is None:
            return
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _line(self, process: subprocess.Popen[bytes], *, until: float) -> bytes:
        assert process.stdout is not None
        pipe, data = process.stdout.fileno(), b""
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while not data.endswith(b"\n"):
            if not poll.poll(1000.0 * max(0.0, until - time.monotonic())):
                raise TimeoutError
            part = os.read(pipe, 65536)
            if not part or len(data) > _MAX_REPLY_BYTES:
                raise EOFError
            data += part
        return data

    def _told_credentials(self) -> OwnCredentials | None:
        if self._credentials is None:
            return None
        key = self._credentials()
        return OwnCredentials(
            access_key=key.access_key, secret_key=key.secret_key, session_token=key.session_token
        )
