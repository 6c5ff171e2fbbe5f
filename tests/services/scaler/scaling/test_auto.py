"""As many actors as a round's steps are worth beside their calls, against hand-made times."""

import random
from itertools import pairwise

import pytest
from pydantic import ValidationError

from services.scaler.scaling.auto import AutoPolicy
from services.scaler.scaling.base import PastRound
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import ActorRange, AutoScaling
from tests.services.scaler.running import Scaler, result
from tests.services.scaler.scaling.seen import seen

WIDE = ActorRange(min=1, max=1000)


def actors(
    steps: int,
    *times: tuple[float | None, float | None],
    within: ActorRange = WIDE,
    before: int = 1,
    envs_per_actor: int = 1,
) -> int:
    past = tuple(
        PastRound(
            round_index=k, requested=before, num_actors=before, step_s=step, call_overhead_s=call
        )
        for k, (step, call) in enumerate(times)
    )
    policy = AutoPolicy(AutoScaling(policy="auto"))
    decided = policy.decide(
        seen(
            len(past),
            actors=within,
            steps_to_share=steps,
            envs_per_actor=envs_per_actor,
            past=past,
        )
    )
    assert f"{decided.requested} actors" in decided.reason
    return decided.requested


@pytest.mark.parametrize(
    ("step_s", "call_s", "expected"),
    [
        (0.001, 0.010, 40),  # 2048 ms of steps, of which each actor has 50 at least
        (0.030, 0.010, 682),  # a slow simulator is worth 1228, the range has 1000: 3 steps each
        (0.0001, 0.010, 4),
        (0.0001, 1.0, 1),  # a call that outweighs all steps together
        (0.001, 0.0, 682),
    ],
)
def test_a_fragment_takes_five_times_as_long_as_its_call(
    step_s: float, call_s: float, expected: int
) -> None:
    assert actors(2048, (step_s, call_s)) == expected


def test_single_rounds_do_not_matter_and_unknown_ones_are_left_out() -> None:
    usual, stalled = (0.001, 0.010), (0.001, 9.0)
    assert actors(2048, usual, stalled, (None, None), usual) == 40


def test_a_number_that_is_nearly_right_stays_unless_calls_outweigh_its_steps() -> None:
    assert actors(2048, (0.001, 0.010), before=35) == 35
    assert actors(2048, (0.001, 0.010), before=31) == 40
    assert actors(2048, (0.001, 0.010), before=41) == 40


@pytest.mark.parametrize(("exact", "envs_per_actor"), [(3.1, 1), (40.0, 1), (61.0, 16), (122, 16)])
def test_times_that_vary_a_little_lower_the_number_if_they_change_it(
    exact: float, envs_per_actor: int
) -> None:
    dice, numbers = random.Random(0), [1]
    for _ in range(40):
        step_s = exact * 0.05 / 2048 * dice.uniform(0.98, 1.02)
        decided = actors(2048, (step_s, 0.010), before=numbers[-1], envs_per_actor=envs_per_actor)
        numbers.append(decided)
    settled = numbers[1:]
    changes = [other - one for one, other in pairwise(settled) if one != other]
    assert len(changes) <= 2
    assert all(change < 0 for change in changes)
    assert 0.5 * exact < settled[-1] <= exact


@pytest.mark.parametrize(
    ("step_s", "envs_per_actor", "expected"),
    [
        (0.0167, 1, 682),  # 684 would take 2 steps each, 1,368 in all; 682 take 3
        (0.00159, 16, 64),  # 65 would take one step in each environment
        (0.0012, 1, 48),  # 49 would take 41 steps each, 49.2 ms
        (0.00031, 32, 10),  # 12 would take 5 steps in each environment, 49.6 ms
    ],
)
def test_equal_shares_leave_little_out(step_s: float, envs_per_actor: int, expected: int) -> None:
    assert actors(2048, (step_s, 0.010), envs_per_actor=envs_per_actor) == expected


@pytest.mark.parametrize("envs_per_actor", [1, 3, 16])
def test_no_number_breaks_the_promise_while_one_keeps_it(envs_per_actor: int) -> None:
    dice, before = random.Random(1), 1
    for _ in range(3000):
        steps, step_s = dice.randint(100, 4096), 10 ** dice.uniform(-5, -1)
        before = actors(steps, (step_s, 0.010), before=before, envs_per_actor=envs_per_actor)
        share_s = steps // envs_per_actor // before * envs_per_actor * step_s
        assert share_s >= 0.050 * (1 - 1e-9) or before == 1


def test_the_range_holds_before_and_after_anything_is_measured() -> None:
    narrow = ActorRange(min=8, max=16)
    assert actors(2048, within=narrow) == 8
    assert actors(2048, (0.001, 0.010), within=narrow) == 16
    assert actors(2048, (0.0001, 0.010), within=narrow) == 8


def test_a_job_without_samples_to_share_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"scaling\.policy .* needs samples_per_round"):
        JobSpec(scaling=AutoScaling(policy="auto"))


@pytest.mark.parametrize("algorithm", ["sac", "crossq", "impact", "impala", "ars", "es"])
def test_an_algorithm_whose_rounds_share_no_samples_is_told_to_use_fixed(algorithm: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        JobSpec(algorithm=algorithm, scaling=AutoScaling(policy="auto"))
    told = f"samples_per_round among the actors, which {algorithm} does not have: use fixed"
    assert told in str(refusal.value)
    # Only the learner of an algorithm with a replay has a fixed number of gradient steps per step.
    assert ("`nitro plan` prints" in str(refusal.value)) == (algorithm in ("sac", "crossq"))


def test_steps_of_environments_side_by_side_all_count(scaler: Scaler) -> None:
    lease = scaler.begin(
        samples_per_round=72,
        envs_per_actor=4,
        actors={"min": 1, "max": 16},
        scaling={"policy": "auto"},
        evaluation={"every_rounds": 0},
    )
    scaler.played(lease, 0)  # one actor reports 72 steps in 90 ms
    reason = scaler.round(lease, 1, previous=result(0)).reason
    assert "auto: 72 steps of 1.25 ms, a call takes 0 ms" in reason
    assert "9 actors" in reason  # two steps in each of four environments; 16 have but one
