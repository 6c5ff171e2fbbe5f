"""Threads for calls that wait for a network: few, and of one kind each.

Everything else happens on the loop, which must not wait. A kind whose server does not answer keeps
only its own calls waiting: a table is written while Lambda's control plane is silent.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class OffLoop:
    """A few threads; none is started before it is needed."""

    def __init__(self, name: str, num_threads: int) -> None:
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a call returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(call, *args, **kwargs))

    def close(self) -> None:
        """Begin no further call."""
        self._pool.shutdown(wait=False, cancel_futures=True)
