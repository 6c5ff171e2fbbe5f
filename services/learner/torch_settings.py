"""Torch's process-wide settings, applied once by the application and nowhere else."""

import os

import torch


def configure_torch(threads: int | None = None) -> None:
    """Set the number of compute threads and refuse operations that are not deterministic.

    Call it before the first tensor is made. The thread count decides in which order sums are
    formed, so equal runs need equal counts.

    Args:
        threads: Threads one operation may use; None keeps torch's own choice, the cores it sees.

    Raises:
        ValueError: `threads` is below 1.
    """
    if threads is not None:
        if threads < 1:
            raise ValueError(f"threads ({threads}) must be at least 1, or None for torch's choice")
        torch.set_num_threads(threads)
    # cuBLAS reads this once, when the GPU is first used, and is deterministic only with it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # Fills every new tensor with NaN otherwise: a help in finding bugs, and paid for in each step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
