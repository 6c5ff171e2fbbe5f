"""A training loop's rounds, on a real system: what comes back, and what it costs."""

import itertools

import httpx
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from functions.actor.rollout import sample_fragment
from nitro.client.client import NitroClient
from nitro.errors import CommandError
from nitro.local.system import LocalSystem
from nitro.pool.actor_pool import ActorPool
from nitro.pool.batch import Batch
from nitro.pool.policy import PolicyNotSupportedError
from nitro.pool.policy_maps import policy_of
from services.learner.rounds.job_rounds import JobRounds
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask
from shared.contracts.rounds import Curvature, GradientNoise
from shared.environments.building import make_environment
from shared.trajectory.seeds import actor_seed
from tests.e2e.runs import wait_finished
from tests.nitro.pool.pools import Agent, bill_of, cartpole_net, pool_at
from tests.patience import ANSWER_S


def test_rounds_tell_what_is_launched_and_why_before_it_is(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    told, sizes = [], []
    with pool_at(shared_system) as pool:
        assert pool.environment.observation.shape == (4,)
        for made in pool.rounds(3):
            batch = pool.collect(cartpole_net())
            told.append((made.number, made.actors))
            sizes.append((batch.round, batch.num_columns))
            assert "random score" in made.reason
            assert batch.observations.shape == (32, made.actors, 4)
            assert batch.last_observations.shape == (made.actors, 4)
            assert batch.actions.shape == batch.log_probs.shape == (32, made.actors)
            assert batch.versions.tolist() == [made.number] * made.actors
            pool.report(stats={"loss": 0.5})
    assert told == sizes
    assert len({actors for _, actors in told}) > 1
    job = client.get(pool.job_id)
    assert (job.learner, job.status, job.stop_reason) == ("external", "succeeded", "max_rounds")
    page = client.rounds(job.job_id)
    assert [record.plan.num_actors for record in page.rounds] == [actors for _, actors in told]
    assert page.rounds[0].result is not None
    assert page.rounds[0].result.stats == {"loss": 0.5}
    assert pool.cost_usd == pytest.approx(job.spent_usd)
    assert job.spent_usd > 0
    assert "learner" not in client.cost(job.job_id).by_item


def test_a_round_has_its_bill_once_it_is_final(shared_system: LocalSystem) -> None:
    with pool_at(shared_system) as pool:
        made = next(pool.rounds(1))
        batch = pool.collect(cartpole_net())
        assert (made.cost_usd, batch.cost_usd) == (None, None)
        assert bill_of(batch, pool) > 0
        assert made.cost_usd == batch.cost_usd


def test_a_batch_is_bit_for_bit_what_its_actors_give(shared_system: LocalSystem) -> None:
    module = cartpole_net()
    with pool_at(shared_system, seed=11, horizon="fragment", actors=2) as pool:
        batch = pool.collect(module)
        where = pool.environment
    env = make_environment(EnvironmentRef(env_id="CartPole-v1"))
    for column in range(2):
        task = RolloutTask(
            mode="sample",
            job_id="again",
            round=0,
            attempt=0,
            actor_index=column,
            policy_version=0,
            env=EnvironmentRef(env_id="CartPole-v1"),
            steps=32,
            seed=actor_seed(11, mode="sample", round_index=0, actor_index=column),
        )
        expected = sample_fragment(task, [env], policy_of(module).numpy(where))
        np.testing.assert_array_equal(batch.observations[:, column], expected.observation[:-1, 0])
        np.testing.assert_array_equal(batch.last_observations[column], expected.observation[-1, 0])
        np.testing.assert_array_equal(batch.actions[:, column], expected.action[:, 0])
        np.testing.assert_array_equal(batch.log_probs[:, column], expected.log_prob[:, 0])
        np.testing.assert_array_equal(batch.rewards[:, column], expected.reward[:, 0])
    env.close()


def test_a_gaussian_agents_log_probabilities_are_torchs(shared_system: LocalSystem) -> None:
    agent = Agent(11, 3)
    with pool_at(shared_system, "Hopper-v5", policy_map="cleanrl", envs_per_actor=2) as pool:
        batch = pool.collect(agent, actors=3)
    tensors = batch.torch()
    assert tensors.actions.shape == (32, 6, 3)
    with torch.no_grad():
        normal = Normal(agent.actor_mean(tensors.observations), agent.actor_logstd.exp())
        densities = normal.log_prob(tensors.actions)  # type: ignore[no-untyped-call]
    log_probs = densities.sum(-1)
    torch.testing.assert_close(log_probs, tensors.log_probs, rtol=0, atol=1e-5)


def test_episodes_go_on_from_batch_to_batch(shared_system: LocalSystem) -> None:
    with pool_at(shared_system, "Pendulum-v1", actors=2) as pool:
        agent = Agent(3, 1)
        first = pool.collect(policy_of(agent, "cleanrl"))
        second = pool.collect(policy_of(agent, "cleanrl"))
    np.testing.assert_array_equal(second.observations[0], first.last_observations)


def test_batches_are_equal_on_the_programs_own_cores(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    batches: dict[int, list[Batch]] = {}
    for own in (0, 2):
        with pool_at(shared_system, actors=3, own=own) as pool:
            batches[own] = [pool.collect(cartpole_net()) for _ in range(2)]
        job_id = pool.job_id
    for here, there in zip(batches[2], batches[0], strict=True):
        for name in ("observations", "actions", "log_probs", "rewards", "last_observations"):
            np.testing.assert_array_equal(getattr(here, name), getattr(there, name))
    rounds = client.rounds(job_id).rounds
    assert [record.plan.own for record in rounds] == [3, 3]
    assert "lambda_requests" not in client.cost(job_id).by_item


def test_the_loop_may_say_how_many_actors(shared_system: LocalSystem) -> None:
    with pool_at(shared_system) as pool:
        sizes = [pool.collect(cartpole_net(), actors=n).num_columns for n in (4, 2, 3)]
        assert sizes == [4, 2, 3]
        with pytest.raises(CommandError, match=r"in the pool's range \[2, 4\], got 5"):
            pool.collect(cartpole_net(), actors=5)


def break_actors(system: LocalSystem, **faults: float) -> None:
    operator = {"Authorization": f"Bearer {system.lambda_token}"}
    url = f"{system.lambda_url}/emulator/faults"
    httpx.put(url, json=faults, headers=operator, timeout=ANSWER_S).raise_for_status()


def test_a_round_that_is_launched_again_has_the_bill_of_both_attempts(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    try:
        with pool_at(shared_system, actors=2) as pool:
            break_actors(shared_system, crash_next=4)  # both actors, and both once more
            again = pool.collect(cartpole_net())
            told = bill_of(again, pool)
            lines = list(client.every_line(pool.job_id))
            assert {line.attempt for line in lines if line.round == 0} == {0, 1}
            billed = sum(line.amount_usd for line in lines if line.round == 0)
            assert told == pytest.approx(billed)
    finally:
        break_actors(shared_system)


def test_a_round_that_was_cut_short_is_gone_on_with_and_billed_once(
    shared_system: LocalSystem, client: NitroClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cartpole_net(), cartpole_net(torch.nn.ReLU)
    with pool_at(shared_system, actors=2) as pool:
        before = pool.collect(first)
        with monkeypatch.context() as patch:
            patch.setattr(JobRounds, "open", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.collect(first)
        batch = pool.collect(second)
        assert (batch.round, batch.policy.activation) == (1, "tanh")
        assert pool.collect(second).policy.activation == "relu"
        told = bill_of(before, pool)
        billed = sum(line.amount_usd for line in client.every_line(pool.job_id) if line.round == 0)
    assert told == pytest.approx(billed)


def interrupted(*_: object) -> None:
    """Stand for Ctrl-C once a round was asked for."""
    raise KeyboardInterrupt


def test_killed_actors_are_started_again_or_missed(shared_system: LocalSystem) -> None:
    try:
        with pool_at(shared_system, actors=4) as pool:
            whole = pool.collect(cartpole_net())
            assert whole.num_columns == 4
            break_actors(shared_system, crash_next=1)
            assert pool.collect(cartpole_net()).num_columns == 4
            break_actors(shared_system, crash_next=5)
            some = pool.collect(cartpole_net())
            assert 2 <= some.num_columns <= 4
            assert some.num_launched == 4
    finally:
        break_actors(shared_system)


def test_what_is_reported_decides_about_the_next_round(shared_system: LocalSystem) -> None:
    flat = Curvature(
        lambda_max=1.0, lambda_min=-1.0, residual=0.0, matvecs=1, num_samples=1, elapsed_s=0.0
    )
    noises = [GradientNoise(squared_norm=1.0, variance=v) for v in (9.0, 900.0)]
    with pool_at(shared_system, policy="nitro") as pool:
        made = pool.rounds(2)
        next(made)
        pool.collect(cartpole_net())
        pool.report(curvature=flat)
        assert next(made).boosting_score is not None
    with pool_at(shared_system, policy={"policy": "kungfu", "every_rounds": 1}) as pool:
        made = pool.rounds(3)
        assert next(made).actors == 2
        for noise in noises:
            pool.collect(cartpole_net())
            pool.report(gradient_noise=noise)
            following = next(made)
        assert following.actors > 2, following.reason


def test_a_policy_that_actors_cannot_run_is_refused_and_nothing_is_launched(
    shared_system: LocalSystem, client: NitroClient
) -> None:
    wrong = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.GRU(2, 2))
    with pool_at(shared_system) as pool:
        with pytest.raises(PolicyNotSupportedError, match="1 is GRU: actors would act without"):
            pool.collect(wrong)
        with pytest.raises(PolicyNotSupportedError, match="shape"):
            pool.collect(torch.nn.Sequential(torch.nn.Linear(5, 2)))
        assert client.rounds(pool.job_id).rounds == ()
        assert pool.collect(cartpole_net()).round == 0


def test_an_environment_that_fails_ends_the_round_with_its_own_words(
    shared_system: LocalSystem,
) -> None:
    with pytest.raises(CommandError, match="Nowhere-v0"), pool_at(shared_system, "Nowhere-v0"):
        pass


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"fragment": 0}, "fragment: must be a whole number from 1, got 0"),
        ({"actors": (8, 2)}, r"min \(8\) must not exceed max \(2\)"),
        ({"actors": "8:64"}, "actors: must be a whole number from 1, or two"),
        ({"policy": "none"}, "scaling"),
        ({"policy_map": "keras"}, "policy_map: must be"),
        ({"budget_usd": -1.0}, "stop.budget_usd"),
        ({"horizon": "never"}, "episodes.horizon: must be limit, fragment"),
        ({"learner_id": 1}, "learner_id"),
        ({"rounds_in_flight": 2, "policy": "marginal"}, "marginal"),
        ({"actors": 8, "policy": "kungfuu"}, "kungfu"),
        ({"actors": (2, 8), "policy": "auto"}, "policy: auto shares a round's samples"),
        ({"samples_per_round": 4096}, "samples_per_round: a pool does not take it; use fragment"),
        ({"stop": {"budget_usd": 0.1}}, "stop: a pool does not take it; use budget_usd"),
        ({"learner": "gpu"}, "learner: leave it out"),
    ],
)
def test_wrong_arguments_are_named_before_anything_starts(
    changes: dict[str, object], told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        ActorPool("CartPole-v1", **{"fragment": 32, **changes})  # type: ignore[arg-type]


def test_a_pool_works_in_its_block_alone(shared_system: LocalSystem) -> None:
    pool = pool_at(shared_system)
    with pytest.raises(CommandError, match="not open"):
        pool.collect(cartpole_net())
    with pytest.raises(CommandError, match="not open"):
        next(pool.rounds())
    with pool:
        pass
    with pytest.raises(CommandError, match="open before"), pool:
        pass


def test_several_pools_share_a_system(shared_system: LocalSystem, client: NitroClient) -> None:
    with pool_at(shared_system) as one, pool_at(shared_system, seed=8) as other:
        for mine, theirs in itertools.islice(zip(one.rounds(), other.rounds(), strict=False), 2):
            assert mine.number == theirs.number
            batches = [pool.collect(cartpole_net()) for pool in (one, other)]
            assert not np.array_equal(batches[0].observations[0], batches[1].observations[0])
        jobs = (one.job_id, other.job_id)
    assert all(wait_finished(client, job_id).stop_reason == "user" for job_id in jobs)


class Residual(nn.Module):
    """A policy of CartPole that NumPy does not run."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.GELU())
        self.head = nn.Linear(20, 2)

    def forward(self, observation: Tensor) -> Tensor:
        found: Tensor = self.head(torch.cat([observation, self.body(observation)], 1))
        return found


def test_a_network_of_ones_own_chooses_the_actions(shared_system: LocalSystem) -> None:
    module = Residual()
    with pool_at(shared_system, actors=2) as pool:
        for _ in range(2):
            batch = pool.collect(module).torch()
            with torch.no_grad():
                logits = module(batch.observations.flatten(0, 1))
                expected = logits.log_softmax(1).gather(1, batch.actions.reshape(-1, 1))
                torch.testing.assert_close(
                    batch.log_probs.reshape(-1, 1), expected, rtol=0, atol=1e-5
                )
                module.head.weight.mul_(-2)
