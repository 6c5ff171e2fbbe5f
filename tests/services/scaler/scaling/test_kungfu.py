"""Gradient noise scale to actors, against the averages written out plainly."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scaler.scaling.base import NoiseMemory
from services.scaler.scaling.kungfu import KungFuPolicy, noise_scale
from shared.contracts.rounds import GradientNoise
from shared.contracts.scaling_spec import KungFuScaling
from tests.services.scaler.scaling.seen import seen

Measured = tuple[float, float] | None
HUNDREDTHS = st.integers(-100, 1000).map(lambda n: n / 100)
SMOOTHING = st.integers(0, 99).map(lambda n: n / 100)


def run(
    measured: Sequence[Measured], *, smoothing: float = 0.9, every: int = 1
) -> tuple[list[int], NoiseMemory | None]:
    """Decide round after round; return the counts and what is remembered at the end."""
    policy = KungFuPolicy(KungFuScaling(policy="kungfu", smoothing=smoothing, every_rounds=every))
    counts, memory = [], None
    for k, pair in enumerate(measured):
        noise = pair and GradientNoise(squared_norm=pair[0], variance=pair[1])
        decision = policy.decide(seen(k, gradient_noise=noise, memory=memory))
        memory = decision.memory
        counts.append(decision.requested)
    return counts, memory


def naive(measured: Sequence[Measured], smoothing: float) -> list[int]:
    """The definition, with the whole history at hand."""
    norms: list[float] = []
    traces: list[float] = []
    counts: list[int] = []
    scales: list[float] = []
    for pair in measured:
        if pair is not None:
            norms.append(
                pair[0] if not norms else smoothing * norms[-1] + (1 - smoothing) * pair[0]
            )
            traces.append(
                pair[1] if not traces else smoothing * traces[-1] + (1 - smoothing) * pair[1]
            )
        count = counts[-1] if counts else 8
        if norms and norms[-1] > 0 and traces[-1] > 0:
            scales.append(traces[-1] / norms[-1])
            wanted = 8 * (scales[-1] / scales[0])
            count = max(count, min(64, max(8, math.floor(wanted + 0.5))))
        counts.append(count)
    return counts


@given(
    measured=st.lists(st.none() | st.tuples(HUNDREDTHS, HUNDREDTHS), max_size=30),
    smoothing=SMOOTHING,
)
def test_counts_follow_the_definition(measured: list[Measured], smoothing: float) -> None:
    counts, _ = run(measured, smoothing=smoothing)
    assert counts == naive(measured, smoothing)
    assert counts == sorted(counts), "never fewer than before"


def test_a_noise_scale_four_times_the_first_gives_four_times_the_fewest() -> None:
    counts, memory = run([(2.0, 10.0), (2.0, 20.0), (2.0, 40.0), (2.0, 5.0)], smoothing=0.0)
    assert counts == [8, 16, 32, 32]
    assert memory is not None
    assert memory.first_scale == 5.0


def test_both_averages_are_kept_apart() -> None:
    # Averaging the ratio instead would see 1 and 100 and reach 50.5 times the first.
    counts, memory = run([(1.0, 1.0), (0.01, 1.0)], smoothing=0.5)
    assert memory is not None
    assert noise_scale(memory) == pytest.approx(1.0 / 0.505)
    assert counts == [8, 16]


@pytest.mark.parametrize("pair", [(-1.0, 5.0), (0.0, 5.0), (1.0, 0.0), (1.0, -2.0), None])
def test_an_undefined_scale_keeps_the_number(pair: Measured) -> None:
    assert run([pair, pair])[0] == [8, 8]
    assert run([(1.0, 1.0), (1.0, 3.0), pair], smoothing=0.0)[0] == [8, 24, 24]


def test_only_every_nth_round_changes_the_number_but_all_count() -> None:
    measured = [(1.0, float(2**k)) for k in range(7)]
    assert run(measured, smoothing=0.0, every=3)[0] == [8, 8, 8, 64, 64, 64, 64]
    slow = [(1.0, 1.0 + k / 3) for k in range(7)]
    assert run(slow, smoothing=0.0, every=3)[0] == [8, 8, 8, 16, 16, 16, 24]


def test_quotients_that_overflow_mean_the_most() -> None:
    assert run([(1e300, 1e-8), (1e-8, 1e-8)], smoothing=0.0)[0] == [8, 64]
    assert run([(1e-300, 1e300)], smoothing=0.0)[0] == [8]


def test_a_quotient_that_underflows_is_no_scale() -> None:
    counts, memory = run([(1e300, 1e-300), (1.0, 1.0), (1.0, 4.0)], smoothing=0.0)
    assert counts == [8, 8, 32]
    assert memory is not None
    assert memory.first_scale == 1.0


def test_halves_are_rounded_up() -> None:
    assert run([(16.0, 16.0), (16.0, 25.0)], smoothing=0.0)[0] == [8, 13]  # of 12.5
