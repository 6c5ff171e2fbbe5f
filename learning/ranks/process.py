"""A rank that follows the learner and takes part in its updates until the connection closes.

It keeps nothing between two updates. For each update it receives the form of the network and the
loss, then parameters, moments and samples from rank 0. It takes the same steps as rank 0, and
answers with a digest of the result.
"""

import hashlib
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor

from learning.algorithms.network_steps import NetworkSteps
from learning.cpu.torch_settings import configure_torch
from learning.losses.loss_terms import LossRule
from learning.networks.building import build_network
from learning.ranks.group import RankGroup, RankGroupError
from learning.updates.optimiser import FlatAdam
from learning.updates.steps import PolicyGradientHyperparameters
from shared.contracts.environment_spec import EnvironmentSpec
from shared.trajectory.columns import Columns

_ORPHANED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkForm:
    """Inputs from which a network and its gradient steps are built."""

    environment: EnvironmentSpec
    hyperparameters: PolicyGradientHyperparameters
    dtype: torch.dtype = torch.float32

    def steps(self, device: torch.device) -> NetworkSteps:
        """Return the steps of a new network, whose parameters are to be overwritten."""
        network = build_network(self.environment, self.hyperparameters, seed=0)
        network.flatten(self.dtype, device)
        return NetworkSteps(network, self.hyperparameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A tensor of the batch that follows."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWork:
    """One update, without the tensors that follow through the group."""

    form: NetworkForm
    rule: LossRule
    learning_rate: float
    adam_steps: int
    """Taken before."""
    generator: bytes
    """State of the generator that draws orders."""
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RankReady:
    """The rank has loaded, and joins the group."""


@dataclass(frozen=True, slots=True)
class RankDone:
    """The rank has taken all steps."""

    digest: str


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The rank gives up."""

    why: str
    of_others: bool
    """Whether it stopped because another rank did."""


RankAnswer = RankReady | RankDone | RankFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """A rank's place in a group."""

    rank: int
    size: int
    meeting: Path
    on_gpu: bool
    threads: int
    start_timeout_s: float
    timeout_s: float

    @property
    def device(self) -> torch.device:
        """The rank's device: ranks on GPUs have one each."""
        return torch.device("cuda", self.rank) if self.on_gpu else torch.device("cpu")

    def group(self) -> RankGroup:
        """Return the group once all ranks are there.

        Raises:
            RankGroupError: Not all came in time.
        """
        return RankGroup.opened(
            self.meeting,
            rank=self.rank,
            size=self.size,
            device=self.device,
            start_timeout_s=self.start_timeout_s,
            timeout_s=self.timeout_s,
        )


def columns_of(batch: Columns[Tensor]) -> Iterator[tuple[Column, Tensor]]:
    """Yield the tensors of a batch and their descriptions."""
    for name, value in batch.arrays.items():
        yield Column(name=name, shape=tuple(value.shape), dtype=value.dtype), value


def flats_of(adam: FlatAdam) -> Iterator[Tensor]:
    """Yield all numbers that steps change: # [P] each."""
    yield adam.parameters
    yield from adam.flats.values()


def digest_of(adam: FlatAdam) -> str:
    """Return a digest of the bits of parameters and moments."""
    digest = hashlib.blake2b(digest_size=16)
    for flat in flats_of(adam):
        digest.update(flat.numpy(force=True).data)
    return digest.hexdigest()


class Follower:
    """Takes part in updates."""

    def __init__(self, group: RankGroup, device: torch.device) -> None:
        self._group = group
        self._device = device
        self._built: tuple[NetworkForm, NetworkSteps] | None = None

    def take_part(self, work: RankWork) -> RankDone:
        """Take all steps of an update.

        Raises:
            RankGroupError: Another rank stopped.
        """
        steps = self._steps(work.form)
        for flat in flats_of(steps.adam):
            self._group.copy_first(flat)
        steps.adam.steps = work.adam_steps
        steps.adam.set_learning_rate(work.learning_rate)
        generator = torch.Generator()
        generator.set_state(torch.frombuffer(bytearray(work.generator), dtype=torch.uint8))
        steps.take(
            self._batch(work),
            work.rule,
            generator=generator,
            group=self._group,
        )
        return RankDone(digest_of(steps.adam))

    def _steps(self, form: NetworkForm) -> NetworkSteps:
        """Return the steps of the last update if they are of this form, or new ones."""
        if self._built is None or self._built[0] != form:
            self._built = form, form.steps(self._device)
        return self._built[1]

    def _batch(self, work: RankWork) -> Columns[Tensor]:
        tensors = {
            column.name: torch.empty(column.shape, dtype=column.dtype, device=self._device)
            for column in work.columns
        }
        for tensor in tensors.values():
            self._group.copy_first(tensor)
        return Columns(**tensors)


def follow(learner: Connection, place: RankPlace) -> None:
    """Be a rank until the learner closes the connection; the main function of a new process.

    Messages on the connection come from this process's parent: no other process can write to it.
    """
    # Ctrl-C reaches the whole group: the learner decides, and its end ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        configure_torch(place.threads)
        if place.on_gpu:
            torch.cuda.set_device(place.device)
        learner.send(RankReady())
        follower = Follower(place.group(), place.device)
        while (work := _next(learner)) is not None:
            learner.send(follower.take_part(work))
    except Exception as error:
        # The boundary of the process: the learner reports it.
        of_others = isinstance(error, RankGroupError)
        why = str(error) if of_others else traceback.format_exc()
        learner.send(RankFailed(why, of_others))


def _next(learner: Connection) -> RankWork | None:
    try:
        work: RankWork = learner.recv()
    except EOFError:
        return None
    return work


def _end_with_parent() -> None:
    """End this process when the learner has, also in the middle of waiting for it."""
    parent = parent_process()
    assert parent is not None, "a rank is started by a learner"
    connection.wait([parent.sentinel])
    os._exit(_ORPHANED)
