"""A second process for half of an update; the halves exchange a single number per step.

Policy and value function are separate networks, and a gradient step of each needs only the norm of
the other's gradient. Two threads would share the interpreter, and lose more time than the second
core gains; two processes meet once per step, in less than a microsecond.

The process is forked before its parent has threads of its own, uses no processor time while it
waits for work, and ends with its parent in any case. It is optional: an update that loses it is
repeated without it, with the same bits. If waiting for it takes much of the time, the cores are
busy with other work; then it is left unused for a while.
"""

import contextlib
import logging
import mmap
import multiprocessing as mp
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Semaphore
from typing import TypeVar

import numpy as np
import torch

from shared.service.cores import usable_cores

_LOG = logging.getLogger(__name__)

PATIENCE_S = 5e-4
"""How long a side spins for the other's number before it sleeps.

Halves of a step differ by less; waking a process takes 0.1 to 0.3 ms on a virtual machine. It keeps
its core meanwhile: yielding it again and again slows the other core by a third on some of them."""
LIMIT_S = 60.0
"""How long the second process may take for one turn before it counts as lost."""
RESTS = 32
"""Pieces of work that are not offered to the process after too long a wait for it."""
_CROWDED = 0.25
"""Largest acceptable share of time asleep while waiting for the process."""
_MANY_TURNS = 64
"""Shorter work has its own pauses, and tells little about the load of the cores."""
_LOOK_AFTER_S = 0.1
"""How often a sleeping side checks that the other is alive."""
_END_S = 2.0
"""How long a process may take to end on request."""


_SLOTS = 8
"""Room for one side's numbers: a cache line of its own."""

H = TypeVar("H")
T = TypeVar("T")


class SecondProcessLostError(RuntimeError):
    """The second process ended or failed; its current work is lost."""


class Side:
    """One process's end of the shared state."""

    def __init__(
        self,
        memory: mmap.mmap,
        given: tuple[Semaphore, Semaphore],
        *,
        index: int,
        require_other: Callable[[float], None],
    ) -> None:
        """Look at what was made before the fork.

        Args:
            memory: For the numbers in exchange.
            given: Counts each side's numbers.
            index: 0 or 1.
            require_other: Raises if the other process is gone, or has taken too many seconds.
        """
        numbers = np.frombuffer(memory, np.float64, count=2 * _SLOTS).reshape(2, _SLOTS)
        self._given, self._taken = numbers[index], numbers[1 - index]
        self._ours, self._theirs = given[index], given[1 - index]
        self._require_other = require_other
        self._turns = 0
        self.slept_s = 0.0
        """Time asleep beyond PATIENCE_S, waiting for the other side."""

    @property
    def turns(self) -> int:
        """Numbers swapped so far."""
        return self._turns

    def swap(self, number: float) -> float:
        """Give a number to the other side, and return the other side's of the same turn."""
        # One side is at most one turn ahead of the other.
        slot = self._turns % _SLOTS
        self._given[slot] = number
        self._ours.release()
        self._wait()
        self._turns += 1
        return float(self._taken[slot])

    def _wait(self) -> None:
        start = time.perf_counter()
        while not self._theirs.acquire(False):
            if time.perf_counter() - start < PATIENCE_S:
                continue
            while not self._theirs.acquire(True, _LOOK_AFTER_S):
                self._require_other(time.perf_counter() - start)
            self.slept_s += time.perf_counter() - start - PATIENCE_S
            return


class SecondProcess:
    """Runs one piece of work at a time beside this process."""

    def __init__(self) -> None:
        """Fork it; call this while the process has no threads of its own.

        Raises:
            OSError: The system has no processes, pipes or semaphores to give.
        """
        context = mp.get_context("fork")
        given = context.Semaphore(0), context.Semaphore(0)
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._connection, theirs = context.Pipe()
        self._side = Side(memory, given, index=0, require_other=self._require_alive)
        self._process = context.Process(
            target=_serve,
            args=(theirs, self._connection, memory, given),
            name="second-process",
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._lost = False
        self._rests = 0

    @property
    def usable(self) -> bool:
        """Whether it can be given work."""
        return not self._lost and self._process.is_alive()

    def offers(self) -> bool:
        """Say whether to give it the coming work; ask once for each piece."""
        if self._rests:
            self._rests -= 1
            return False
        return self.usable

    def both(self, here: Callable[[Side], H], there: Callable[[Side], T]) -> tuple[H, T]:
        """Run `here` in this process and `there` in the other; return what both returned.

        Both swap numbers equally often; `there`, and what it returns, can be pickled. After any
        failure the process is unusable.

        Raises:
            SecondProcessLostError: The other process ended or failed.
            BaseException: What `here` raised.
        """
        turns, slept_s, began = self._side.turns, self._side.slept_s, time.perf_counter()
        try:
            self._connection.send(there)
            mine = here(self._side)
            start = time.perf_counter()
            while not self._connection.poll(_LOOK_AFTER_S):
                self._require_alive(time.perf_counter() - start)
            theirs: T | _Failure = self._connection.recv()
            if isinstance(theirs, _Failure):
                raise SecondProcessLostError(theirs.trace)
        except (OSError, EOFError) as error:
            self._process.join(_LOOK_AFTER_S)
            code = self._process.exitcode
            self.close()
            raise SecondProcessLostError(f"the second process ended with {code}") from error
        except BaseException:
            self.close()
            raise
        elapsed_s, slept_s = time.perf_counter() - began, self._side.slept_s - slept_s
        if self._side.turns - turns >= _MANY_TURNS and slept_s > _CROWDED * elapsed_s:
            self._rests = RESTS
        return mine, theirs

    def close(self) -> None:
        """End the process."""
        self._lost = True
        self._connection.close()
        self._process.kill()
        self._process.join(_END_S)

    def _require_alive(self, waited_s: float) -> None:
        if self._process.is_alive():
            if waited_s > LIMIT_S:
                raise SecondProcessLostError(f"the second process was silent for {LIMIT_S:g} s")
            return
        said = None
        with contextlib.suppress(OSError, EOFError):  # nothing was said
            said = self._connection.recv()
        if isinstance(said, _Failure):
            raise SecondProcessLostError(said.trace)
        raise SecondProcessLostError(f"the second process ended with {self._process.exitcode}")


def second_process(device: torch.device) -> SecondProcess | None:
    """Return a second process where there is work and a core for it, else None.

    Call this while the process has no threads of its own. Only Linux forks safely.

    Args:
        device: Where updates are computed; only those on the CPU have work for it.
    """
    if device.type != "cpu" or sys.platform != "linux" or usable_cores() < 2:
        return None
    try:
        return SecondProcess()
    except OSError as error:
        _LOG.warning("no second process", extra={"why": str(error)})
        return None


@dataclass(frozen=True, slots=True)
class _Failure:
    """Reason why the second process did not finish its work."""

    trace: str


def _serve(
    connection: Connection,
    parents: Connection,
    memory: mmap.mmap,
    given: tuple[Semaphore, Semaphore],
) -> None:
    # Ctrl-C reaches the whole group: the parent decides, and its end ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parents.close()
    parent = os.getppid()

    def require_parent(_waited_s: float) -> None:
        if os.getppid() != parent:
            raise SystemExit

    side = Side(memory, given, index=1, require_other=require_parent)
    with torch.inference_mode(), np.errstate(all="ignore"):
        while _work(connection, side):
            pass


def _work(connection: Connection, side: Side) -> bool:
    """Do one piece of work without keeping it; return whether another can follow."""
    try:
        work: Callable[[Side], object] = connection.recv()
    except (EOFError, OSError):
        return False
    try:
        done = work(side)
    except Exception:
        # The boundary of the process: the parent reports it.
        connection.send(_Failure(traceback.format_exc()))
        return False
    connection.send(done)
    return True
