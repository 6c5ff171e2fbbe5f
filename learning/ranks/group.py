"""A group of processes, the *ranks*, that compute on one batch: sums over all, copies of the first.

Ranks are numbered from 0. All call the same operations in the same order. Every rank gets the same
bits of a sum: each part is summed in one place and copied from there.
"""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.distributed import FileStore, ProcessGroupGloo  # type: ignore[attr-defined]

from learning.arrays import Array
from learning.losses.loss_terms import LossRule
from learning.ranks.gradients import RankGradients
from learning.updates.gradient import GradientSource
from shared.trajectory.columns import Columns


class _Work(Protocol):
    """An operation in progress."""

    def wait(self) -> object: ...


class _Backend(Protocol):
    """The common interface of gloo and NCCL; torch's stubs lack it."""

    def allreduce(self, tensors: list[Tensor]) -> _Work: ...

    def broadcast(self, tensor: Tensor, root: int) -> _Work: ...


_LOOPBACK = "127.0.0.1"


class RankGroupError(RuntimeError):
    """An operation of the group failed: a rank ended, or did not take part in time."""


class RankGroup:
    """One rank's end of a group."""

    def __init__(self, backend: _Backend, *, rank: int, size: int) -> None:
        """Take a group that `opened` made."""
        self._backend = backend
        self.rank = rank
        """Of this process."""
        self.size = size
        """Number of ranks."""

    @classmethod
    def opened(
        cls,
        meeting: Path,
        *,
        rank: int,
        size: int,
        device: torch.device,
        start_timeout_s: float,
        timeout_s: float,
    ) -> "RankGroup":
        """Return the group once all ranks are there.

        Args:
            meeting: A file that does not exist yet, in a folder that all ranks see.
            rank: Of this process.
            size: Number of ranks.
            device: Where the tensors are: NCCL connects GPUs, gloo processes on the CPU.
            start_timeout_s: Longest wait for all ranks.
            timeout_s: Longest that an operation may take.

        Raises:
            RankGroupError: Not all came in time.
        """
        store = FileStore(str(meeting), size)
        store.set_timeout(timedelta(seconds=start_timeout_s))
        connect = _nccl if device.type == "cuda" else _gloo
        try:
            backend = connect(store, rank, size, timedelta(seconds=timeout_s))
        except RuntimeError as error:
            raise RankGroupError(str(error)) from error
        return cls(backend, rank=rank, size=size)

    def of_all(
        self,
        own: GradientSource[Columns[Array]],
        *,
        rule: LossRule,
        like: Tensor,
        sizes: Iterator[int],
    ) -> GradientSource[Columns[Array]]:
        """Return the gradients of all ranks together, given this rank's source."""
        return RankGradients(own, self.add_up, rule=rule, like=like, sizes=sizes)

    @property
    def rows(self) -> slice:
        """Which rows of each minibatch are this rank's."""
        return slice(self.rank, None, self.size)

    def add_up(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all ranks, in place.

        Raises:
            RankGroupError: A rank did not take part.
        """
        try:
            self._backend.allreduce([tensor]).wait()
        except RuntimeError as error:
            raise RankGroupError(str(error)) from error

    def copy_first(self, tensor: Tensor) -> None:
        """Replace a tensor by that of rank 0, in place.

        Raises:
            RankGroupError: A rank did not take part.
        """
        try:
            self._backend.broadcast(tensor, 0).wait()
        except RuntimeError as error:
            raise RankGroupError(str(error)) from error


def _gloo(store: FileStore, rank: int, size: int, timeout: timedelta) -> _Backend:
    # Torch's stubs have other names than its library.
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    # The default is the address that the machine's name resolves to.
    options._devices = [ProcessGroupGloo.create_device(hostname=_LOOPBACK)]
    options._timeout = timeout
    return cast(_Backend, ProcessGroupGloo(store, rank, size, options))


def _nccl(store: FileStore, rank: int, size: int, timeout: timedelta) -> _Backend:
    from torch.distributed import ProcessGroupNCCL  # builds without GPUs lack it

    # Read when the group is made. The first ranks meet on the loopback interface; with the second
    # an operation that hangs raises here, where it would end the process from another thread.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    return cast(_Backend, ProcessGroupNCCL(store, rank, size, options))
