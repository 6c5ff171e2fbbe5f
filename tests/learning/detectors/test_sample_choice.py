"""Samples of the curvature: drawn as often as their chances say, and right in the mean."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from learning.data.batch_building import on_policy_batch
from learning.detectors.sample_choice import (
    chosen_samples,
    evenly_spread,
    inclusion_probabilities,
    systematic,
)
from learning.networks.distributions import Distribution
from learning.networks.mlp_network import MlpActorCritic
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.detectors.test_surrogate import autograd_hessian, network_of
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

HYPERPARAMETERS = PpoHyperparameters(hidden_sizes=(6, 5))
STARTS = [(i + 0.5) / 400 for i in range(400)]

SIZES = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.floats(0.5, 2.0)), min_size=1, max_size=40
)


def round_of(environment: EnvironmentSpec) -> tuple[MlpActorCritic, Columns[Tensor]]:
    network = network_of(environment, HYPERPARAMETERS, torch.float32)
    trajectories = [make_trajectory(environment, network, actor_index=i) for i in range(3)]
    return network, on_policy_batch(trajectories, network, discount=0.99, gae_lambda=1.0)


@given(sizes=SIZES, wanted=st.integers(1, 50))
def test_chances_are_in_proportion_to_sizes_unless_certain(sizes: list[float], wanted: int) -> None:
    chances = inclusion_probabilities(torch.tensor(sizes, dtype=torch.float64), wanted).tolist()
    present = sum(size > 0 for size in sizes)
    assert sum(chances) == pytest.approx(min(wanted, present))
    assert all(0.0 <= chance <= 1.0 for chance in chances)
    assert all((chance > 0) == (size > 0) for chance, size in zip(chances, sizes, strict=True))
    drawn = [(size, p) for size, p in zip(sizes, chances, strict=True) if 0.0 < p < 1.0]
    for size, chance in drawn:
        assert chance / size == pytest.approx(drawn[0][1] / drawn[0][0])
    # None is certain whose share would not have made it so.
    for size, chance in zip(sizes, chances, strict=True):
        if chance == 1.0 and drawn:
            assert size * drawn[0][1] / drawn[0][0] >= 1.0 - 1e-9


@given(sizes=SIZES, wanted=st.integers(1, 50), start=st.floats(1e-9, 1.0 - 1e-9))
def test_as_many_are_drawn_as_wanted_and_all_that_are_certain(
    sizes: list[float], wanted: int, start: float
) -> None:
    chances = inclusion_probabilities(torch.tensor(sizes, dtype=torch.float64), wanted)
    chosen = systematic(chances, start=start).tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == round(float(chances.sum()))
    assert {i for i, chance in enumerate(chances.tolist()) if chance == 1.0} <= set(chosen)
    assert all(chances[i] > 0.0 for i in chosen)


def test_over_all_starts_each_is_drawn_as_often_as_its_chance() -> None:
    sizes = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes[7] = 30.0  # certain
    chances = inclusion_probabilities(sizes, 12)
    counts = torch.zeros(50, dtype=torch.float64)
    for start in STARTS:
        counts[systematic(chances, start=start)] += 1.0
    torch.testing.assert_close(counts / len(STARTS), chances, rtol=0.0, atol=1.0 / len(STARTS))


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE])
def test_a_sample_counts_for_as_many_as_its_chance_is_small(environment: EnvironmentSpec) -> None:
    network, batch = round_of(environment)
    rule = DetectorRule(num_samples=40)
    chosen, weights = chosen_samples(batch, rule, network.distribution)
    chances = naive_chances_of(batch, network.distribution, 40).tolist()
    expected = [40 / (len(chances) * chances[i]) for i in chosen.tolist()]
    assert len(chosen) == 40
    assert weights.tolist() == pytest.approx(expected, rel=1e-4)


def naive_chances(sizes: list[float], wanted: int) -> list[float]:
    """Chances of a drawing in which no sample has one above 1, by trying how many are certain."""
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    for certain in range(wanted + 1):
        rest = order[certain:]
        factor = (wanted - certain) / sum(sizes[i] for i in rest)
        if factor * sizes[rest[0]] <= 1.0:
            break
    return [1.0 if i in order[:certain] else factor * sizes[i] for i in range(len(sizes))]


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE])
@pytest.mark.parametrize("above", [-math.inf, 0.5, 2.0])
def test_gains_and_losses_are_drawn_in_proportion_by_how_much_they_bend(
    environment: EnvironmentSpec, above: float
) -> None:
    network, batch = round_of(environment)
    chosen, _ = chosen_samples(batch, DetectorRule(num_samples=40), network.distribution)
    bend = bends_of(batch, network.distribution)
    chances = naive_chances((batch.advantage.double().abs() * bend).tolist(), 40)
    for sign in (1.0, -1.0):
        stratum = (batch.advantage.sign() == sign) & (bend > above * bend.mean())
        drawn = int(stratum[chosen].sum())
        # Those that are certain lie between; drawing begins and ends within a stratum.
        assert abs(drawn - sum(chances[i] for i in torch.nonzero(stratum).flatten())) < 2.0


@pytest.mark.parametrize("environment", [CONTINUOUS, DISCRETE])
def test_the_hessian_is_right_in_the_mean(environment: EnvironmentSpec) -> None:
    """Over samples drawn from many starts; and nearer each time than evenly drawn ones are."""
    network, batch = round_of(environment)
    whole = hessian_of(network, batch, torch.arange(batch.num_samples), batch.advantage)
    chances = naive_chances_of(batch, network.distribution, 24)
    parts = []
    for start in STARTS[::10]:
        chosen = systematic(chances, start=start)
        weights = len(chosen) / (batch.num_samples * chances[chosen])
        parts.append(hessian_of(network, batch, chosen, batch.advantage[chosen] * weights))
    mean = torch.stack(parts).mean(0)
    off = [float((part - whole).norm()) for part in parts]
    assert float((mean - whole).norm()) < 0.3 * math.sqrt(sum(d * d for d in off) / len(off))
    even = [
        hessian_of(network, batch, chosen, batch.advantage[chosen])
        for chosen in (torch.arange(first, batch.num_samples, 6) for first in range(6))
    ]
    assert sum(off) / len(off) < 0.8 * sum(float((part - whole).norm()) for part in even) / 6


def naive_chances_of(batch: Columns[Tensor], distribution: Distribution, wanted: int) -> Tensor:
    sizes = batch.advantage.double().abs() * bends_of(batch, distribution)
    return torch.tensor(naive_chances(sizes.tolist(), wanted), dtype=torch.float64)


def bends_of(batch: Columns[Tensor], distribution: Distribution) -> Tensor:
    """|g|^2 + c, by autograd."""
    outputs = batch.outputs.double().requires_grad_()
    (score,) = torch.autograd.grad(distribution.log_prob(outputs, batch.action).sum(), outputs)
    squared = score.square().sum(1)
    return squared + 0.3 * squared.mean()


def hessian_of(
    network: MlpActorCritic, batch: Columns[Tensor], chosen: Tensor, advantage: Tensor
) -> Tensor:
    return autograd_hessian(network, batch.observation[chosen], batch.action[chosen], advantage)


def test_a_sample_without_advantage_is_never_drawn() -> None:
    network, batch = round_of(CONTINUOUS)
    advantage = torch.zeros_like(batch.advantage)
    advantage[[3, 50, 51, 140]] = torch.tensor([1.0, -2.0, 0.5, 1e-3])
    some = batch.replaced(advantage=advantage)
    chosen, weights = chosen_samples(some, DetectorRule(num_samples=10), network.distribution)
    assert chosen.tolist() == [3, 50, 51, 140]
    assert weights.tolist() == pytest.approx([4 / 144] * 4)
    none = batch.replaced(advantage=torch.zeros_like(advantage))
    chosen, _ = chosen_samples(none, DetectorRule(num_samples=10), network.distribution)
    assert chosen.tolist() == []


@pytest.mark.parametrize("num_samples", [144, 145, 10_000])
def test_all_samples_count_alike(num_samples: int) -> None:
    network, batch = round_of(CONTINUOUS)
    rule = DetectorRule(num_samples=num_samples)
    chosen, weights = chosen_samples(batch, rule, network.distribution)
    assert chosen.tolist() == list(range(144))
    assert weights.tolist() == [1.0] * 144


@pytest.mark.parametrize(
    "rule",
    [
        DetectorRule(num_samples=8, num_trajectories=2, sampling="even"),
        DetectorRule(num_samples=8, num_trajectories=2, objective="total_loss"),
    ],
)
def test_even_samples_come_from_as_many_trajectories_as_asked_for(rule: DetectorRule) -> None:
    network, batch = round_of(CONTINUOUS)  # 3 trajectories of 48 samples
    chosen, weights = chosen_samples(batch, rule, network.distribution)
    assert chosen.tolist() == [0, 12, 24, 36, 48, 60, 72, 84]
    assert weights.tolist() == [1.0] * 8
    wider = rule.model_copy(update={"num_samples": 6, "num_trajectories": 3})
    chosen, _ = chosen_samples(batch, wider, network.distribution)
    assert chosen.tolist() == [0, 24, 48, 72, 96, 120]


def test_drawn_samples_come_from_the_allowed_trajectories_and_stand_for_those() -> None:
    network, batch = round_of(CONTINUOUS)
    rule = DetectorRule(num_samples=30, num_trajectories=2)
    first_two = batch.mapped(lambda column: column[:96]).of_trajectories(2)
    chosen, weights = chosen_samples(batch, rule, network.distribution)
    assert chosen.max() < 96
    # The mean of |g|^2 is over the whole round either way, so that chances are nearly alike.
    alone, alone_weights = chosen_samples(first_two, rule, network.distribution)
    common = sorted(set(chosen.tolist()) & set(alone.tolist()))
    assert len(common) > 15
    ours = dict(zip(chosen.tolist(), weights.tolist(), strict=True))
    theirs = dict(zip(alone.tolist(), alone_weights.tolist(), strict=True))
    assert [ours[i] for i in common] == pytest.approx([theirs[i] for i in common], rel=0.2)


@pytest.mark.parametrize("field", ["advantage", "outputs"])
def test_what_is_not_finite_is_spread_evenly(field: str) -> None:
    network, batch = round_of(CONTINUOUS)
    broken = getattr(batch, field).clone()
    broken[5] = math.nan
    rule = DetectorRule(num_samples=12)
    chosen, weights = chosen_samples(batch.replaced(**{field: broken}), rule, network.distribution)
    assert chosen.tolist() == evenly_spread(144, 12).tolist()
    assert weights.tolist() == [1.0] * 12


@pytest.mark.parametrize(("available", "wanted"), [(4096, 512), (100, 7), (5, 5), (5, 9), (1, 1)])
def test_samples_are_distinct_and_evenly_spread(available: int, wanted: int) -> None:
    chosen = evenly_spread(available, wanted).tolist()
    assert len(chosen) == len(set(chosen)) == min(available, wanted)
    assert chosen[0] == 0
    assert chosen[-1] < available
    gaps = [b - a for a, b in zip(chosen, chosen[1:], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 1
