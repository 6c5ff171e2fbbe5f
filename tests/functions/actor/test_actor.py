"""The actor against a real cache: what it stores, what it keeps warm, when it refuses."""

import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import nn

from functions.actor import actor as actor_module
from functions.actor import warm, watchdog
from functions.actor.actor import Actor, PolicyUnavailableError
from functions.actor.errors import RolloutError
from functions.actor.watchdog import CONSTRUCTION, STEP, Watchdog
from nitro.pool.policy_maps import policy_of
from shared.cache.arrivals import Arrival
from shared.cache.client import TrajectoryCache
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import MAX_POLICY_BYTES, RolloutTask
from shared.environments.building import Env, make_environment
from shared.environments.describing import describe
from shared.trajectory import codec
from shared.trajectory.trajectory import decode_episode, decode_trajectory
from tests.functions.actor.conftest import ScriptedEnv

Arrays = dict[str, NDArray[np.generic]]
MakePolicy = Callable[[int, int], tuple[Arrays, dict[str, str]]]
MakeTask = Callable[..., RolloutTask]


@pytest.fixture
def cache(cache_url: str) -> Iterator[TrajectoryCache]:
    with TrajectoryCache(cache_url) as client:
        yield client


@pytest.fixture
def actor(cache: TrajectoryCache) -> Iterator[Actor]:
    actor = Actor(cache)
    yield actor
    actor.close()


class FakeClock:
    """Stands in for the module `time`."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    monotonic = perf_counter


@pytest.fixture
def job(cache: TrajectoryCache, discrete_policy: MakePolicy) -> str:
    """A job whose policy version 2 plays the scripted environment."""
    job_id = f"job-{uuid.uuid4().hex}"
    cache.publish_policy(job_id, 2, codec.encode(*discrete_policy(2, 2)))
    return job_id


def test_a_sampled_fragment_is_stored_and_reported(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask
) -> None:
    task = make_task(job_id=job, env_kwargs={"script": "..t"}, steps=8)
    report = actor.run(task, cold_start=True)
    (payload,) = cache.load_results(job, 3, mode="sample", actor_indices=[5])
    assert payload is not None
    trajectory = decode_trajectory(payload, environment=describe(task.env))
    identity = trajectory.job_id, trajectory.round, trajectory.actor_index
    assert identity == (report.job_id, report.round, report.actor_index) == (job, 3, 5)
    assert trajectory.policy_version == 2
    assert (report.mode, report.outcome, report.steps) == ("sample", "stored", 8)
    assert report.episode_returns == tuple(trajectory.episode_returns) == (6, 15)
    assert report.episode_lengths == (3, 3)
    assert report.payload_bytes == len(payload)
    assert report.cold_start
    assert 0 < report.rollout_s < report.total_s
    assert cache.wait_arrivals(job, 3, timeout_s=1) == [Arrival("sample", 5, None)]


def test_dropped_episodes_are_reported(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask
) -> None:
    task = make_task(job_id=job, env_kwargs={"script": "..r...t.o.....t........."}, steps=8)
    report = actor.run(task, cold_start=False)
    (payload,) = cache.load_results(job, 3, mode="sample", actor_indices=[5])
    assert payload is not None
    trajectory = decode_trajectory(payload, environment=describe(task.env))
    assert report.dropped_episodes == trajectory.dropped_episodes == 2
    evaluation = actor.run(task.model_copy(update={"mode": "evaluate"}), cold_start=False)
    (payload,) = cache.load_results(job, 3, mode="evaluate", actor_indices=[5])
    assert payload is not None
    assert evaluation.dropped_episodes == decode_episode(payload).dropped_episodes == 1


def test_an_evaluation_reports_rewards_as_no_wrapper_has_changed_them(
    actor: Actor, job: str, make_task: MakeTask
) -> None:
    clip = {"name": "ClipReward", "kwargs": {"min_reward": -1, "max_reward": 1}}
    env = {"env_id": "Scripted-v0", "env_kwargs": {"script": "...t"}, "wrappers": [clip]}
    task = make_task(job_id=job, env=env, steps=8)
    for mode, expected in (("sample", (4, 4)), ("evaluate", (10,)), ("sample", (4, 4))):
        report = actor.run(task.model_copy(update={"mode": mode}), cold_start=False)
        assert report.episode_returns == expected


def test_an_evaluation_is_stored_beside_the_samples(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask
) -> None:
    script = {"script": "...t"}
    actor.run(make_task(job_id=job, env_kwargs=script), cold_start=True)
    task = make_task(job_id=job, env_kwargs=script, mode="evaluate", num_envs=4)
    report = actor.run(task, cold_start=False)
    (payload,) = cache.load_results(job, 3, mode="evaluate", actor_indices=[5])
    assert payload is not None
    episode = decode_episode(payload)
    assert (episode.episode_return, episode.length, episode.policy_version) == (10, 4, 2)
    assert (report.steps, report.episode_returns, report.episode_lengths) == (4, (10,), (4,))
    assert not report.cold_start


def test_a_repeated_task_is_a_duplicate_and_a_late_one_is_late(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask
) -> None:
    task = make_task(job_id=job)
    outcomes = [actor.run(task, cold_start=False).outcome for _ in range(2)]
    cache.close_round(job, 3)
    for late in (task, make_task(job_id=job, actor_index=task.actor_index + 1)):
        outcomes.append(actor.run(late, cold_start=False).outcome)
    assert outcomes == ["stored", "duplicate", "duplicate", "late"]


def test_the_payload_does_not_depend_on_what_the_process_did_before(
    cache: TrajectoryCache, job: str, make_task: MakeTask, continuous_policy: MakePolicy
) -> None:
    cache.publish_policy(job, 7, codec.encode(*continuous_policy(11, 3)))
    payloads: list[bytes | None] = []
    for index, before in enumerate((0, 2)):
        actor = Actor(cache)
        for other in range(before):
            actor.run(
                make_task("Hopper-v5", job_id=job, policy_version=7, seed=other, round=100),
                cold_start=False,
            )
        task = make_task("Hopper-v5", job_id=job, policy_version=7, steps=200, round=index)
        actor.run(task.model_copy(update={"round": 3}), cold_start=False)
        payloads += cache.load_results(job, 3, mode="sample", actor_indices=[5])
        cache.forget_job(job, rounds=[3], policy_versions=[])
        actor.close()
    assert payloads[0] is not None
    assert payloads[0] == payloads[1]


def test_weights_are_fetched_only_when_job_or_version_change(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask, discrete_policy: MakePolicy
) -> None:
    actor.run(make_task(job_id=job), cold_start=True)
    cache.delete_policy(job, 2)
    assert actor.run(make_task(job_id=job, round=4), cold_start=False).outcome == "stored"
    for other in ({"policy_version": 3}, {"job_id": f"{job}-b"}):
        with pytest.raises(PolicyUnavailableError, match="is not in the cache"):
            actor.run(make_task(**({"job_id": job} | other)), cold_start=False)
    cache.publish_policy(job, 3, codec.encode(*discrete_policy(2, 2)))
    assert actor.run(make_task(job_id=job, policy_version=3, round=5), cold_start=False).steps == 8


def test_a_version_that_another_learner_published_is_fetched_again(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask, discrete_policy: MakePolicy
) -> None:
    def log_prob(round_index: int, lease_hash: str) -> NDArray[np.float32]:
        task = make_task(job_id=job, round=round_index, lease_hash=lease_hash)
        assert actor.run(task, cold_start=False).outcome == "stored"
        (payload,) = cache.load_results(job, round_index, mode="sample", actor_indices=[5])
        assert payload is not None
        return decode_trajectory(payload, environment=describe(task.env)).log_prob

    before = log_prob(3, "first")
    arrays, metadata = discrete_policy(2, 2)
    flattened = {name: np.zeros_like(array) for name, array in arrays.items()}
    cache.publish_policy(job, 2, codec.encode(flattened, metadata))
    np.testing.assert_array_equal(log_prob(4, "first"), before)  # it is not looked at again
    again = log_prob(5, "second")
    np.testing.assert_allclose(again, np.full_like(again, np.log(0.5)), rtol=1e-6)
    assert not np.allclose(before, again)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Env]:
    """Every environment that was built, in order."""
    environments: list[Env] = []

    def build(ref: EnvironmentRef, *, raw_rewards: bool, rebuild: bool) -> Env:
        env = make_environment(ref, raw_rewards=raw_rewards, rebuild=rebuild)
        environments.append(env)
        return environments[-1]

    monkeypatch.setattr(warm, "make_environment", build)
    return environments


def test_environments_are_kept_until_another_kind_is_asked_for(
    actor: Actor, job: str, make_task: MakeTask, built: list[Env]
) -> None:
    for fields in ({}, {}, {"num_envs": 2}, {}, {"mode": "evaluate"}):
        task = make_task(job_id=job, env_kwargs={"script": "..t"}, **fields)
        actor.run(task, cold_start=False)
    assert len(built) == 2
    actor.run(make_task(job_id=job, env_kwargs={"script": "...t"}), cold_start=False)
    assert len(built) == 3


def test_an_evaluation_needs_one_environment_however_many_sample(
    actor: Actor, job: str, make_task: MakeTask, built: list[Env]
) -> None:
    task = make_task(job_id=job, env_kwargs={"script": "..t"}, mode="evaluate", num_envs=4)
    assert actor.run(task, cold_start=False).outcome == "stored"
    assert len(built) == 1


def test_kinds_that_only_python_takes_for_the_same_are_built_anew(
    actor: Actor, job: str, make_task: MakeTask, built: list[Env]
) -> None:
    for first_action in (1, True, 1.0):
        task = make_task(job_id=job, env_kwargs={"first_action": first_action})
        actor.run(task, cold_start=False)
    assert len(built) == 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time that actor and watchdog see: it passes only where a test says so."""
    fake = FakeClock()
    monkeypatch.setattr(actor_module, "time", fake)
    monkeypatch.setattr(watchdog, "time", fake)
    return fake


def test_what_is_waited_for_before_a_rollout_is_no_part_of_its_time(
    actor: Actor,
    job: str,
    make_task: MakeTask,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(ScriptedEnv):
        def __init__(self, script: str = ".") -> None:
            super().__init__(script)
            clock.now += 20

        def step(self, action: np.int64) -> Any:
            clock.now += 2
            return super().step(action)

    monkeypatch.setattr("tests.functions.actor.conftest.ScriptedEnv", Slow)
    report = actor.run(make_task(job_id=job, steps=8), cold_start=True)
    assert (report.rollout_s, report.total_s) == (8 * 2, 20 + 8 * 2)


def test_every_environment_that_is_built_is_progress(
    cache: TrajectoryCache,
    job: str,
    make_task: MakeTask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []

    class Looking(Watchdog):
        @contextmanager
        def watching(
            self, env_id: str, progress: Callable[[], object], *, awaited: str = STEP
        ) -> Iterator[None]:
            if awaited == CONSTRUCTION:
                looks.append(progress)
            yield

    class Slow(ScriptedEnv):
        def __init__(self) -> None:
            super().__init__()
            seen.append(looks[0]())

    looks: list[Callable[[], object]] = []
    monkeypatch.setattr("tests.functions.actor.conftest.ScriptedEnv", Slow)
    actor = Actor(cache, watchdog=Looking(timeout_s=1000, give_up=lambda _: None))
    task = make_task(job_id=job, steps=9, num_envs=3)
    assert actor.run(task, cold_start=False).outcome == "stored"
    assert seen == [0, 1, 2]
    actor.close()


def test_environments_are_built_anew_after_a_failure(
    actor: Actor, job: str, make_task: MakeTask, built: list[Env]
) -> None:
    task = make_task(job_id=job, env_kwargs={"script": "..!"})
    for _ in range(2):
        with pytest.raises(RolloutError, match="failed at step 3"):
            actor.run(task, cold_start=False)
    assert len(built) == 2


def test_environments_are_built_anew_after_an_interrupt(
    actor: Actor,
    job: str,
    make_task: MakeTask,
    built: list[Env],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = ScriptedEnv.step
    interrupts = [KeyboardInterrupt()]

    def interrupted(self: ScriptedEnv, action: np.int64) -> Any:
        if interrupts:
            raise interrupts.pop()
        return step(self, action)

    monkeypatch.setattr(ScriptedEnv, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        actor.run(make_task(job_id=job), cold_start=False)
    assert actor.run(make_task(job_id=job), cold_start=False).outcome == "stored"
    assert len(built) == 2


def test_a_cancelled_tenure_gets_no_rollout_and_a_later_one_does(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask
) -> None:
    cache.request_cancel(job, ["first"])
    report = actor.run(make_task(job_id=job, lease_hash="first"), cold_start=True)
    assert (report.outcome, report.steps, report.payload_bytes) == ("cancelled", 0, 0)
    assert report.cold_start
    assert report.rollout_s == 0.0 < report.total_s
    assert cache.answered(job, 3) == []
    again = make_task(job_id=job, lease_hash="second")
    assert actor.run(again, cold_start=False).outcome == "stored"


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"damaged", "policy version 2 of job .* cannot be used: not a zstd frame"),
        (codec.encode({}, {"format": "x"}), "cannot be used: format is 'x'"),
    ],
)
def test_a_damaged_policy_is_refused(
    payload: bytes,
    message: str,
    actor: Actor,
    cache: TrajectoryCache,
    job: str,
    make_task: MakeTask,
) -> None:
    cache.publish_policy(job, 2, payload)
    with pytest.raises(PolicyUnavailableError, match=message):
        actor.run(make_task(job_id=job), cold_start=False)
    assert cache.answered(job, 3) == []


def test_a_policy_that_unpacks_to_too_much_is_refused(
    actor: Actor, cache: TrajectoryCache, job: str, make_task: MakeTask
) -> None:
    zeros = np.zeros(MAX_POLICY_BYTES // 4, np.float32)
    cache.publish_policy(job, 2, codec.encode({"policy.0.bias": zeros}, {}))
    with pytest.raises(PolicyUnavailableError, match=f"at most {MAX_POLICY_BYTES} allowed"):
        actor.run(make_task(job_id=job), cold_start=False)


@pytest.fixture
def graph_job(cache: TrajectoryCache, job: str) -> str:
    """The same job with a network that NumPy does not run, as an ONNX graph."""
    module = nn.Sequential(nn.Linear(2, 4), nn.GELU(), nn.Linear(4, 2))
    environment = describe(EnvironmentRef(env_id="Scripted-v0"))
    policy = policy_of(module, environment=environment)
    cache.publish_policy(job, 2, policy.encoded(environment))
    return job


def test_a_network_of_ones_own_is_rolled_out_again_to_the_same_bytes(
    cache: TrajectoryCache, graph_job: str, make_task: MakeTask
) -> None:
    payloads = []
    for index in range(2):
        actor = Actor(cache)
        task = make_task(job_id=graph_job, steps=6, num_envs=3, round=3 + index, seed=7)
        actor.run(task, cold_start=False)
        actor.close()
        (payload,) = cache.load_results(graph_job, task.round, mode="sample", actor_indices=[5])
        assert payload is not None
        payloads.append(decode_trajectory(payload, environment=describe(task.env)))
    for name in ("observation", "action", "log_prob"):
        first, again = (each.arrays[name] for each in payloads)
        np.testing.assert_array_equal(first, again)


def test_an_actor_without_onnxruntime_says_what_to_install(
    actor: Actor, graph_job: str, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(PolicyUnavailableError, match=r"onnxruntime is not installed.*pip install"):
        actor.run(make_task(job_id=graph_job), cold_start=False)


class _Stubborn(ScriptedEnv):
    """Breaks, or hangs, where it is closed."""

    closed = 0

    def close(self) -> None:
        type(self).closed += 1
        if self.script.endswith("h"):
            threading.Event().wait()
        raise OSError("connection already closed")


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> type[_Stubborn]:
    monkeypatch.setattr("tests.functions.actor.conftest.ScriptedEnv", _Stubborn)
    monkeypatch.setattr(_Stubborn, "closed", 0)
    return _Stubborn


def test_an_environment_that_cannot_be_closed_hides_no_error_and_harms_no_other_task(
    cache: TrajectoryCache, job: str, make_task: MakeTask, stubborn: type[_Stubborn]
) -> None:
    actor = Actor(cache)
    fails = make_task(job_id=job, env_kwargs={"script": "!"}, steps=8, num_envs=2)
    with pytest.raises(RolloutError, match="the simulator fell over"):
        actor.run(fails, cold_start=False)
    assert stubborn.closed == 2
    for index, script in enumerate(("..t", "...t")):
        task = make_task(job_id=job, env_kwargs={"script": script}, actor_index=index)
        assert actor.run(task, cold_start=False).outcome == "stored"
    assert stubborn.closed == 3
    actor.close()


def test_closing_an_actor_closes_all_its_environments(
    cache: TrajectoryCache, job: str, make_task: MakeTask, stubborn: type[_Stubborn]
) -> None:
    actor = Actor(cache)
    actor.run(make_task(job_id=job, num_envs=2), cold_start=False)
    assert stubborn.closed == 0
    actor.close()
    assert stubborn.closed == 2


def test_one_that_hangs_in_closing_alone_is_logged_and_soon_given_up(
    cache: TrajectoryCache,
    job: str,
    make_task: MakeTask,
    stubborn: type[_Stubborn],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(warm, "CLOSE_TIMEOUT_S", 0.1)
    actor = Actor(cache)
    actor.run(make_task(job_id=job, env_kwargs={"script": "........h"}), cold_start=False)
    actor.close()
    assert stubborn.closed == 1
    (record,) = (r for r in caplog.records if r.message == "environment not closed")
    assert vars(record)["env"] == "Scripted-v0"
    assert "Scripted-v0: closing it has not ended for 0.1 s" in vars(record)["why"]
