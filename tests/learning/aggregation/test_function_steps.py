"""Updates along gradients of functions, against the updates of a learner that computes them."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from learning.aggregation.function_steps import GradientsLostError, LostCall
from learning.aggregation.mlp_gradient import function_gradient
from learning.algorithms.ppo import Ppo
from learning.data.samples import SAMPLE_FIELDS
from shared.contracts.gradients import GradientCall
from shared.contracts.learner_functions import LearnerFunctions, StepSize
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.aggregation.memory_desk import MemoryDesk, in_order, learner_on
from tests.learning.algorithms.off_policy_rounds import assert_same_state
from tests.learning.algorithms.test_ppo import CASES, round_of
from tests.learning.trajectories import CONTINUOUS

GAUSSIAN = [hyperparameters for environment, hyperparameters in CASES if environment is CONTINUOUS]
SLICES = 3
ONE = LearnerFunctions(num=1, slices=SLICES, truncation="off", step_size="fixed")
MANY = LearnerFunctions(num=4, slices=5)


def num_samples(learner: Ppo) -> int:
    return sum(t.num_steps for t in round_of(learner, CONTINUOUS, 0))


def synchronous(hyperparameters: PpoHyperparameters) -> Ppo:
    """Return a learner whose minibatches are of the slices' size."""
    probe = Ppo(CONTINUOUS, hyperparameters, seed=7, max_rounds=8)
    size = math.ceil(num_samples(probe) / SLICES)
    same = hyperparameters.model_copy(update={"minibatch_size": size})
    return Ppo(CONTINUOUS, same, seed=7, max_rounds=8)


@pytest.mark.parametrize("hyperparameters", [*GAUSSIAN, STANDARD])
@pytest.mark.parametrize(
    "functions",
    [
        ONE,
        ONE.model_copy(update={"truncation": "paper", "rho": 1e30}),
        ONE.model_copy(update={"truncation": "code"}),
        ONE.model_copy(update={"aggregation": "sequential"}),
    ],
    ids=["off", "no limit", "code", "sequential"],
)
def test_one_function_takes_the_synchronous_steps_bit_by_bit(
    hyperparameters: PpoHyperparameters, functions: LearnerFunctions
) -> None:
    alone = synchronous(hyperparameters)
    beside = learner_on(MemoryDesk(functions), hyperparameters)
    for k in range(3):
        trajectories = round_of(alone, CONTINUOUS, k)
        expected, found = alone.learn(trajectories).stats, beside.learn(trajectories).stats
        assert {name: found[name] for name in expected} == expected
        arrays, _ = beside.state()
        for name, array in alone.state()[0].items():
            assert arrays[name].tobytes() == array.tobytes(), name


def test_slices_as_large_as_minibatches_take_steps_as_long() -> None:
    alone = synchronous(STANDARD)
    functions = ONE.model_copy(update={"step_size": "linear"})
    beside = learner_on(MemoryDesk(functions), alone._hyperparameters)
    for k in range(2):
        trajectories = round_of(alone, CONTINUOUS, k)
        alone.learn(trajectories)
        beside.learn(trajectories)
    assert np.array_equal(alone.network.flat.numpy(), beside.network.flat.numpy())


@pytest.mark.parametrize("form", ["fixed", "sqrt", "linear"])
def test_a_first_step_is_as_long_as_its_samples_say(form: StepSize) -> None:
    """Adam's first step is of the step size's length, whatever the gradient."""
    probe = Ppo(CONTINUOUS, STANDARD, seed=7, max_rounds=8)
    trajectories = round_of(probe, CONTINUOUS, 0)
    before = probe.network.flat.clone()
    hyperparameters = STANDARD.model_copy(update={"num_epochs": 1, "minibatch_size": 8})
    functions = ONE.model_copy(update={"step_size": form, "slices": 1})
    learner = learner_on(MemoryDesk(functions), hyperparameters)
    learner.learn(trajectories)
    minibatches = num_samples(probe) / 8
    expected = {"fixed": 1.0, "sqrt": math.sqrt(minibatches), "linear": minibatches}[form]
    moved = float((learner.network.flat - before).abs().max())
    assert moved == pytest.approx(STANDARD.learning_rate * expected, rel=1e-2)


def test_the_mean_of_slices_is_the_gradient_of_the_whole_batch() -> None:
    hyperparameters = STANDARD.model_copy(update={"advantage_normalisation": "batch"})
    desk = MemoryDesk(MANY.model_copy(update={"truncation": "off"}))
    learner = learner_on(desk, hyperparameters)
    learner.learn(round_of(learner, CONTINUOUS, 0))
    slices = desk.slices[: MANY.slices]
    flat, _ = desk.weights[max(desk.weights)]
    rule, network = learner._rule, desk.network.network()

    def gradient(samples: Columns[np.ndarray]) -> np.ndarray:
        how = desk.functions
        return function_gradient(network, flat, (), samples, rule, how)[0].astype(np.float64)

    whole = Columns(**{n: np.concatenate([s.arrays[n] for s in slices]) for n in SAMPLE_FIELDS})
    sizes = [len(s.observation) for s in slices]
    mean = sum(n * gradient(s) for n, s in zip(sizes, slices, strict=True)) / sum(sizes)
    np.testing.assert_allclose(mean, gradient(whole), atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_recorded_order_of_arrival_replays_to_equal_weights(seed: int) -> None:
    chance = random.Random(seed)
    first = MemoryDesk(MANY, lambda calls: chance.randrange(len(calls)))
    learner = learner_on(first, STANDARD)
    orders: list[list[GradientCall]] = []
    rounds = []
    for k in range(3):
        rounds.append(round_of(learner, CONTINUOUS, k))
        learner.learn(rounds[-1])
        orders.append(list(learner._steps.arrivals))  # type: ignore[attr-defined]
    coming: list[GradientCall] = []

    def as_recorded(calls: Sequence[GradientCall]) -> int:
        return [call.call for call in calls].index(coming.pop(0).call)

    again = learner_on(MemoryDesk(MANY, as_recorded), STANDARD)
    for trajectories, order in zip(rounds, orders, strict=True):
        coming[:] = order
        again.learn(trajectories)
        assert list(again._steps.arrivals) == order  # type: ignore[attr-defined]
    assert_same_state(learner, again)


def test_every_gradient_is_accounted_for() -> None:
    chance = random.Random(3)
    desk = MemoryDesk(MANY, lambda calls: chance.randrange(len(calls)))

    def lose(call: GradientCall) -> LostCall | None:
        return LostCall(call=call.call, why="killed") if chance.random() < 0.2 else None

    desk.lose = lose
    learner = learner_on(desk, STANDARD)
    for k in range(6):
        learner.learn(round_of(learner, CONTINUOUS, k))
    for record in desk.records:
        assert record.asked == record.used + record.stale + record.lost
        assert len(record.staleness) == record.used == sum(record.queued)
    assert any(record.lost for record in desk.records)
    assert any(max(record.staleness) > 1 for record in desk.records)


def test_the_bound_holds_unless_the_queue_is_full() -> None:
    chance = random.Random(5)
    desk = MemoryDesk(MANY, lambda calls: chance.randrange(len(calls)))
    learner = learner_on(desk, STANDARD)
    for k in range(8):
        learner.learn(round_of(learner, CONTINUOUS, k))
    assert desk.records[0].bound is None
    bounds = [record.bound for record in desk.records[1:]]
    assert all(bound is not None and bound >= 1.0 for bound in bounds)
    for record in desk.records[1:]:
        ages = list(record.staleness)
        # The last of a round has nothing to wait for.
        for length in record.queued[:-1]:
            group, ages = ages[:length], ages[length:]
            assert record.bound is not None
            assert sum(group) / length <= record.bound or length >= MANY.num


def test_a_straggler_is_dropped_and_counted() -> None:
    def first_comes_last(calls: Sequence[GradientCall]) -> int:
        return len(calls) - 1

    desk = MemoryDesk(MANY, first_comes_last)
    learner = learner_on(desk, STANDARD)
    desk.choose = in_order
    learner.learn(round_of(learner, CONTINUOUS, 0))  # shows how stale gradients become
    desk.choose = first_comes_last
    learner.learn(round_of(learner, CONTINUOUS, 1))
    record = desk.records[-1]
    assert record.stale > 0
    assert record.asked == record.used + record.stale + record.lost


def test_without_any_gradient_the_update_fails_with_the_reason() -> None:
    desk = MemoryDesk(MANY)
    desk.lose = lambda call: LostCall(call=call.call, why="no function")
    learner = learner_on(desk, STANDARD)
    with pytest.raises(GradientsLostError, match="no function"):
        learner.learn(round_of(learner, CONTINUOUS, 0))


def test_state_goes_on_where_it_was_saved() -> None:
    desks = [MemoryDesk(MANY), MemoryDesk(MANY)]
    learner, resumed = (learner_on(desk, STANDARD) for desk in desks)
    learner.learn(round_of(learner, CONTINUOUS, 0))
    resumed.load_state(*learner.state())
    trajectories = round_of(learner, CONTINUOUS, 1)
    assert learner.learn(trajectories).stats == resumed.learn(trajectories).stats
    assert_same_state(learner, resumed)
    assert desks[0].records[-1] == desks[1].records[-1].model_copy(
        update={"aggregate_s": desks[0].records[-1].aggregate_s}
    )


@pytest.mark.parametrize(
    "functions",
    [
        MANY.model_copy(update={"objective": "decoupled"}),
        MANY.model_copy(update={"truncation": "code", "threshold": "code", "weighting": "code"}),
        MANY.model_copy(update={"local_passes": 3}),
        MANY.model_copy(update={"aggregation": "sequential", "threshold": "off"}),
    ],
)
def test_every_switch_takes_finite_steps(functions: LearnerFunctions) -> None:
    chance = random.Random(1)
    desk = MemoryDesk(functions, lambda calls: chance.randrange(len(calls)))
    learner = learner_on(desk, STANDARD)
    for k in range(4):
        stats = learner.learn(round_of(learner, CONTINUOUS, k)).stats
        assert all(map(math.isfinite, stats.values()))
        assert stats["skipped_steps"] == 0.0
