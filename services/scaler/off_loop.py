"""Threads for calls that wait for a network: few, each for one kind of call.

Everything else runs on the loop, which must not block. A silent server delays only its own kind of
calls: the table is written while Lambda's control plane is silent. The process's end waits for none
of them.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_Call = tuple[Future[Any], Callable[[], Any]]


class OffLoop:
    """A few threads; none is started before it is needed."""

    def __init__(self, name: str, num_threads: int) -> None:
        self._name = name
        self._most = num_threads
        self._num_started = 0
        self._closed = False
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        """None ends a thread."""

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call and return its result.

        Raises:
            RuntimeError: The threads are closed.
        """
        return await asyncio.wrap_future(self._begin(partial(call, *args, **kwargs)))

    async def run_to_its_end(self, call: Callable[[], T]) -> T:
        """Run a call to its end, even if the waiting task is cancelled, repeatedly.

        Until its end the outcome of a write is unknown, so its lock must be held.
        """
        ended = asyncio.wrap_future(self._begin(call))
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return ended.result()
        if not ended.cancelled():
            ended.exception()  # nobody is left to be told
        raise cancelled

    def close(self) -> None:
        """Start no further call; waiting calls are cancelled."""
        self._closed = True
        try:
            while (waiting := self._waiting.get_nowait()) is not None:
                waiting[0].cancel()
        except Empty:
            pass
        for _ in range(self._num_started):
            self._waiting.put(None)

    def _begin(self, call: Callable[[], T]) -> Future[T]:
        if self._closed:
            raise RuntimeError(f"the threads for {self._name} are closed")
        ended: Future[T] = Future()
        self._waiting.put((ended, call))
        if self._num_started < self._most:
            self._num_started += 1
            # An executor's threads would keep the process alive until a silent server answers.
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return ended

    def _work(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            ended, call = waiting
            if ended.set_running_or_notify_cancel():
                try:
                    ended.set_result(call())
                except BaseException as error:
                    ended.set_exception(error)
            del waiting, ended, call  # what a call returned may be large
