"""Actors by what one more is worth: its closed form, its steps, and a bandit that knows better."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from services.scaler.scaling.base import NoiseMemory, PastRound, RoundCosts, ScalingDecision
from services.scaler.scaling.marginal import MarginalPolicy, stepped, worthwhile_actors
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import GradientNoise
from shared.contracts.scaling_spec import ActorRange, MarginalScaling
from tests.services.scaler.scaling.seen import seen

POSITIVE = st.floats(1e-6, 1e6)
WIDE = ActorRange(min=1, max=3000)


def best(scale: float, fixed_usd: float, actor_usd: float) -> float:
    exact = worthwhile_actors(scale, fixed_usd=fixed_usd, actor_usd=actor_usd)
    assert exact is not None
    return exact


def gain_per_dollar(n: float, scale: float, fixed_usd: float, actor_usd: float) -> float:
    """The definition that n* maximises."""
    return n / (n + scale) / (fixed_usd + actor_usd * n)


def noise(scale: float) -> GradientNoise:
    return GradientNoise(squared_norm=2.0, variance=2.0 * scale)


def costs(fixed_usd: float, actor_usd: float, *, fixed_s: float = 1.0) -> RoundCosts:
    return RoundCosts(
        num_rounds=3, fixed_usd=fixed_usd, fixed_s=fixed_s, actor_usd=actor_usd, actor_s=0.0
    )


def decide(
    memory: NoiseMemory | None,
    measured: GradientNoise | None,
    paid: RoundCosts | None,
    *,
    actors: ActorRange = WIDE,
    usd_per_hour: float = 0.0,
    max_step: float = 2.0,
) -> ScalingDecision:
    parameters = MarginalScaling(
        policy="marginal", value_of_time_usd_per_hour=usd_per_hour, max_step=max_step
    )
    policy = MarginalPolicy(parameters)
    return policy.decide(seen(1, actors=actors, memory=memory, fragment_noise=measured, costs=paid))


def settled(scale: float, paid: RoundCosts, *, usd_per_hour: float) -> int:
    """The number that is reached after enough rounds that all measure the same."""
    memory = None
    for _ in range(15):
        memory = decide(memory, noise(scale), paid, usd_per_hour=usd_per_hour).memory
    assert memory is not None
    return memory.num_actors


@given(
    scale=POSITIVE, fixed=POSITIVE, actor=POSITIVE, nearer=st.floats(1, 50), more=st.floats(1, 9)
)
def test_gain_per_dollar_falls_on_both_sides_of_the_number(
    scale: float, fixed: float, actor: float, nearer: float, more: float
) -> None:
    exact = best(scale, fixed, actor)
    for step in (1 / nearer, nearer):
        near = gain_per_dollar(exact * step, scale, fixed, actor)
        far = gain_per_dollar(exact * step ** (1 + more), scale, fixed, actor)
        assert far <= near * (1 + 1e-9)
        assert near <= gain_per_dollar(exact, scale, fixed, actor) * (1 + 1e-9)


@given(scale=POSITIVE, fixed=POSITIVE, actor=POSITIVE, off=st.floats(0.5, 2))
def test_a_factor_of_two_costs_a_ninth_at_most(
    scale: float, fixed: float, actor: float, off: float
) -> None:
    exact = best(scale, fixed, actor)
    kept = gain_per_dollar(off * exact, scale, fixed, actor)
    assert kept >= (8 / 9 - 1e-9) * gain_per_dollar(exact, scale, fixed, actor)


@given(scale=POSITIVE, fixed=POSITIVE, actor=POSITIVE)
def test_fewer_than_the_noise_scale_where_it_outweighs_the_costs(
    scale: float, fixed: float, actor: float
) -> None:
    assume(not math.isclose(fixed / actor, scale))
    assert (best(scale, fixed, actor) <= scale) == (fixed / actor <= scale)


@given(scale=POSITIVE, fixed=POSITIVE, actor=POSITIVE, times=st.floats(1, 1e3))
def test_noise_and_fixed_costs_ask_for_more_and_dear_actors_for_fewer(
    scale: float, fixed: float, actor: float, times: float
) -> None:
    exact = best(scale, fixed, actor)
    assert best(times * scale, fixed, actor) >= exact
    assert best(scale, times * fixed, actor) >= exact
    assert best(scale, fixed, times * actor) <= exact


@given(
    exact=st.floats(0, 1e9) | st.just(math.inf),
    before=st.integers(1, 3000),
    most=st.floats(1.01, 9),
)
def test_a_step_goes_towards_the_number_and_no_further_than_allowed(
    exact: float, before: int, most: float
) -> None:
    after = stepped(exact, before, most=most)
    assert before / most - 1 <= after <= max(before * most, before + 1)
    assert abs(after - exact) <= abs(before - exact) + 0.5 or math.isinf(exact)
    if not before / most <= exact <= before * most:
        assert after != before


def test_the_number_is_reached_step_by_step_and_kept() -> None:
    paid = costs(27e-6, 1e-6)
    counts, memory = [], None
    for measured in (None, *(noise(20.0),) * 4, None, noise(20.0)):
        decision = decide(memory, measured, paid)
        memory = decision.memory
        counts.append(decision.requested)
    assert counts == [4, 8, 16, 23, 23, 23, 23]  # sqrt(20 * 27) = 23.2
    assert decision.reason == (
        "marginal: noise scale of 20 fragments, $2.7e-05 a round and $1e-06 an actor: "
        "23.2 are best: 23 actors"
    )
    # 15 % of 23 is 3.45: 26 stay what they are, 27 do not.
    assert decide(memory, None, costs(26**2 / 20, 1.0)).requested == 23
    assert decide(memory, None, costs(27**2 / 20, 1.0)).requested == 27
    assert decide(memory, None, costs(1e-9, 1.0)).requested == 12
    assert decide(memory, None, costs(1e-9, 1.0), max_step=10).requested == 4
    assert decide(memory, None, paid, actors=ActorRange(min=1, max=3)).requested == 3
    assert decide(memory, None, paid, actors=ActorRange(min=64, max=99)).requested == 64
    assert "0.000141 are best, step by step: 12" in decide(memory, None, costs(1e-9, 1.0)).reason
    few = decide(None, noise(1.0), costs(1.0, 1.0))
    assert "1 are best, 4 at least: 4 actors" in few.reason


def test_a_dearer_hour_asks_for_more_actors() -> None:
    paid = costs(1e-5, 1e-5, fixed_s=1.0)
    found = [settled(16.0, paid, usd_per_hour=w) for w in (0.0, 0.36, 3.6, 36.0)]
    # c0 / c1 is 1, 11, 101 and 1001.
    assert found == pytest.approx([4, 13, 40, 127], abs=6)
    assert found == sorted(found)


def test_a_given_ratio_of_costs_counts_in_place_of_the_bill() -> None:
    policy = MarginalPolicy(MarginalScaling(policy="marginal", cost_ratio=4.0, max_step=100.0))
    for paid in (None, costs(9.0, 1.0), costs(1.0, 9.0)):
        decided = policy.decide(seen(1, actors=WIDE, fragment_noise=noise(25.0), costs=paid))
        assert decided.requested == 10
        assert "costs 4 actors: 10 are best" in decided.reason
    with pytest.raises(ValidationError, match="give one of them"):
        MarginalScaling(policy="marginal", cost_ratio=4.0, value_of_time_usd_per_hour=1.0)


@pytest.mark.parametrize(
    ("measured", "paid", "why", "actors"),
    [
        (None, costs(1.0, 1.0), "no noise was measured yet", 8),
        (noise(9.0), None, "no round is billed yet", 8),
        (noise(9.0), costs(0.0, 0.0), "rounds cost nothing", 8),
        (GradientNoise(squared_norm=-1.0, variance=5.0), costs(1.0, 1.0), "noise hides", 8),
        (noise(9.0), costs(1.0, 0.0), "inf are best", 16),
        (noise(9.0), costs(0.0, 1.0), "0 are best", 8),
    ],
)
def test_every_case_without_a_number_has_an_outcome_and_says_so(
    measured: GradientNoise | None, paid: RoundCosts | None, why: str, actors: int
) -> None:
    decision = decide(None, measured, paid, actors=ActorRange(min=8, max=64))
    assert decision.requested == actors
    assert why in decision.reason


def test_noise_that_hides_the_gradient_leaves_the_last_scale() -> None:
    hidden = GradientNoise(squared_norm=-900.0, variance=5.0)
    known = decide(None, noise(25.0), costs(1.0, 1.0))
    after = decide(known.memory, hidden, costs(4.0, 1.0))
    assert "noise scale of 25 fragments, the last one as noise hides the gradient" in after.reason
    assert "10 are best" in after.reason


def test_a_policy_before_it_leaves_its_number() -> None:
    policy = MarginalPolicy(MarginalScaling(policy="marginal"))
    past = (PastRound(round_index=0, requested=40, num_actors=40),)
    assert policy.decide(seen(1, past=past)).requested == 40


def test_it_finds_what_is_best_for_a_bandit_that_was_simulated() -> None:
    # Reward -|x|^2 / 2 of a point x, of which a fragment sees the gradient -x and noise. With the
    # best step size for n fragments, found by trying, the progress of a step is simulated.
    rng = np.random.default_rng(5)
    size, sigma, paid = 40, 3.0, costs(5e-5, 2e-6)
    point = np.full(size, 1.0)
    counts = np.arange(4, 129, 4)

    def fragments(n: int) -> NDArray[np.float64]:
        return -point + sigma * rng.normal(size=(n, size))

    def progress(n: int) -> float:
        # The mean of n fragments is drawn as such: a step along it, averaged over 4000 of them.
        means = -point + sigma / math.sqrt(n) * rng.normal(size=(4000, size))
        towards, length = (means @ -point).mean(), (means**2).sum(1).mean()
        return max(float(e * towards - e**2 * length / 2) for e in np.linspace(0.01, 1, 100))

    found = np.array([progress(int(n)) / (paid.fixed_usd + n * paid.actor_usd) for n in counts])
    memory, reached = None, []
    for _ in range(60):
        n = 4 if memory is None else memory.num_actors
        gradients = fragments(n)
        mean, spread = gradients.mean(0), gradients.var(0, ddof=1).sum()
        measured = GradientNoise(squared_norm=mean @ mean - spread / n, variance=spread)
        memory = decide(memory, measured, paid).memory
        assert memory is not None
        reached.append(memory.num_actors)
    # N is sigma^2 size / |x|^2 = 9, so that n* is sqrt(9 * 25) = 15.
    assert reached[-1] == pytest.approx(15, abs=3)
    assert abs(int(counts[found.argmax()]) - 15) <= 5
    assert np.interp(reached[-1], counts, found) >= 0.97 * found.max()


def test_it_is_refused_where_actors_add_no_samples_to_an_update() -> None:
    marginal = MarginalScaling(policy="marginal")
    with pytest.raises(ValidationError, match=r"scaling\.policy .* instead of samples_per_round"):
        JobSpec(scaling=marginal, samples_per_round=2048)
    with pytest.raises(ValidationError, match=r"scaling\.policy .* is for PPO"):
        JobSpec(scaling=marginal, algorithm="impala")
    assert JobSpec(scaling=marginal).scaling == marginal
