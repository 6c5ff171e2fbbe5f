"""Settings of torch and of NumPy's products: the process's, applied once, and each thread's."""

import os

import torch
from threadpoolctl import threadpool_limits

DEFAULT_THREADS = 1
"""Threads of one operation by default.

The matrices of an update are so small that a second thread saves at most a third, and only on an
idle machine: beside other busy processes, such as actors, threads wait for each other at the end of
every operation and an update takes ten times as long. One thread also makes the bits of a policy
independent of the number of cores.
"""


def configure_torch(threads: int | None = None) -> None:
    """Set the number of compute threads and refuse operations that are not deterministic.

    Call it before the first tensor is made, and `configure_thread` in other threads. The thread
    count decides the order of sums, so equal runs need equal counts.

    Args:
        threads: Threads one operation may use; None for DEFAULT_THREADS.

    Raises:
        ValueError: `threads` is below 1.
    """
    chosen = DEFAULT_THREADS if threads is None else threads
    if chosen < 1:
        raise ValueError(f"threads ({threads}) must be at least 1, or None for {DEFAULT_THREADS}")
    torch.set_num_threads(chosen)
    # Small networks are multiplied by NumPy; its library would use every core.
    threadpool_limits(chosen, user_api="blas")
    # cuBLAS reads this once, when the GPU is first used, and is deterministic only with it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Like `use_deterministic_algorithms(True)`, which loads all of torch's compiler for one flag.
    torch.set_deterministic_debug_mode("error")
    # Convolutions on newer GPUs would round their inputs to 10 bits; products do not by default.
    torch.backends.cudnn.allow_tf32 = False
    # Otherwise every new tensor is filled with NaN: it helps to find bugs, but costs time in each
    # step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def configure_thread() -> None:
    """Give the calling thread the process's number of compute threads.

    Call it first in every thread that computes. OpenMP and MKL have a count per thread. It begins
    with one per core, or with the value of their variables; torch corrects it at some operation,
    which need not be the first. Until then sums have another order, and results have other bits.
    """
    torch.set_num_threads(torch.get_num_threads())
