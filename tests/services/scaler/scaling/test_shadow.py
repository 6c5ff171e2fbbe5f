"""What other policies would have asked for, beside what is asked for."""

import pytest

from services.scaler.scaling.shadow import shadow_policies
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import GradientNoise, RoundPlan
from shared.contracts.scaling_spec import ActorRange, FixedScaling
from tests.services.scaler.running import Scaler, curvature, result

FREE = {"nitro", "random", "kungfu", "hydrozoa"}


def test_those_are_asked_that_can_decide_with_defaults_and_have_a_choice() -> None:
    assert shadow_policies(JobSpec(), but="nitro").keys() == FREE - {"nitro"}
    for spec in (JobSpec(samples_per_round=2048), JobSpec(algorithm="impala")):
        assert shadow_policies(spec, but="marginal").keys() == FREE
    single = JobSpec(
        actors=ActorRange(min=3, max=3), scaling=FixedScaling(policy="fixed", num_actors=3)
    )
    assert shadow_policies(single, but="fixed") == {}


def played(scaler: Scaler, policy: str) -> list[RoundPlan]:
    lease = scaler.begin(
        evaluation={"every_rounds": 0},
        actors={"min": 2, "max": 16},
        scaling={"policy": policy, **({"num_actors": 3} if policy == "fixed" else {})},
        seed=4,
    )
    plans = []
    for index in range(5):
        noise = GradientNoise(squared_norm=1.0, variance=5.0 * 2**index)
        request = {
            "curvature": curvature(2.0 + index % 3, -1.0).model_copy(
                update={"gradient_noise": noise, "fragment_noise": noise}
            ),
            "gradient_noise": noise,
            "previous": result(index - 1, episode_returns=(9.0,)) if index else None,
        }
        plans.append(scaler.played(lease, index, **request))
    return plans


def test_the_column_has_the_numbers_that_the_policies_decide_when_in_force(
    scaler: Scaler,
) -> None:
    beside = played(scaler, "fixed")
    assert [plan.num_actors for plan in beside] == [3] * 5
    assert all(plan.shadow.keys() == FREE for plan in beside)
    for policy in ("nitro", "random", "kungfu", "hydrozoa"):
        plans = played(scaler, policy)
        assert [plan.requested for plan in plans] == [plan.shadow[policy] for plan in beside]
        assert policy not in plans[0].shadow
    assert len({plan.shadow["kungfu"] for plan in beside}) > 1
    # The noise of fragments is measured for the one policy that looks at it.
    assert not any(plan.fragment_noise for plan in beside)
    assert all(plan.fragment_noise for plan in played(scaler, "marginal"))


def test_it_is_stored_with_the_round_and_kept_when_that_is_launched_again(scaler: Scaler) -> None:
    first = played(scaler, "fixed")
    stored = scaler.rounds(first[0].job_id).rounds
    assert [record.plan.shadow for record in stored] == [plan.shadow for plan in first]
    entry = scaler.parts.store.last_round(first[0].job_id)
    assert entry is not None
    assert entry.shadow_memories.keys() == {"kungfu"}


@pytest.mark.parametrize("policy", ["marginal", "kungfu"])
def test_a_policy_that_takes_over_does_not_go_by_anothers_memory(
    scaler: Scaler, policy: str
) -> None:
    other = {"marginal": "kungfu", "kungfu": "marginal"}[policy]
    lease = scaler.begin(actors={"min": 2, "max": 16}, scaling={"policy": other})
    noise = GradientNoise(squared_norm=1.0, variance=5.0)
    for index in range(2):
        previous = result(index - 1) if index else None
        scaler.played(lease, index, gradient_noise=noise, previous=previous)
    body = {"scaling": {"policy": policy}}
    assert scaler.http.post(f"/v1/jobs/{lease.job.job_id}/scaling", json=body).is_success
    scaler.played(lease, 2, gradient_noise=noise, previous=result(1))
    entry = scaler.parts.store.last_round(lease.job.job_id)
    assert entry is not None
    assert entry.memory is not None
    expected = {"kungfu": (5.0, None), "marginal": (None, None)}[policy]
    assert (entry.memory.first_scale, entry.memory.last_scale) == expected
