"""How a pool's rounds and its job end: by a limit, by the user, by the program, by an error."""

import re
import sys
from typing import Any

import pytest
import torch

from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.local.system import LocalSystem
from nitro.pool.actor_pool import ActorPool
from nitro.pool.policy import PolicyNotSupportedError
from nitro.pool.stopping import PoolStopped
from shared.contracts.billing import JobCost
from shared.contracts.leases import FinishRequest
from tests.nitro.pool.pools import bill_of, cartpole_net, pool_at


def test_the_budget_ends_the_rounds(shared_system: LocalSystem, client: NitroClient) -> None:
    with pytest.raises(CommandError) as refused, pool_at(shared_system, budget_usd=1e-6):
        pass
    least = re.search(r"at least \$([0-9.]+) are needed", str(refused.value))
    assert least is not None
    budget_usd = float(least[1]) + 0.00005
    with pool_at(shared_system, budget_usd=budget_usd) as pool:
        made = [each.number for each in pool.rounds(1000) if pool.collect(cartpole_net())]
        assert pool.stopped == "budget"
        with pytest.raises(PoolStopped, match="budget"):
            pool.collect(cartpole_net())
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("stopped", "budget")
    assert 0 < len(made) < 1000
    assert 0 < job.spent_usd <= budget_usd


def test_a_target_ends_the_rounds_with_an_evaluation_of_the_final_policy(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    changes: dict[str, Any] = {"target_return": 1.0, "evaluate_every": 1, "evaluation_episodes": 2}
    with pool_at(shared_system, **changes) as pool:
        for _ in pool.rounds():
            pool.collect(cartpole_net())
        assert pool.stopped == "target_return"
        assert [each.policy_version for each in pool.evaluations] == [0, 1]
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("succeeded", "target_return")
    assert job.progress.last_return is not None


def test_a_user_ends_the_rounds_from_outside(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    with pool_at(shared_system) as pool:
        for made in pool.rounds():
            pool.collect(cartpole_net())
            if made.number == 1:
                client.stop(pool.job_id)
        assert pool.stopped == "user"
    assert client.get(pool.job_id).stop_reason == "user"


def test_a_stop_between_plan_and_launch_ends_the_block_quietly(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    reached = False
    with pool_at(shared_system) as pool:
        for made in pool.rounds():
            if made.number == 1:
                client.stop(pool.job_id)
            pool.collect(cartpole_net())
            reached = made.number == 1
    assert not reached
    assert pool.stopped == "user"


def test_leaving_the_loop_ends_the_job(shared_system: LocalSystem, client: NitroClient) -> None:
    with pool_at(shared_system) as pool:
        for _ in pool.rounds():
            pool.collect(cartpole_net())
            break
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("stopped", "user")


def test_the_loops_own_end_has_the_last_rounds_result_and_a_final_evaluation(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    with pool_at(shared_system, evaluate_every=5, evaluation_episodes=2) as pool:
        for _ in pool.rounds(2):
            pool.collect(cartpole_net())
            pool.report(stats={"loss": 0.25})
        before = [each.policy_version for each in pool.evaluations]
    assert pool.stopped is None
    assert [each.policy_version for each in pool.evaluations] == [*before, 2]
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("succeeded", "max_rounds")
    assert job.progress.last_return == pool.evaluations[-1].mean_return
    results = [record.result for record in client.rounds(job.job_id).rounds]
    assert [result.stats for result in results if result is not None] == 2 * [{"loss": 0.25}]


def test_a_final_policy_that_cannot_be_evaluated_is_the_jobs_error(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    net = cartpole_net()
    pool = pool_at(shared_system, evaluate_every=5)

    def program() -> None:
        with pool:
            pool.collect(net)
            with torch.no_grad():
                net.get_parameter("0.bias").fill_(float("nan"))

    with pytest.raises(PolicyNotSupportedError, match="finite"):
        program()
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("failed", "error")


@pytest.mark.parametrize(
    ("stats", "told"),
    [
        ({"losses/policy": 0.1}, "losses/policy"),
        ({"kl": float("nan")}, "kl"),
        ({"loss": torch.zeros(2)}, "loss: must be a number"),
    ],
)
def test_stats_that_a_round_cannot_have_are_refused_where_they_are_told(
    shared_system: LocalSystem, stats: dict[str, Any], told: str
) -> None:
    with pool_at(shared_system) as pool:
        pool.collect(cartpole_net())
        with pytest.raises(CommandError, match=told):
            pool.report(stats=stats)
        assert pool.collect(cartpole_net()).round == 1


def test_a_program_that_exits_well_has_not_failed(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    pool = pool_at(shared_system)

    def program() -> None:
        with pool:
            pool.collect(cartpole_net())
            sys.exit(0)

    with pytest.raises(SystemExit):
        program()
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("stopped", "user")


def test_an_exception_of_the_loops_own_is_the_jobs_error(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    pool = pool_at(shared_system)

    def loop() -> None:
        with pool:
            pool.collect(cartpole_net())
            raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError):
        loop()
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("failed", "error")
    assert job.error == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("reason", ["client_gone", "user"])
def test_a_job_that_is_not_held_any_more_ends_the_block_with_what_it_ended_by(
    shared_system: LocalSystem, client: NitroClient, reason: str
) -> None:
    def loop() -> None:
        with pool_at(shared_system, actors=2) as pool:
            pools.append(pool)
            pool.collect(cartpole_net())
            pool.collect(cartpole_net())
            held = pool._open._to
            held.scaler.give_up(held.lease.lease_id)
            if reason == "user":
                client.stop(pool.job_id)
            pool.collect(cartpole_net())
            raise AssertionError("there was another round")

    pools: list[ActorPool] = []
    loop()
    (pool,) = pools
    assert pool.stopped == reason
    assert pool.cost_usd > 0


def test_a_job_that_failed_under_its_pool_is_an_error(shared_system: LocalSystem) -> None:
    def loop() -> None:
        with pool_at(shared_system, actors=2) as pool:
            held = pool._open._to
            held.scaler.finish(
                pool.job_id,
                FinishRequest(
                    lease_id=held.lease.lease_id,
                    status="failed",
                    stop_reason="error",
                    error="reached its time limit",
                ),
            )
            pool.collect(cartpole_net())

    with pytest.raises(CommandError, match="failed: reached its time limit"):
        loop()


def test_what_was_heard_of_the_bill_is_kept_where_the_rest_cannot_be_had(
    shared_system: LocalSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> JobCost:
        raise CommandError("made up: the API is away")

    with pool_at(shared_system, actors=2) as pool:
        billed_usd = bill_of(pool.collect(cartpole_net()), pool)
        monkeypatch.setattr(NitroClient, "cost", away)
    assert pool.cost_usd >= billed_usd > 0


def test_the_end_of_one_pool_is_not_swallowed_by_another(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    reached = []
    with pool_at(shared_system, actors=2, max_rounds=1) as outer:
        outer.collect(cartpole_net())
        with pool_at(shared_system, actors=2) as inner:
            outer.collect(cartpole_net())
        reached.append("after the inner block")
    assert reached == []
    assert (outer.stopped, inner.stopped) == ("max_rounds", None)
    assert client.get(inner.job_id).stop_reason == "user"
