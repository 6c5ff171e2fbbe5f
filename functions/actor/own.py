"""An actor on the learner's own cores: it reads a task per line, and writes its outcome as a line.

    python -P -m functions.actor.own PARENT_PID

It runs the same tasks as the Lambda function, with bit-equal results. It ends with its parent, when
standard input closes; on Linux the kernel also kills it. Output that environments print goes to
standard error.
"""

import ctypes
import os
import queue
import signal
import sys
import threading
from typing import IO, NoReturn

from functions.actor.errors import RolloutError
from functions.actor.process import ActorProcess
from functions.actor.settings import Settings
from shared.cache.client import TrajectoryCache
from shared.cache.connect_token import AwsCredentials
from shared.contracts.own_calls import OwnCall, OwnReply
from shared.contracts.rollouts import ActorReport
from shared.service.logs import configure_logging

_PR_SET_PDEATHSIG = 1
_FAILED = 1


class _Parent:
    """The learner's end of the pipes: tasks and answers."""

    def __init__(self, tasks: IO[bytes], replies: IO[bytes]) -> None:
        self._tasks = tasks
        self._replies = replies
        self._calls: queue.SimpleQueue[OwnCall] = queue.SimpleQueue()
        self._credentials: AwsCredentials | None = None

    def listen(self) -> None:
        """Read calls until the parent is gone, then end the process."""
        try:
            for line in self._tasks:
                self._calls.put(OwnCall.model_validate_json(line))
        finally:
            os._exit(0)  # a rollout may hang

    def next_call(self) -> OwnCall:
        """Wait for a call."""
        call = self._calls.get()
        told = call.credentials
        if told is not None:
            self._credentials = AwsCredentials(
                access_key=told.access_key,
                secret_key=told.secret_key,
                session_token=told.session_token,
            )
        return call

    def credentials(self) -> AwsCredentials:
        """Return the AWS credentials that came with the latest call."""
        assert self._credentials is not None, "the first connection is made for a call"
        return self._credentials

    def answer(self, reply: OwnReply) -> None:
        """Report the outcome of a call."""
        self._replies.write(reply.model_dump_json().encode() + b"\n")
        self._replies.flush()

    def end(self, error: RolloutError) -> NoReturn:
        """Report a failed rollout, and end the process."""
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        self.answer(OwnReply(error=type(error).__name__, reason=str(error)))
        os._exit(_FAILED)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        sys.exit(_FAILED)


def main() -> None:
    """Run tasks until the parent ends."""
    _die_with(int(sys.argv[1]))
    # Ctrl-C reaches the whole group: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = _Parent(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
    # Environments must not read tasks or print replies.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    threading.Thread(target=parent.listen, name="parent", daemon=True).start()
    configure_logging("info")
    settings = Settings()
    cache = TrajectoryCache(
        settings.cache_url.get_secret_value(),
        timeout_s=settings.cache_timeout_s,
        credentials=settings.cache_credentials(parent.credentials),
    )
    process = ActorProcess(settings, cache, end=parent.end)
    while True:
        call = parent.next_call()
        try:
            report = process.do(call.task, cold_start=process.begin())
            assert isinstance(report, ActorReport)
            parent.answer(OwnReply(report=report))
        except Exception as error:  # any error is reported to the parent
            parent.answer(OwnReply(error=type(error).__name__, reason=str(error)))


if __name__ == "__main__":
    main()
