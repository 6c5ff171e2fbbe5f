"""Work that is recorded once on a GPU and then replayed: CUDA graphs.

A gradient step of a small network is about a hundred kernels of a microsecond or two each. Launched
one by one they take Python ten times as long as they run; recorded, they launch together.

Recorded work reads and writes the memory it was recorded with, and Python's numbers stay constant:
values that change between replays must be in tensors that stay.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

Work = Callable[[], object]

IDLE_BYTES_MAX = 512 << 20
"""Memory of the GPU that torch may keep for later when nothing is recorded any more."""


class Recorder(Protocol):
    """Makes repeated work cheaper."""

    def record(self, work: Work) -> Work:
        """Return a function that does `work` on each call, without its result; do not call it now.

        Work must have been done once before, so that its kernels are loaded.
        """
        ...


@functools.cache
def _own_stream() -> torch.cuda.Stream:
    """Return the stream of the GPU that this process records on, always the same.

    Libraries keep tens of megabytes for every stream they have seen.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


class Unrecorded:
    """Repeats the work itself, for work that no graph can hold: a `Recorder`."""

    def record(self, work: Work) -> Work:
        """Return the work."""
        return work


class CudaGraphs:
    """Records what is done on the present stream of the GPU, which is not the default one."""

    def record(self, work: Work) -> Work:
        """Capture `work` in a CUDA graph and return its replay."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
        return graph.replay


@contextmanager
def recorder(device: torch.device) -> Iterator[Recorder | None]:
    """Yield a recorder of work for a device, None where that gains nothing.

    On a GPU everything within the context runs on a stream of its own.

    Args:
        device: Where the work is done.
    """
    if device.type != "cuda":
        yield None
        return
    before, stream = torch.cuda.current_stream(), _own_stream()
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            yield CudaGraphs()
    finally:
        before.wait_stream(stream)
        # A recording has its own memory: torch keeps it after the recording is gone, and the next
        # recording cannot use it. Without this a job takes more and more memory until the GPU is
        # full.
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > IDLE_BYTES_MAX:
            torch.cuda.empty_cache()
