"""Work that is told to a GPU once and then repeated: CUDA graphs.

A gradient step of a small network is about a hundred kernels of a microsecond or two each. Started
one by one they take Python ten times as long as they run; recorded, they start together.

Recorded work reads and writes the memory it was recorded with, and numbers that Python knew then
stay as they were: what changes from one time to the next has to be in tensors that stay.
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
    """Makes work repeatable at less than its price."""

    def record(self, work: Work) -> Work:
        """Return what does `work` each time it is called, without its answer; it is not done now.

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
    """Does the work anew each time, for work that no graph can hold: a `Recorder`."""

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
    """Yield what records work for a device, None where that gains nothing.

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
        # A recording's memory is its own: torch keeps it when the recording is gone, and the next
        # one cannot have it. Without this a job takes more and more until the GPU is full.
        if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > IDLE_BYTES_MAX:
            torch.cuda.empty_cache()
