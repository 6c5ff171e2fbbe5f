"""When gradients that wait are aggregated, and when they are dropped."""

import math

import numpy as np

from learning.aggregation.queue import GradientQueue
from learning.aggregation.weighting import Arrived


def gradient(base: int) -> Arrived:
    one = np.ones(1, np.float32)
    return Arrived(call=base, base=base, flat=one, stats=one, num_samples=1)


def queue(*, beta: float = math.inf, oldest: float = math.inf, full: int = 3) -> GradientQueue:
    return GradientQueue(full=full, beta=beta, oldest=oldest)


def test_without_a_bound_every_gradient_is_aggregated_as_it_comes() -> None:
    waiting = queue()
    assert not waiting.ready(5)
    assert waiting.add(gradient(0), 5) == 5
    assert waiting.ready(5)


def test_the_mean_staleness_decides() -> None:
    waiting = queue(beta=1.0)
    waiting.add(gradient(3), 5)
    assert not waiting.ready(5)
    waiting.add(gradient(5), 5)
    assert waiting.ready(5)
    assert [each.base for each in waiting.take()] == [3, 5]
    assert not waiting.ready(5)


def test_a_full_queue_is_aggregated_however_stale() -> None:
    waiting = queue(beta=1.0)
    for _ in range(3):
        assert not waiting.ready(9)
        waiting.add(gradient(0), 9)
    assert waiting.ready(9)


def test_what_is_older_than_the_oldest_is_dropped_and_counted() -> None:
    waiting = queue(oldest=2.0)
    assert waiting.add(gradient(0), 3) is None
    assert waiting.add(gradient(1), 3) == 2
    assert waiting.num_stale == 1
    assert len(waiting.waiting) == 1
