"""The learner as rank 0 of several: starts the other ranks, leads them through updates, ends them.

Only gradient steps are shared. Rank 0 alone makes the batch, with its advantages and statistics,
measures, writes checkpoints and talks to others; the rest keep nothing between two updates. So a
rank that is lost costs the update under way, and nothing has to be found again.
"""

import logging
import multiprocessing as mp
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path

import torch
from torch import Tensor

from learning.algorithms.network_steps import NetworkSteps
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.ranks.group import RankGroup, RankGroupError
from learning.ranks.process import (
    NetworkForm,
    RankAnswer,
    RankDone,
    RankFailed,
    RankPlace,
    RankReady,
    RankWork,
    columns_of,
    digest_of,
    flats_of,
    follow,
)
from learning.updates.optimiser import FlatAdam
from learning.updates.steps import PolicyGradientHyperparameters
from shared.contracts.environment_spec import EnvironmentSpec
from shared.trajectory.columns import Columns

_LOG = logging.getLogger(__name__)

_BLAME_S = 2.0
"""How long to look for the first failed rank after an operation of all has failed."""
_END_S = 5.0
"""How long a process may take to end when killed."""


class RankLostError(RuntimeError):
    """A rank ended, failed or fell silent: the update under way is lost. All ranks have ended."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Member:
    """Another rank."""

    rank: int
    process: SpawnProcess
    line: Connection
    failed: RankFailed | None = None
    """Its last message before it gave up."""

    def listen(self, timeout_s: float) -> RankAnswer | None:
        """Return its next message; None without one in time, or if it has ended."""
        try:
            answer: RankAnswer | None = self.line.recv() if self.line.poll(timeout_s) else None
        except (OSError, EOFError):
            return None
        if isinstance(answer, RankFailed):
            self.failed = answer
        return answer

    def fault(self) -> str | None:
        """Return its failure, unless it only stopped because of another rank."""
        if self.failed is None:
            self.listen(0.0)
        if self.failed is not None:
            return None if self.failed.of_others else f"rank {self.rank} failed: {self.failed.why}"
        code = self.process.exitcode
        return None if code is None else f"rank {self.rank} ended {_said_of(code)}"


class Ranks:
    """All ranks but this one; a context manager that ends them."""

    def __init__(
        self,
        number: int,
        *,
        on_gpu: bool = False,
        threads: int = 1,
        start_timeout_s: float = 120.0,
        timeout_s: float = 60.0,
    ) -> None:
        """Start nothing yet.

        Args:
            number: Of ranks, this one included.
            on_gpu: Whether ranks compute on a GPU each, or on the CPU.
            threads: CPU threads of each rank.
            start_timeout_s: Longest that starting all of them may take.
            timeout_s: Longest that one operation of all, or the last rank's answer, may take.
        """
        self.number = number
        self._on_gpu = on_gpu
        self._threads = threads
        self._start_timeout_s = start_timeout_s
        self._timeout_s = timeout_s
        self._members: tuple[_Member, ...] = ()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._group: RankGroup | None = None

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the other ranks that were started, in the order of ranks."""
        return tuple(member.process.pid or 0 for member in self._members)

    def start(self) -> None:
        """Start the other ranks, without waiting for them; do nothing if all of them run.

        Raises:
            OSError: The system has no processes or pipes to give.
        """
        if self._members and all(m.process.exitcode is None for m in self._members):
            return
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="nitro-ranks-")
        context = mp.get_context("spawn")  # a fork would take threads, sockets and a GPU along
        try:
            for rank in range(1, self.number):
                self._members += (self._started(context, rank),)
        except BaseException:
            self.close()
            raise
        _LOG.info("ranks started", extra={"pids": self.pids})

    def _started(self, context: SpawnContext, rank: int) -> _Member:
        ours, theirs = context.Pipe()
        with theirs:
            process = context.Process(
                target=follow, args=(theirs, self._place(rank)), name=f"rank-{rank}", daemon=True
            )
            process.start()
        return _Member(rank=rank, process=process, line=ours)

    def steps(
        self,
        network: ActorCritic,
        environment: EnvironmentSpec,
        hyperparameters: PolicyGradientHyperparameters,
        /,
    ) -> "RankedSteps":
        """Return steps that all ranks take together: a `StepsBuilder`."""
        form = NetworkForm(environment=environment, hyperparameters=hyperparameters)
        return RankedSteps(NetworkSteps(network, hyperparameters), self, form)

    def close(self) -> None:
        """End the other ranks; safe to repeat."""
        members, self._members, self._group = self._members, (), None
        for member in members:
            member.process.kill()
        for member in members:
            member.process.join(_END_S)
            member.line.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def lead(
        self, work: RankWork, here: Callable[[RankGroup], dict[str, float]], adam: FlatAdam
    ) -> dict[str, float]:
        """Have all ranks take part in an update; after any failure they are ended.

        Args:
            work: The message to the others.
            here: Takes part as rank 0, and returns its result.
            adam: Stepped by `here`: the others must reach the same bits.

        Raises:
            RankLostError: A rank did not do its part; it is named.
        """
        try:
            group = self._joined()
            for member in self._members:
                member.line.send(work)
            found = here(group)
            self._compare(digest_of(adam))
        except (RankGroupError, OSError) as error:
            lost = RankLostError(self._blame(error))
            self.close()
            raise lost from error
        except BaseException:
            self.close()
            raise
        return found

    def _joined(self) -> RankGroup:
        """Return the group, once all ranks are there."""
        if self._group is None:
            self.start()
            give_up_at = time.monotonic() + self._start_timeout_s
            for member in self._members:
                answer = member.listen(max(0.0, give_up_at - time.monotonic()))
                if not isinstance(answer, RankReady):
                    raise RankGroupError("it did not start")
            self._group = self._place(0).group()
            _LOG.info("ranks ready", extra={"ranks": self.number})
        return self._group

    def _place(self, rank: int) -> RankPlace:
        assert self._folder is not None, "made before the ranks are"
        return RankPlace(
            rank=rank,
            size=self.number,
            meeting=Path(self._folder.name) / "meeting",
            on_gpu=self._on_gpu,
            threads=self._threads,
            start_timeout_s=self._start_timeout_s,
            timeout_s=self._timeout_s,
        )

    def _compare(self, expected: str) -> None:
        """Wait until all ranks are done; raise `RankLostError` unless all have these bits."""
        for member in self._members:
            answer = member.listen(self._timeout_s)
            if not isinstance(answer, RankDone):
                raise RankGroupError("its update did not end")
            if answer.digest != expected:
                raise RankLostError(
                    f"rank {member.rank} came to other parameters than rank 0: all ranks need the "
                    "same kind of processor or GPU"
                )

    def _blame(self, error: Exception) -> str:
        """Return the first failed rank, after an operation of all has failed."""
        give_up_at = time.monotonic() + _BLAME_S
        while True:
            faults = [fault for member in self._members if (fault := member.fault())]
            alive = [member for member in self._members if member.process.exitcode is None]
            left_s = give_up_at - time.monotonic()
            if faults or not alive or left_s <= 0.0:
                break
            connection.wait([member.process.sentinel for member in alive], left_s)
        silent = [f"rank {m.rank} gave no answer" for m in alive if m.failed is None]
        return f"{'; '.join(faults or silent) or 'the ranks lost touch'} ({error})"


def _said_of(code: int) -> str:
    """Return how a process with this exit code ended."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


class RankedSteps:
    """The steps of one network, taken by all ranks together."""

    def __init__(self, steps: NetworkSteps, ranks: Ranks, form: NetworkForm) -> None:
        """Take no step yet.

        Args:
            steps: Of this process, rank 0.
            ranks: The others.
            form: The others build the network from it.
        """
        self._steps = steps
        self._ranks = ranks
        self._form = form

    @property
    def adam(self) -> FlatAdam:
        """Takes the steps."""
        return self._steps.adam

    def take(
        self,
        batch: Columns[Tensor],
        rule: LossRule,
        *,
        generator: torch.Generator,
    ) -> dict[str, float]:
        """Do as `NetworkSteps.take` does.

        Raises:
            RankLostError: A rank did not do its part; parameters and moments are unusable.
        """
        columns = [*columns_of(batch)]
        work = RankWork(
            form=self._form,
            rule=rule,
            learning_rate=self.adam.learning_rate,
            adam_steps=self.adam.steps,
            generator=generator.get_state().numpy().tobytes(),
            columns=tuple(column for column, _ in columns),
        )

        def here(group: RankGroup) -> dict[str, float]:
            for tensor in (*flats_of(self.adam), *(tensor for _, tensor in columns)):
                group.copy_first(tensor.contiguous())
            return self._steps.take(batch, rule, generator=generator, group=group)

        return self._ranks.lead(work, here, self.adam)

    def scalars(self) -> dict[str, bool | int | float | str]:
        """Return the state to save beside the optimiser."""
        return self._steps.scalars()

    def load_scalars(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Continue from what `scalars` returned, among others."""
        self._steps.load_scalars(scalars)
