"""A second thread for the half of a gradient step that needs nothing of the other half.

Policy and value function are separate networks and the loss is a sum of a term for each, so a
minibatch can go through both at once. Torch and NumPy let go of the interpreter while they compute.
Every operation still runs on one thread, so the bits are the same with and without a second lane.

The thread lives as long as one update, so none is left idle, and keeps no process alive. Beside
other busy processes it gains nothing, but costs next to nothing either, unlike threads within an
operation: the halves meet once per step, not once per operation.

On a GPU the second lane is a second stream.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch

from services.learner.cores import usable_cores
from services.learner.recording import side_stream
from services.learner.torch_settings import configure_thread

MIN_MULTIPLICATIONS = 1 << 22
"""Below this many scalar multiplications on the way forward of the half that moves, a step is done
sooner on one thread: handing over, and taking turns with the interpreter, costs some 0.2 ms."""

PATIENCE_S = 2e-3
"""How long a lane looks for work, or for the other lane's end, before it sleeps."""

T = TypeVar("T")


class Lane(Protocol):
    """Does two things at a time."""

    def both(self, here: Callable[[], None], there: Callable[[], None]) -> None:
        """Do both; return when both are done, or in line to be done before what comes next."""
        ...


class StreamLane:
    """A second stream of the GPU: kernels too small to fill it run side by side."""

    def both(self, here: Callable[[], None], there: Callable[[], None]) -> None:
        """See `Lane`."""
        present, second = torch.cuda.current_stream(), side_stream("second lane")
        second.wait_stream(present)
        try:
            with torch.cuda.stream(second):
                there()
            here()
        finally:
            present.wait_stream(second)


class SecondLane:
    """Runs one piece of work at a time beside the thread that made it; a context manager."""

    def __enter__(self) -> Self:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._run,
            args=(
                torch.is_inference_mode_enabled(),
                torch.is_grad_enabled(),
                np.geterr(),
            ),
            name="second-lane",
            daemon=True,
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._work.put(None)
        self._thread.join()

    def both(self, here: Callable[[], None], there: Callable[[], None]) -> None:
        """Run `here` in this thread and `there` in the other; return when both are done.

        Raises:
            BaseException: What `here` raised, or else what `there` did; after both are done.
        """
        self._work.put(there)
        try:
            here()
        finally:
            error = _soon(self._done)
        if error is not None:
            raise error

    def _run(self, inference: bool, graphs: bool, errors: Mapping[str, Any]) -> None:
        # Every thread has settings of its own.
        configure_thread()
        with (
            torch.inference_mode(inference),
            torch.set_grad_enabled(graphs),
            np.errstate(**errors),
        ):
            while (work := _soon(self._work)) is not None:
                try:
                    work()
                except BaseException as error:
                    self._done.put(error)
                else:
                    self._done.put(None)


def _soon(queue: "SimpleQueue[T]") -> T:
    """Return what is put into a queue in a moment.

    Waking a thread that sleeps takes 0.1 to 0.3 ms on a virtual machine, whose core has gone to
    sleep with it; the time between two halves is shorter.
    """
    gives_up = time.perf_counter() + PATIENCE_S
    while queue.empty() and time.perf_counter() < gives_up:
        time.sleep(0)  # some 50 us on Linux, without the interpreter and without a sleeping core
    return queue.get()


def both(lane: Lane | None, here: Callable[[], None], there: Callable[[], None]) -> None:
    """Do two things, at a time if there is a lane."""
    if lane is None:
        here()
        there()
    else:
        lane.both(here, there)


def second_lane(multiplications: int, device: torch.device) -> AbstractContextManager[Lane | None]:
    """Return a second lane where it pays, else None; as a context manager.

    Args:
        multiplications: Scalar multiplications of the half that would move to it, per step and on
            its way forward.
        device: Where they are made.
    """
    if device.type == "cuda":
        return nullcontext(StreamLane() if multiplications else None)
    idle_cores = usable_cores() > 1 and torch.get_num_threads() == 1
    if _large_enough(multiplications, device) and idle_cores:
        return SecondLane()
    return nullcontext()


def _large_enough(multiplications: int, device: torch.device) -> bool:
    """Whether a second lane pays for so much work, if there is a core for it."""
    return device.type == "cpu" and multiplications >= MIN_MULTIPLICATIONS
