"""A batch cut into the samples of single gradient steps, reshuffled for every pass."""

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from learning.arrays import Floats
from learning.data.samples import SAMPLE_FIELDS
from learning.returns.gae import normalised_minibatch
from shared.trajectory.columns import Columns

_NAMES = [name for name in SAMPLE_FIELDS if name != "observation"]
_ALL_ROWS = slice(None)


class ShuffledMinibatches:
    """The minibatches of some passes over a batch, in order of use.

    N samples make ceil(N / minibatch_size) minibatches per pass, of sizes that differ by at most
    one: every sample is used once per pass, and no step uses a tiny remainder. If a batch has
    sequences, the same holds for them, and minibatches have observations # [n, L, O].
    """

    def __init__(
        self,
        batch: Columns[Tensor],
        *,
        num_epochs: int,
        minibatch_size: int,
        generator: torch.Generator,
        normalise: bool = False,
        rows: slice = _ALL_ROWS,
    ) -> None:
        """Draw nothing until the first request.

        Args:
            batch: The samples.
            num_epochs: Passes.
            minibatch_size: Most samples of a minibatch.
            generator: On the CPU; one permutation is drawn from it at the start of each pass.
            normalise: Whether to normalise the advantages of each minibatch separately. An earlier
                normalisation over the batch has no effect: it is undone.
            rows: The samples of each minibatch to yield; advantages are normalised over all.
        """
        self._batch = batch
        self._num_epochs = num_epochs
        self._length = batch.sequence_length
        self._num_sequences = batch.num_samples // self._length
        self._count = num_minibatches(self._num_sequences, max(1, minibatch_size // self._length))
        self._generator = generator
        self._normalise = normalise
        self._rows = rows

    def sizes(self) -> Iterator[int]:
        """Yield the number of samples of each minibatch, other rows included."""
        whole = self._whole_bounds()
        return (end - start for _ in range(self._num_epochs) for start, end in whole)

    def tensors(self) -> Iterator[Columns[Tensor]]:
        """Yield them."""
        for order in self.orders():
            # After gathering a whole pass at once, each step needs only views.
            ours, ends = self._ours(order), [end for _, end in self._bounds()[:-1]]
            parts = [field.tensor_split(ends) for field in self._gathered(order, ours)]
            observations = _gathered_observations(self._batch.observation, ours, ends)
            for observation, *others in zip(observations, *parts, strict=True):
                if self._length > 1:
                    observation = observation.unflatten(0, (-1, self._length))
                yield Columns(observation=observation, **dict(zip(_NAMES, others, strict=True)))

    def arrays(self, orders: Iterable[Tensor] | None = None) -> Iterator[Columns[Floats]]:
        """Yield them as NumPy arrays, from a batch on the CPU.

        Args:
            orders: What `orders` yielded; None draws them.
        """
        for order in self.orders() if orders is None else orders:
            ours = self._ours(order)
            whole = {"observation": self._batch.observation.index_select(0, ours).numpy()}
            whole |= zip(_NAMES, map(_by_column, self._gathered(order, ours)), strict=True)
            for start, end in self._bounds():
                yield Columns(**{name: field[start:end] for name, field in whole.items()})

    def orders(self) -> Iterator[Tensor]:
        """Draw the order of the samples # [N] int64 in each pass, and yield it."""
        for _ in range(self._num_epochs):
            order = torch.randperm(self._num_sequences, generator=self._generator)
            if self._length > 1:
                order = (order.unsqueeze(1) * self._length + torch.arange(self._length)).flatten()
            yield order.to(self._batch.observation.device)

    def _gathered(self, order: Tensor, ours: Tensor) -> list[Tensor]:
        """Return our rows of a pass's samples in their order: the fields of `_NAMES`."""
        return [
            self._ours(_advantages(self._batch, order, self._count, normalise=self._normalise))
            if name == "advantage"
            else self._batch.arrays[name].index_select(0, ours)
            for name in _NAMES
        ]

    def _ours(self, column: Tensor) -> Tensor:
        """Return our rows of each minibatch, given a number per sample of a pass # [N]."""
        if self._rows == _ALL_ROWS:
            return column
        whole = self._whole_bounds()
        return torch.cat([column[start:end][self._rows] for start, end in whole])

    def _whole_bounds(self) -> list[tuple[int, int]]:
        """Return where each minibatch of a pass begins and ends."""
        whole = bounds(self._num_sequences, self._count)
        return [(start * self._length, end * self._length) for start, end in whole]

    def _bounds(self) -> list[tuple[int, int]]:
        """Return where our rows of each minibatch begin and end among our rows of a pass."""
        whole = self._whole_bounds()
        ends = [0, *accumulate(len(range(end - start)[self._rows]) for start, end in whole)]
        return [*pairwise(ends)]


def num_minibatches(num_samples: int, minibatch_size: int) -> int:
    """Return the number of minibatches of one pass."""
    return math.ceil(num_samples / minibatch_size)


def bounds(num_samples: int, count: int) -> list[tuple[int, int]]:
    """Return where each of a pass's minibatches begins and ends, as `tensor_split` has it.

    >>> bounds(8, 3)
    [(0, 3), (3, 6), (6, 8)]
    """
    size, num_longer = divmod(num_samples, count)
    starts = [i * size + min(i, num_longer) for i in range(count + 1)]
    return [*pairwise(starts)]


def _by_column(field: Tensor) -> Floats:
    """Return a field with each of its columns in a row: rows of a few numbers are slow to NumPy."""
    array: Floats = field.t().contiguous().t().numpy() if field.ndim == 2 else field.numpy()
    return array


def _advantages(batch: Columns[Tensor], order: Tensor, count: int, *, normalise: bool) -> Tensor:
    """Return a pass's advantages # [N] in their order, as the loss takes them."""
    advantage = batch.advantage.index_select(0, order)
    if normalise:
        advantage = _normalised(advantage, count, batch.sequence_length)
    if "weight" not in batch.arrays:
        return advantage
    # Weighted last: the mean subtracted by normalising must not reach samples of weight 0. They are
    # actions that the policy would never take, where its log-probability is steepest.
    return advantage * batch.weight.index_select(0, order)


def _normalised(advantage: Tensor, count: int, length: int) -> Tensor:
    """Return a pass's advantages # [N], those of each of `count` minibatches normalised.

    Minibatches of one size are the rows of one matrix; `tensor_split` puts the longer ones first.
    """
    num_sequences, num_longer = divmod(len(advantage) // length, count)
    size = num_sequences * length
    longer, shorter = advantage.tensor_split((num_longer * (size + length),))
    rows = (longer.view(num_longer, size + length), shorter.view(count - num_longer, size))
    return torch.cat([normalised_minibatch(part).flatten() for part in rows if len(part)])


def _gathered_observations(observation: Tensor, order: Tensor, ends: list[int]) -> Iterable[Tensor]:
    """Return the observations of each step; images one step at a time, to save memory.

    Args:
        observation: Of all samples.
        order: Which to take.
        ends: Where in `order` each step but the last ends.
    """
    if observation.ndim > 2:
        return (observation.index_select(0, part) for part in order.tensor_split(ends))
    return observation.index_select(0, order).tensor_split(ends)
