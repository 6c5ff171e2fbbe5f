"""Gradient steps whose gradients functions compute, several at a time.

    slices of a batch ──▶ ask, `num` at a time ──▶ arrivals ──▶ queue ──▶ mean, one Adam step
                              ▲      at weights c                            │ weights c + 1
                              └──────────────────────────────────────────────┘

A slice corresponds to a minibatch of a learner without functions: every pass over a batch's
samples shuffles them and cuts them into slices. With one function each gradient is computed at the
newest weights, and the steps are those of `NetworkSteps`, bit by bit, where no ratio is truncated.

The edges, cache and scaler, are behind `GradientDesk`. Equal arrivals in equal order, computed at
the same versions, give equal bits.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from learning.aggregation.queue import GradientQueue
from learning.aggregation.threshold import StalenessBound
from learning.aggregation.weighting import Arrived, WeighingRule, step_factor, weighted_mean
from learning.algorithms.network_steps import adam_of
from learning.arrays import Floats
from learning.data.minibatch import ShuffledMinibatches
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.gradient import Gradient
from learning.updates.gradient_steps import summed_up
from learning.updates.steps import PolicyGradientHyperparameters
from shared.contracts.gradients import GradientCall, GradientRecord
from shared.contracts.learner_functions import LearnerFunctions
from shared.trajectory.columns import Columns


class GradientsLostError(RuntimeError):
    """No function returned a gradient; the message has the last reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCall:
    """A call that brings nothing."""

    call: int
    why: str


class GradientDesk(Protocol):
    """The source of requested gradients."""

    def begin(self, slices: Sequence[Columns[Floats]]) -> None:
        """Publish the slices of an update for functions; a call is a slice's index."""
        ...

    def publish(self, version: int, flat: Floats, rule: LossRule, *, forget: Sequence[int]) -> None:
        """Publish weights # [P], and drop other versions."""
        ...

    def ask(self, calls: Sequence[GradientCall]) -> None:
        """Request these gradients."""
        ...

    def wait(self) -> Sequence[Arrived | LostCall]:
        """Return new arrivals, waiting if there are none; each call arrives once."""
        ...

    def end(self, record: GradientRecord) -> None:
        """Accept no further arrivals, and keep the record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """Contents of the queue when it was aggregated."""

    staleness: tuple[int, ...]
    rows: list[list[float] | None]
    elapsed_s: float


class FunctionSteps:
    """Steps one network along gradients of functions."""

    def __init__(
        self,
        network: ActorCritic,
        desk: GradientDesk,
        functions: LearnerFunctions,
        hyperparameters: PolicyGradientHyperparameters,
    ) -> None:
        """Start without moments."""
        self._network = network
        self._desk = desk
        self._functions = functions
        self._num_epochs = hyperparameters.num_epochs
        self._minibatch_size = hyperparameters.minibatch_size
        self._normalise = hyperparameters.advantage_normalisation == "minibatch"
        if network.halves() is None:
            raise ValueError("functions compute gradients of dense networks on a CPU only")
        self.adam = adam_of(network, hyperparameters)
        self._weighing = WeighingRule(
            form=functions.weighting, v=functions.v, decay=functions.decay
        )
        self._bound = StalenessBound(form=functions.threshold, decay=functions.decay)
        self._version = 0
        self.arrivals: list[GradientCall] = []
        """Of the last update, in order of arrival, for a replay."""

    def take(
        self,
        batch: Columns[Tensor],
        rule: LossRule,
        *,
        generator: torch.Generator,
    ) -> dict[str, float]:
        """Take all steps over a batch; see `NetworkSteps.take`.

        Raises:
            GradientsLostError: No gradient arrived.
        """
        size = math.ceil(batch.num_samples / self._functions.slices)
        minibatches = ShuffledMinibatches(
            batch,
            num_epochs=self._num_epochs,
            minibatch_size=size,
            generator=generator,
            normalise=self._normalise,
        )
        slices = [*minibatches.arrays()]
        self._desk.begin(slices)
        update = _Update(self, rule, len(slices), minibatches=size / self._minibatch_size)
        with torch.inference_mode():
            record = update.run()
        self._bound = self._bound.after(record.staleness)
        self._desk.end(record)
        found = summed_up(update.rows).stats(rule, samples_per_step=size)
        if "loss" not in found:
            return found
        ages = record.staleness
        found["staleness_mean"] = sum(ages) / len(ages)
        found["staleness_max"] = float(max(ages))
        found["gradients_used"] = float(record.used)
        found["gradient_queue_mean"] = len(ages) / len(record.queued)
        if record.bound is not None:
            found["staleness_bound"] = record.bound
        return found

    def scalars(self) -> dict[str, bool | int | float | str]:
        """Return the weights' version and the bound."""
        bound = self._bound
        return {
            "weights_version": self._version,
            "staleness_first": bound.first,
            # Older checkpoints have this name.
            "staleness_rounds": bound.updates,
        }

    def load_scalars(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Continue from what `scalars` returned, among others."""
        self._version = int(scalars["weights_version"])
        first, updates = int(scalars["staleness_first"]), int(scalars["staleness_rounds"])
        self._bound = replace(self._bound, first=first, updates=updates)


class _Update:
    """One update in progress."""

    def __init__(
        self,
        steps: FunctionSteps,
        rule: LossRule,
        num_calls: int,
        *,
        minibatches: float,
    ) -> None:
        self._steps = steps
        self._desk = steps._desk
        self._rule = rule
        self._num_calls = num_calls
        self._learning_rate = steps.adam.learning_rate
        self._minibatches = minibatches
        """A slice's samples, as minibatches of a learner without functions."""
        self._pending = deque(range(num_calls))
        self._in_flight: dict[int, GradientCall] = {}
        self._published: list[int] = []
        functions, bound = steps._functions, steps._bound
        oldest = bound.oldest if functions.drop_stragglers else math.inf
        self._queue = GradientQueue(full=functions.num, beta=bound.beta, oldest=oldest)
        self._aggregated: list[Aggregated] = []
        self._num_lost = 0
        self._why_lost = ""
        self.rows: list[list[float] | None] = []
        steps.arrivals = []

    def run(self) -> GradientRecord:
        """Request, wait and step until every call has ended."""
        self._publish()
        while self._pending or self._in_flight:
            self._ask()
            for each in self._desk.wait():
                self._take_in(each)
                if self._queue.ready(self._steps._version):
                    self._aggregate()
        # Gradients that wait at the end have nothing to wait for.
        self._aggregate()
        if not self._aggregated:
            raise GradientsLostError(f"no learner function brought a gradient: {self._why_lost}")
        return self._record()

    def _publish(self) -> None:
        """Publish the present weights for functions; drop versions without a pending call."""
        version = self._steps._version
        needed = {v for call in self._in_flight.values() for v in (call.base, *call.others)}
        forget = [v for v in self._published if v not in needed]
        self._published = [*(v for v in self._published if v in needed), version]
        flat: Floats = self._steps.adam.parameters.numpy()
        self._desk.publish(version, flat, self._rule, forget=forget)

    def _ask(self) -> None:
        free = self._steps._functions.num - len(self._in_flight)
        calls = []
        for _ in range(min(free, len(self._pending))):
            call = GradientCall(
                call=self._pending.popleft(), base=self._steps._version, others=self._others()
            )
            calls.append(call)
            self._in_flight[call.call] = call
        if calls:
            self._desk.ask(calls)

    def _others(self) -> tuple[int, ...]:
        """Return other versions that functions work on, inside the bound."""
        if self._steps._functions.truncation == "off":
            return ()
        clock, beta = self._steps._version, self._queue.beta
        bases = {call.base for call in self._in_flight.values()}
        return tuple(sorted(b for b in bases if b != clock and clock - b <= beta))

    def _take_in(self, each: Arrived | LostCall) -> None:
        asked = self._in_flight.pop(each.call, None)
        if asked is None:
            return  # answered before
        if isinstance(each, LostCall):
            self._why_lost = each.why
            self._num_lost += 1
            return
        self._steps.arrivals.append(asked)
        self._queue.add(each, self._steps._version)

    def _aggregate(self) -> None:
        """Step along the queued gradients, and publish the new weights."""
        begun, steps = time.perf_counter(), self._steps
        staleness = tuple(self._queue.staleness(steps._version))
        gradients = self._queue.take()
        if not gradients:
            return
        weights = [steps._weighing.weight(age, step=steps._version + 1) for age in staleness]
        if steps._functions.aggregation == "mean":
            rows = [self._step(gradients, weights)]
        else:
            rows = [self._step([g], [w]) for g, w in zip(gradients, weights, strict=True)]
        steps._version += 1
        if self._pending or self._in_flight:
            self._publish()
        self.rows += rows
        elapsed_s = time.perf_counter() - begun
        self._aggregated.append(Aggregated(staleness=staleness, rows=rows, elapsed_s=elapsed_s))

    def _step(self, gradients: Sequence[Arrived], weights: Sequence[float]) -> list[float] | None:
        flat, stats = weighted_mean(gradients, weights)
        factor = step_factor(
            self._steps._functions.step_size, minibatches=len(gradients) * self._minibatches
        )
        self._steps.adam.set_learning_rate(self._learning_rate * factor)
        return self._steps.adam.apply(Gradient(flat=torch.from_numpy(flat), stats=stats))

    def _record(self) -> GradientRecord:
        staleness = tuple(age for each in self._aggregated for age in each.staleness)
        seconds = [each.elapsed_s for each in self._aggregated]
        beta = self._queue.beta
        return GradientRecord(
            asked=self._num_calls,
            used=len(staleness),
            stale=self._queue.num_stale,
            lost=self._num_lost,
            steps=len(self.rows),
            staleness=staleness,
            queued=tuple(len(each.staleness) for each in self._aggregated),
            bound=None if math.isinf(beta) else beta,
            version=self._steps._version,
            aggregate_s=sum(seconds) / len(seconds),
        )
