"""Fragments one by one while several rounds are open, each with the version that made it."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.local.system import LocalSystem
from nitro.pool.policy_maps import policy_of
from nitro.pool.stopping import PoolStopped
from tests.nitro.pool.pools import cartpole_net, pool_at


def test_every_fragment_comes_once_with_the_version_that_chose_its_actions(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    module = cartpole_net()
    seen = set()
    with pool_at(shared_system, rounds_in_flight=3) as pool:
        for batch in pool.stream(module, rounds=5):
            (version,), (actor,) = set(batch.versions), set(batch.actors)
            assert (version, actor) not in seen
            seen.add((int(version), int(actor)))
            assert batch.round == version <= pool.policy_version
            policy = batch.policy.numpy(pool.environment)
            again = policy.log_prob(batch.observations, batch.actions)
            np.testing.assert_allclose(again, batch.log_probs, rtol=0, atol=1e-5)
            with torch.no_grad():
                module.get_parameter("2.bias").add_(0.05)  # what is learned shows in later versions
        assert pool.policy_version == 4
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("succeeded", "max_rounds")
    plans = [record.plan for record in client.rounds(job.job_id).rounds]
    assert seen == {(plan.round, i) for plan in plans for i in range(plan.num_actors)}


def test_rounds_are_rolled_out_while_others_are_learned_from(shared_system: LocalSystem) -> None:
    with pool_at(shared_system, rounds_in_flight=2) as pool:
        first = next(iter(pool.stream(cartpole_net())))
        assert first.versions.tolist() == [0]
        assert pool.policy_version == 1


def test_a_function_gives_the_newest_policy(shared_system: LocalSystem) -> None:
    made = itertools.count()

    def newest() -> object:
        next(made)
        return policy_of(cartpole_net())

    with pool_at(shared_system, rounds_in_flight=2) as pool:
        list(pool.stream(newest, rounds=3))
    assert next(made) == 3


def test_the_job_ends_a_stream_and_evaluates_the_final_policy(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    changes: dict[str, Any] = {"max_rounds": 3, "evaluate_every": 1, "evaluation_episodes": 2}
    with pool_at(shared_system, rounds_in_flight=2, **changes) as pool:
        rounds = {batch.round for batch in pool.stream(cartpole_net())}
        assert rounds == {0, 1, 2}
        assert pool.stopped == "max_rounds"
        with pytest.raises(PoolStopped):
            next(iter(pool.stream(cartpole_net())))
    job = client.get(pool.job_id)
    assert (job.status, job.stop_reason) == ("succeeded", "max_rounds")
    assert job.progress.last_return is not None


def test_a_user_ends_a_stream(shared_system: LocalSystem, client: NitroClient) -> None:
    with pool_at(shared_system, rounds_in_flight=2) as pool:
        for batch in pool.stream(cartpole_net()):
            if batch.round == 1:
                client.stop(pool.job_id)
        assert pool.stopped == "user"
    assert client.get(pool.job_id).stop_reason == "user"


def test_rounds_of_their_own_are_for_pools_without_overlap(shared_system: LocalSystem) -> None:
    with (
        pool_at(shared_system, rounds_in_flight=2) as pool,
        pytest.raises(CommandError, match="use stream"),
    ):
        pool.collect(cartpole_net())


def test_a_pool_streams_once_or_collects(shared_system: LocalSystem) -> None:
    with pool_at(shared_system) as pool:
        assert {batch.round for batch in pool.stream(cartpole_net(), rounds=2)} == {0, 1}
        with pytest.raises(CommandError, match="made rounds before"):
            next(iter(pool.stream(cartpole_net(), rounds=2)))
        with pytest.raises(CommandError, match="are streamed"):
            pool.collect(cartpole_net())
    with pool_at(shared_system) as pool:
        pool.collect(cartpole_net())
        with pytest.raises(CommandError, match="made rounds before"):
            next(iter(pool.stream(cartpole_net())))
