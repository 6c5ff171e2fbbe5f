"""What policies see of earlier rounds through a running scaler, over interruptions too."""

import pytest

from experiments.minionsrl.real_runs import scheduler_states
from services.scaler.rounds.history import past_of
from services.scaler.scaling.base import NoiseMemory
from services.scaler.scaling.minionsrl import MinionsPolicy
from shared.contracts.minions_agent import choice_probabilities, drawn_count
from shared.contracts.rounds import EvaluationResult, GradientNoise, RoundPlan
from shared.contracts.scaling_spec import MinionsScaling
from shared.trajectory.seeds import round_uniform
from tests.services.scaler.rounds.test_order import planned
from tests.services.scaler.running import Scaler, result
from tests.services.scaler.scaling.seen import biased_agent

QUIET = {"evaluation": {"every_rounds": 0}}


def noise(scale: float) -> dict[str, float]:
    return {"squared_norm": 1.0, "variance": scale}


def test_kungfu_remembers_over_reopened_rounds_and_resumed_jobs(scaler: Scaler) -> None:
    scaling = {"policy": "kungfu", "smoothing": 0.0}
    lease = scaler.begin(**QUIET, actors={"min": 2, "max": 16}, scaling=scaling)
    counts = [scaler.round(lease, 0, gradient_noise=noise(5.0)).num_actors]
    scaler.landed(lease.job.job_id)
    scaler.played(lease, 0, attempt=1, gradient_noise=noise(500.0))
    counts.append(
        scaler.played(lease, 1, previous=result(0), gradient_noise=noise(10.0)).num_actors
    )
    scaler.finish(lease, status="failed", stop_reason="error", error="lost")
    resumed = scaler.resumed(lease.job.job_id)
    again = scaler.played(resumed, 1, previous=result(0), gradient_noise=noise(10.0))
    counts.append(again.num_actors)
    for index, scale in ((2, 20.0), (3, 1.0)):
        request = {"previous": result(index - 1), "gradient_noise": noise(scale)}
        counts.append(scaler.played(resumed, index, **request).num_actors)
    assert counts == [2, 4, 4, 8, 8]
    stored = scaler.parts.book.round(lease.job.job_id, 3)
    assert stored is not None
    assert stored.memory == NoiseMemory(
        squared_norm=1.0, variance=1.0, first_scale=5.0, num_actors=8
    )


def test_reward_window_sees_returns_up_to_the_round_just_ended(scaler: Scaler) -> None:
    scaling = {"policy": "reward_window", "step": 4, "flat": 0.1}
    lease = scaler.begin(**QUIET, actors={"min": 2, "max": 16}, scaling=scaling)
    counts = []
    for index, value in enumerate((None, 100.0, 100.0, 200.0, 200.0)):
        previous = None
        if value is not None:
            previous = result(index - 1, episode_returns=(value, value))
        counts.append(scaler.played(lease, index, previous=previous).num_actors)
    # Nothing known; one return; flat; rising; rising over the window of three.
    assert counts == [16, 16, 12, 16, 16]


def test_reward_window_moves_although_the_newest_rounds_are_open(scaler: Scaler) -> None:
    scaling = {"policy": "reward_window", "window": 2, "step": 4, "flat": 0.1}
    overlap = {"algorithm": "impala", "rounds_in_flight": 3}
    lease = scaler.begin(**QUIET, **overlap, actors={"min": 2, "max": 16}, scaling=scaling)
    counts = []
    for index, value in enumerate((None, None, None, 100.0, 100.0, 200.0, 200.0)):
        previous = None
        if value is not None:
            previous = result(index - 3, episode_returns=(value, value))
        counts.append(scaler.played(lease, index, previous=previous).num_actors)
    # Nothing known, thrice; one return; flat; rising; flat, whatever came before the window.
    assert counts == [16, 16, 16, 16, 12, 16, 12]


@pytest.mark.parametrize(
    ("algorithm", "returns"),
    [
        ({"algorithm": "ppo"}, [0.0, 9.0, 9.0, 27.0, 27.0, 45.0]),
        ({"algorithm": "impact", "rounds_in_flight": 3}, [0.0, 0.0, 0.0, 27.0, 27.0, 45.0]),
    ],
    ids=["in turn", "overlapping"],
)
def test_the_agents_states_and_draws_can_be_read_back_from_the_rounds(
    scaler: Scaler, algorithm: dict[str, object], returns: list[float]
) -> None:
    agent = biased_agent(*(0.1 * n for n in range(6)))
    # Weights that make every number of the state count.
    layer = agent.layers[0].model_copy(
        update={"weights": tuple((0.01 * n,) * 8 for n in range(-3, 3))}
    )
    agent = agent.model_copy(update={"layers": (layer,)})
    scaling = {"policy": "minionsrl", "agent": agent.model_dump()}
    lease = scaler.begin(actors={"min": 2, "max": 4}, scaling=scaling, seed=3, **algorithm)
    for index in range(6):
        evaluation = EvaluationResult(policy_version=index, returns=(9.0 * index,), lengths=(1,))
        previous = None
        if index >= lease.job.spec.open_rounds:
            previous = result(
                index - lease.job.spec.open_rounds,
                stats={"loss": 0.5 * index, "kl": 0.01},
                evaluation=evaluation if index % 2 else None,
            )
        scaler.played(lease, index, previous=previous)
    records = scaler.rounds(lease.job.job_id).rounds
    states = scheduler_states(lease.job.spec, records)
    drawn = [
        drawn_count(
            choice_probabilities(agent, state),
            round_uniform(3, purpose="minionsrl", round_index=index),
        )
        for index, state in enumerate(states)
    ]
    assert [min(4, max(2, n)) for n in drawn] == [r.plan.requested for r in records]
    assert [state.mean_return for state in states] == returns
    assert states[-1].remaining_usd < lease.job.spec.stop.budget_usd
    assert MinionsPolicy(MinionsScaling(policy="minionsrl", agent=agent)).num_rounds == 1


def test_a_round_without_result_is_known_by_its_plan_alone() -> None:
    plan: RoundPlan = planned(4, 0).plan
    past = past_of(plan, None)
    assert (past.round_index, past.requested, past.num_actors, past.loss) == (4, 4, 4, None)
    full = past_of(plan, result(4, episode_returns=(1.0, 3.0), stats={"loss": 2.0, "kl": 0.1}))
    assert (full.training_return, full.loss, full.kl) == (2.0, 2.0, 0.1)
    assert (full.learner_s, full.actor_s) == (0.5, 0.2)


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
    entry = scaler.parts.book.last_round(lease.job.job_id)
    assert entry is not None
    assert entry.memory is not None
    expected = {"kungfu": (5.0, None), "marginal": (None, None)}[policy]
    assert (entry.memory.first_scale, entry.memory.last_scale) == expected
