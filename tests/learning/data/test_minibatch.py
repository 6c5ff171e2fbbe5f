"""How a batch is cut into gradient steps."""

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.data.batch import joined, weighted
from learning.data.minibatch import ShuffledMinibatches
from shared.trajectory.columns import Columns


def batch_of(num_samples: int) -> Columns[Tensor]:
    """Every field of sample i holds i."""
    row = torch.arange(num_samples, dtype=torch.float32)
    column = row.unsqueeze(1)
    return Columns(
        observation=column,
        action=column.repeat(1, 2),
        advantage=row,
        value_target=row,
        value=row,
        log_prob=row,
        outputs=column.repeat(1, 4),
        behaviour_log_prob=row,
    )


def minibatches_of(
    num_samples: int, *, size: int, epochs: int, seed: int = 0
) -> list[Columns[Tensor]]:
    return list(
        ShuffledMinibatches(
            batch_of(num_samples),
            num_epochs=epochs,
            minibatch_size=size,
            generator=torch.Generator().manual_seed(seed),
        ).tensors()
    )


def test_every_pass_uses_every_sample_once_in_an_order_of_its_own() -> None:
    minibatches = minibatches_of(100, size=30, epochs=3)
    passes = [
        torch.cat([m.advantage for m in minibatches[start : start + 4]]) for start in (0, 4, 8)
    ]
    for order in passes:
        assert order.sort().values.tolist() == list(range(100))
    assert len({tuple(order.tolist()) for order in passes}) == 3


def test_sizes_differ_by_at_most_one_and_never_exceed_the_limit() -> None:
    for num_samples, sizes in ((100, [25] * 4), (90, [30] * 3), (91, [23, 23, 23, 22]), (7, [7])):
        found = [len(m.advantage) for m in minibatches_of(num_samples, size=30, epochs=1)]
        assert found == sizes


def test_the_fields_of_a_sample_stay_together() -> None:
    for m in minibatches_of(50, size=8, epochs=2):
        for field in (m.observation, m.action, m.outputs):
            assert torch.equal(field[:, 0], m.advantage)
        assert torch.equal(m.value_target, m.advantage)
        assert torch.equal(m.value, m.advantage)
        assert torch.equal(m.log_prob, m.advantage)


def test_the_generator_alone_decides_the_order() -> None:
    orders = []
    for seed in (0, 0, 1):
        found = minibatches_of(50, size=8, epochs=2, seed=seed)
        orders.append(torch.cat([m.advantage for m in found]).tolist())
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("size", [1, 8, 50])
def test_advantages_can_be_normalised_by_minibatch(size: int) -> None:
    """CleanRL's form: the deviation of a sample of n has n - 1 below it, and 1e-8 beside it."""
    plain, normalised = (
        ShuffledMinibatches(
            batch_of(50),
            num_epochs=2,
            minibatch_size=size,
            generator=torch.Generator().manual_seed(0),
            normalise=normalise,
        ).tensors()
        for normalise in (False, True)
    )
    for raw, found in zip(plain, normalised, strict=True):
        a = raw.advantage.numpy().astype(np.float64)
        deviation = a.std(ddof=1) if len(a) > 1 else 0.0
        expected = (a - a.mean()) / (deviation + 1e-8)
        np.testing.assert_allclose(found.advantage.numpy(), expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(found.value_target, raw.value_target)


@pytest.mark.parametrize("num_samples", [7, 50, 91])
def test_as_arrays_they_are_the_same(num_samples: int) -> None:
    def shuffled() -> ShuffledMinibatches:
        return ShuffledMinibatches(
            batch_of(num_samples),
            num_epochs=2,
            minibatch_size=8,
            generator=torch.Generator().manual_seed(0),
            normalise=True,
        )

    for tensors, arrays in zip(shuffled().tensors(), shuffled().arrays(), strict=True):
        for name, expected in tensors.arrays.items():
            np.testing.assert_array_equal(arrays.arrays[name], expected.numpy())
        # Short rows would be slow: each column lies in a row of its own.
        assert arrays.action[:, 1].flags.c_contiguous
        assert arrays.outputs[:, 3].flags.c_contiguous


def test_weights_come_after_normalising() -> None:
    """The mean that normalising takes off must not give samples of weight 0 an advantage."""
    weight = torch.linspace(0.0, 1.5, 50)
    weight[::7] = 0.0
    plain, weighted = (
        ShuffledMinibatches(
            batch,
            num_epochs=2,
            minibatch_size=8,
            generator=torch.Generator().manual_seed(0),
            normalise=True,
        ).tensors()
        for batch in (batch_of(50), batch_of(50).replaced(weight=weight))
    )
    for without, found in zip(plain, weighted, strict=True):
        expected = without.advantage * weight[found.value_target.long()]
        torch.testing.assert_close(found.advantage, expected)


def test_a_batch_can_have_its_weights_in_the_advantages() -> None:
    batch = batch_of(4).replaced(weight=torch.tensor([0.0, 1.0, 2.0, 0.5]))
    assert weighted(batch).advantage.tolist() == [0.0, 1.0, 4.0, 1.5]
    assert "weight" not in weighted(batch).arrays
    assert joined([batch, batch]).advantage.tolist() == [0.0, 1.0, 4.0, 1.5] * 2
    assert "weight" not in joined([batch]).arrays
    assert weighted(batch_of(4)).advantage.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("num_samples", "size"), [(100, 30), (91, 30), (7, 3), (5, 1), (4, 9)])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_rows_of_all_ranks_are_those_of_each_minibatch(
    num_samples: int, size: int, number: int
) -> None:
    def drawn(rows: slice) -> ShuffledMinibatches:
        return ShuffledMinibatches(
            batch_of(num_samples),
            num_epochs=2,
            minibatch_size=size,
            generator=torch.Generator().manual_seed(0),
            normalise=num_samples // size > 1,  # of single samples nothing is left
            rows=rows,
        )

    whole = [*drawn(slice(None)).tensors()]
    assert [*drawn(slice(None)).sizes()] == [len(m.advantage) for m in whole]
    for rank in range(number):
        rows = slice(rank, None, number)
        found, arrays = drawn(rows).tensors(), drawn(rows).arrays()
        for ours, array, expected in zip(found, arrays, whole, strict=True):
            for name, column in expected.arrays.items():
                part = column[rows]
                assert torch.equal(ours.arrays[name], part)
                assert np.array_equal(array.arrays[name], part.numpy())
