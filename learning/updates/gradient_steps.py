"""Gradient steps in a row, one per minibatch: a source's gradients, applied by an optimiser.

On the CPU each step is finished and checked before the next begins. On a GPU the host would spend
most of its time waiting for a step's numbers and launching the next step's kernels. So the GPU
itself decides whether to take a step, sums the numbers, and replays steps from a recording.
Minibatches of one size share a recording.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from learning.losses.loss_terms import LossRule, stat_names
from learning.updates.cuda_graphs import Recorder, Work
from learning.updates.gradient import GradientSource
from learning.updates.optimiser import FlatAdam
from shared.trajectory.columns import Columns

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsTaken:
    """The result of some gradient steps."""

    means: tuple[float, ...]
    """Of the stats and of the gradient's norm before it was cut, over the steps taken; empty
    without any."""
    num_taken: int
    num_skipped: int
    """Steps skipped because a number was not finite."""

    def stats(self, rule: LossRule, *, samples_per_step: float) -> dict[str, float]:
        """Return `num_minibatches` and, of these, `skipped_steps`, as a round's record has them.

        If a step was taken, also the means of the rule's stats, `grad_norm` and `loss`.
        """
        found = {
            "num_minibatches": float(self.num_taken + self.num_skipped),
            "skipped_steps": float(self.num_skipped),
        }
        if not self.num_taken:
            return found
        means = dict(zip((*stat_names(rule), "grad_norm"), self.means, strict=True))
        loss = rule.total(means, samples_per_step=samples_per_step)
        return found | means | {"loss": loss}


def take_steps(
    minibatches: Iterable[Columns[Tensor]],
    adam: FlatAdam,
    source: GradientSource[Columns[Tensor]],
    *,
    recorder: Recorder | None,
) -> StepsTaken:
    """Take one step per minibatch, in their order.

    Args:
        minibatches: Of equal form, of few different sizes.
        adam: Takes the steps.
        source: Of the gradients.
        recorder: Of the device; None finishes each step before the next.
    """
    if recorder is None:
        return take_watched_steps(minibatches, adam, source)
    replayed = _ReplayedSteps(adam, source, recorder)
    for minibatch in minibatches:
        replayed.take(minibatch)
    return replayed.result()


def take_watched_steps(
    minibatches: Iterable[S], adam: FlatAdam, source: GradientSource[S]
) -> StepsTaken:
    """Take one step per minibatch, each finished and checked before the next begins.

    Args:
        minibatches: In their order.
        adam: Takes the steps.
        source: Of the gradients.
    """
    return summed_up([adam.apply(source.gradient(minibatch)) for minibatch in minibatches])


def summed_up(steps: Sequence[list[float] | None]) -> StepsTaken:
    """Return the result of steps that `FlatAdam.apply` took or skipped."""
    taken = [step for step in steps if step is not None]
    means = torch.tensor(taken, dtype=torch.float64).mean(0).tolist() if taken else []
    return StepsTaken(means=tuple(means), num_taken=len(taken), num_skipped=len(steps) - len(taken))


@dataclass(frozen=True, slots=True)
class _Recording:
    """One size's step, and the tensors it reads its minibatch from."""

    minibatch: Columns[Tensor]
    replay: Work

    def take(self, minibatch: Columns[Tensor]) -> None:
        for given, kept in _by_type(minibatch, self.minibatch):
            torch._foreach_copy_(kept, given)
        self.replay()


class _ReplayedSteps:
    """Takes steps without waiting for any of them."""

    def __init__(
        self, adam: FlatAdam, source: GradientSource[Columns[Tensor]], recorder: Recorder
    ) -> None:
        self._adam = adam
        self._source = source
        self._recorder = recorder
        self._recordings: dict[int, _Recording] = {}
        self._seen: set[int] = set()
        self._sums: Tensor | None = None
        self._count = 0

    def take(self, minibatch: Columns[Tensor]) -> None:
        """Take one step; the second of a size is recorded."""
        size = len(minibatch.advantage)
        self._count += 1
        if size not in self._seen:
            self._seen.add(size)
            self._step(minibatch)
            return
        if size not in self._recordings:
            kept = minibatch.mapped(torch.clone)
            replay = self._recorder.record(lambda: self._step(kept))
            self._recordings[size] = _Recording(kept, replay)
        self._recordings[size].take(minibatch)

    def result(self) -> StepsTaken:
        """Return the result of all steps, once they are done."""
        *sums, taken = [0.0] if self._sums is None else self._sums.tolist()
        num_taken = int(taken)
        return StepsTaken(
            means=tuple(each / num_taken for each in sums) if num_taken else (),
            num_taken=num_taken,
            num_skipped=self._count - num_taken,
        )

    def _step(self, minibatch: Columns[Tensor]) -> None:
        row = self._adam.apply_unwatched(self._source.gradient(minibatch))
        if self._sums is None:
            self._sums = torch.zeros_like(row)
        self._sums.add_(row)


def _by_type(
    given: Columns[Tensor], kept: Columns[Tensor]
) -> Iterable[tuple[list[Tensor], list[Tensor]]]:
    """Return tensors of one type side by side, so that a single kernel copies them."""
    pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for name, source in given.arrays.items():
        sources, targets = pairs.setdefault(source.dtype, ([], []))
        sources.append(source)
        targets.append(kept.arrays[name])
    return pairs.values()
