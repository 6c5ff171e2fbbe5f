"""Where admission draws its lines: the last that fits is admitted, one more is refused."""

import json
import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from string import ascii_lowercase

import pytest

from services.scaler.book.records import JobRecord
from services.scaler.jobs.admission import Admission, budget_errors
from services.scaler.jobs.cache_use import round_bytes
from services.scaler.jobs.catalogue import EnvironmentCatalogue
from services.scaler.jobs.fit import agent_errors, search_errors
from services.scaler.jobs.replay import LearnerMemory
from services.scaler.launching.lambda_function import LambdaFunction
from services.scaler.launching.quota import ConcurrencyQuota
from services.scaler.launching.tasks import MAX_EVENT_BYTES
from services.scaler.money.budget import smallest_budget_usd
from services.scaler.refusals import ApiError
from services.scaler.settings import Settings
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import JOB_FILE
from shared.contracts.environment_spec import (
    ObservationSpec,
)
from shared.contracts.going_on import resized
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.rollouts import RolloutTask, SearchTask
from tests.services.scaler.lambda_endpoint import HOPPER, IMAGES, LambdaEndpoint, Reply
from tests.services.scaler.money.test_budget import PRICING, with_budget
from tests.services.scaler.services_without_network import Inline

ONE_ACTOR = {"actors": {"min": 1, "max": 1}}


@pytest.fixture
def catalogue(lambdas: LambdaEndpoint) -> Iterator[EnvironmentCatalogue]:
    function = LambdaFunction(Settings(auth="disabled", lambda_endpoint_url=lambdas.url), Inline())
    yield EnvironmentCatalogue(function, ttl_s=300.0)
    function.close()


@pytest.mark.parametrize(
    ("text", "why"), [(b'{"cut', "EOF while parsing"), (b"{}", "job_id: Field required")]
)
async def test_an_earlier_job_whose_file_is_damaged_is_refused_by_its_field(
    catalogue: EnvironmentCatalogue, tmp_path: Path, text: bytes, why: str
) -> None:
    files = LocalArtifacts(tmp_path)
    files.write("earlier", JOB_FILE, text)
    quota = ConcurrencyQuota(limit_of(1000), ttl_s=3600)
    admits = Admission(catalogue, quota, lambda: (), Inline(), cache_memory_mb=100_000, files=files)
    spec = JobSpec.model_validate({"init_from": {"job_id": "earlier"}})
    with pytest.raises(ApiError) as refused:
        await admits.admit(spec, PRICING)
    (error,) = refused.value.errors
    assert error.field == "init_from.job_id"
    assert why in error.message
    assert "restore it or name another job" in error.message


def limit_of(number: int) -> Callable[[], Awaitable[int]]:
    async def limit() -> int:
        return number

    return limit


def admission(
    catalogue: EnvironmentCatalogue,
    *live: JobRecord,
    cache_memory_mb: int = 100_000,
    has_gpu: bool = True,
    side_by_side: bool = False,
    learner_memory: LearnerMemory | None = None,
) -> Admission:
    quota = ConcurrencyQuota(limit_of(1000), ttl_s=3600)
    return Admission(
        catalogue,
        quota,
        lambda: live,
        Inline(),
        cache_memory_mb=cache_memory_mb,
        has_gpu=has_gpu,
        side_by_side=side_by_side,
        learner_memory=learner_memory,
    )


async def refused(admission: Admission, spec: JobSpec) -> dict[str, str]:
    with pytest.raises(ApiError) as refusal:
        await admission.admit(spec, PRICING)
    return {error.field: error.message for error in refusal.value.errors}


async def test_without_a_gpu_jobs_that_want_one_are_refused_with_the_quotas_name(
    catalogue: EnvironmentCatalogue, lambdas: LambdaEndpoint
) -> None:
    small = admission(catalogue, has_gpu=False)
    await small.admit(JobSpec(learner="auto"), PRICING)
    on_gpu = JobSpec(learner="gpu")
    with pytest.raises(ApiError) as refusal:
        small.refuse_at_once(on_gpu, PRICING)
    (error,) = refusal.value.errors
    assert (error.field, "(L-DB2E81BA)" in error.message) == ("learner", True)
    # One that was submitted when there was a GPU, and is resumed now.
    assert [error.field for error in small.room_errors(on_gpu, HOPPER)] == ["learner"]
    lambdas.behave = lambda task, nth: Reply(body=IMAGES.model_dump(mode="json"))
    images = JobSpec(env_id="ALE/Pong-v5", learner="auto")
    assert "set learner to cpu" in (await refused(small, images))["learner"]


async def test_a_replay_that_its_learner_cannot_hold_is_refused(
    catalogue: EnvironmentCatalogue,
) -> None:
    memory = LearnerMemory(cpu_mib=1900, gpu_mib=1900, on_aws=True)
    small = admission(catalogue, learner_memory=memory)
    spec = JobSpec.model_validate(
        {
            "algorithm": "sac",
            "preset": "standard",
            "scaling": {"policy": "fixed"},
            "stop": {"max_rounds": 1_000_000},
            "hyperparameters": {"replay_capacity": 10_000_000, "replay_mb": 992},
        }
    )
    await small.admit(spec, PRICING)
    large = spec.model_copy(update={"hyperparameters": {"replay_capacity": 10_000_000}})
    assert "set it to 992 or lower" in (await refused(small, large))["hyperparameters.replay_mb"]


def kwargs_of(num_bytes: int) -> dict[str, str]:
    """Keyword arguments that have this many bytes as JSON."""
    kwargs = {f"text_{letter}": "" for letter in ascii_lowercase[:13]}
    missing = num_bytes - len(json.dumps(kwargs))
    for name in kwargs:
        kwargs[name] = "x" * min(256, missing)
        missing -= len(kwargs[name])
    assert len(json.dumps(kwargs)) == num_bytes
    return kwargs


def largest_task(spec: JobSpec) -> RolloutTask:
    """Return a job's task with names and numbers as long as any."""
    most = 2**63 - 1
    return RolloutTask(
        mode="evaluate",
        job_id="j" * 63,
        round=most,
        attempt=most,
        actor_index=most,
        policy_version=most,
        lease_hash="t" * 64,
        env=spec.environment_ref,
        steps=most,
        num_envs=most,
        horizon=most,
        discount=1.2345678901234567e-123,
        replay_steps=most,
        search=SearchTask(
            seed=most,
            directions=most,
            parts=most,
            exploration_std=1.2345678901234567e-123,
            longest=most,
            moments=False,
        ),
        seed=most,
    )


@pytest.mark.parametrize("largest", ["env_kwargs", "wrappers", "env_variables"])
async def test_what_an_actors_event_just_holds_is_admitted_and_one_byte_more_refused(
    catalogue: EnvironmentCatalogue, largest: str
) -> None:
    parts: dict[str, object] = {
        "env_kwargs": kwargs_of(2800),
        "wrappers": [{"name": "TimeAwareObservation", "kwargs": kwargs_of(2800)}],
        "env_variables": {f"SIMULATOR_{i}": "x" * 200 for i in range(13)},
    }

    def spec(more: int) -> JobSpec:
        made: dict[str, object] = {"env_kwargs": {}} | {largest: parts[largest]}
        kwargs = made["env_kwargs"]
        assert isinstance(kwargs, dict)
        padding = {f"more_{i}": "x" * min(max(more - 250 * i, 0), 250) for i in range(4)}
        return JobSpec.model_validate({**made, "env_kwargs": {**kwargs, **padding}})

    most = MAX_EVENT_BYTES - len(largest_task(spec(0)).model_dump_json().encode())
    assert await admission(catalogue).admit(spec(most), PRICING) == HOPPER
    told = await refused(admission(catalogue), spec(most + 1))
    assert told.keys() == {largest}
    assert told[largest].endswith("at most 4096 fit; shorten it by 1")


async def test_the_cache_has_megabytes_of_1024_times_1024_bytes(
    catalogue: EnvironmentCatalogue,
) -> None:
    # The policy of a round and of the next, and steps of 11 numbers, 3 actions and 10 bytes more.
    policies = 2 * 4 * (12 * 256 + 257 * 256 + 257 * 6)
    most = (1024 * 1024 - policies) // (4 * 11 + 4 * 3 + 10) - 1
    fits = JobSpec.model_validate({**ONE_ACTOR, "preset": "paper", "steps_per_actor": most})
    assert await admission(catalogue, cache_memory_mb=1).admit(fits, PRICING) == HOPPER
    larger = fits.model_copy(update={"steps_per_actor": most + 1})
    told = await refused(admission(catalogue, cache_memory_mb=1), larger)
    assert told.keys() == {"steps_per_actor"}
    assert told["steps_per_actor"].startswith(f"a round of 1 actors with {most + 1} steps may take")
    assert "a cache as large as cache.t4g.micro (cache_node_type" in told["steps_per_actor"]


async def test_the_cache_holds_the_largest_job_of_each_kind(
    catalogue: EnvironmentCatalogue,
) -> None:
    spec = JobSpec.model_validate({"learner": "cpu", "actors": {"min": 64, "max": 64}})
    large = spec.model_copy(update={"steps_per_actor": 4 * spec.steps_of(64)})
    needed_mb = [math.ceil(round_bytes(each, HOPPER) / 2**20) for each in (spec, large)]

    def live(spec: JobSpec, learner: LearnerKind) -> JobRecord:
        job = Job(
            job_id="hopper-1",
            spec=spec,
            learner=learner,
            environment=HOPPER,
            status="running",
            created_at=0,
        )
        return JobRecord(job=job)

    beside = [live(large, "gpu"), live(spec, "gpu"), live(large, "cpu")]
    room_mb = sum(needed_mb)
    assert (
        await admission(catalogue, *beside, cache_memory_mb=room_mb).admit(spec, PRICING) == HOPPER
    )
    room_mb -= 2
    assert (
        await admission(catalogue, *beside[1:], cache_memory_mb=room_mb).admit(spec, PRICING)
        == HOPPER
    )
    (why,) = (await refused(admission(catalogue, *beside, cache_memory_mb=room_mb), spec)).values()
    assert f"other jobs may take {needed_mb[1]} MB of it; wait until one" in why
    assert "use a cache as large as" in why
    # Where each has a learner of its own, all of them run at once.
    at_once = admission(catalogue, *beside, cache_memory_mb=room_mb + 2, side_by_side=True)
    (why,) = (await refused(at_once, spec)).values()
    others_mb = sum(round_bytes(r.job.spec, HOPPER) for r in beside) / 2**20
    assert f"other jobs may take {others_mb:.0f} MB of it" in why


async def test_a_network_that_cannot_be_built_is_refused_before_anything_is_counted(
    catalogue: EnvironmentCatalogue, lambdas: LambdaEndpoint
) -> None:
    thin = ObservationSpec(shape=(40, 3, 60), dtype="uint8")
    described = IMAGES.model_copy(update={"observation": thin})
    lambdas.behave = lambda t, n: Reply(body=described.model_dump(mode="json"))
    spec = JobSpec.model_validate({"env_id": "ALE/Qbert-v5", "preset": "standard"})
    assert (await refused(admission(catalogue), spec)).keys() == {"env_id"}


async def test_a_job_whose_trajectories_no_learner_would_take_in_is_refused(
    catalogue: EnvironmentCatalogue, lambdas: LambdaEndpoint
) -> None:
    lambdas.behave = lambda t, n: Reply(body=IMAGES.model_dump(mode="json"))
    spec = {"env_id": "ALE/Qbert-v5", "preset": "standard", "steps_per_actor": 9510}
    told = await refused(admission(catalogue), JobSpec.model_validate(spec))
    assert told.keys() == {"steps_per_actor"}
    assert "the learner accepts 256 MB" in told["steps_per_actor"]


@pytest.mark.parametrize(
    ("committed_usd", "spent"), [(0.0, "job: "), (0.25, "job on top of $0.2500 already spent: ")]
)
def test_a_budget_of_exactly_the_least_is_enough(committed_usd: float, spent: str) -> None:
    spec = JobSpec.model_validate(ONE_ACTOR)
    least_usd = committed_usd + smallest_budget_usd(spec, PRICING)
    enough = with_budget(spec, least_usd)
    assert not [*budget_errors(enough, PRICING, committed_usd=committed_usd)]
    too_little = with_budget(spec, math.nextafter(least_usd, 0.0))
    (error,) = budget_errors(too_little, PRICING, committed_usd=committed_usd)
    assert error.field == "stop.budget_usd"
    assert f"the end of the {spent}at least" in error.message
    told_usd = float(error.message.rpartition("$")[2].removesuffix(" are needed"))
    assert not [*budget_errors(with_budget(spec, told_usd), PRICING, committed_usd=committed_usd)]
    assert told_usd - least_usd < 1e-4


async def test_a_job_needs_the_budget_of_the_learner_that_it_has(
    catalogue: EnvironmentCatalogue, lambdas: LambdaEndpoint
) -> None:
    spec = JobSpec.model_validate({**ONE_ACTOR, "learner": "auto", "preset": "standard"})
    pricing = PRICING.with_learner("cpu")
    assert smallest_budget_usd(spec, pricing) < smallest_budget_usd(spec, PRICING)
    pinged = pricing.with_warm(0, pinged=1)
    little = with_budget(spec, smallest_budget_usd(spec, pinged))
    assert await admission(catalogue).admit(little, PRICING) == HOPPER
    for learner in ("gpu", "auto"):
        # An environment with images needs a convolutional network, hence a GPU.
        lambdas.behave = lambda task, nth: Reply(body=IMAGES.model_dump(mode="json"))
        asked = little.model_copy(update={"env_id": "ALE/Qbert-v5", "learner": learner})
        assert [*await refused(admission(catalogue), asked)] == ["stop.budget_usd"]
    admission(catalogue).refuse_at_once(asked, PRICING)


def search(**changes: object) -> JobSpec:
    spec = {"algorithm": "ars", "actors": {"min": 4, "max": 32}, **changes}
    return JobSpec.model_validate({"hyperparameters": {"directions": 8}} | spec)


@pytest.mark.parametrize(
    ("longest", "step_s", "spec", "field", "message"),
    [
        (None, 0.0, search(), "episodes.horizon", "have no limit: give a number of steps"),
        (1000, 0.03, search(), "episodes.horizon", "4,000 steps of 0.03 s, so 120 s, and it has"),
        (20_000, 0.0, search(), "episodes.horizon", "may have 80,000 steps an iteration, at most"),
        (
            1000,
            0.0,
            search(scaling={"policy": "schedule", "num_actors": [4, 20]}),
            "scaling.num_actors.1",
            "20 actors, but a round has at most 16",
        ),
        (
            1000,
            0.0,
            search(scaling={"policy": "random", "mean_actors": 17}),
            "scaling.mean_actors",
            "17 actors, but a round has at most 16",
        ),
    ],
)
def test_a_search_whose_actors_cannot_play_its_episodes_is_refused(
    longest: int | None, step_s: float, spec: JobSpec, field: str, message: str
) -> None:
    environment = HOPPER.model_copy(update={"max_episode_steps": longest, "step_s": step_s})
    (error,) = search_errors(resized(spec, environment), environment, timeout_s=60.0)
    assert error.field == field
    assert message in error.message


def test_a_search_that_its_actors_can_play_is_admitted_with_an_actor_an_episode_at_most() -> None:
    spec = resized(search(scaling={"policy": "fixed", "num_actors": 20}), HOPPER)
    assert (spec.actors.min, spec.actors.max, spec.steps_per_actor) == (4, 16, 40_000)
    assert spec.scaling.asked_for() == {"num_actors": 16}
    assert not [*search_errors(spec, HOPPER, timeout_s=60.0)]
    assert JobSpec.model_validate(spec.model_dump()) == spec


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"samples_per_round": 2048, "actors": {"min": 8, "max": 8}}, None),
        ({"steps_per_actor": 255}, None),
        ({"steps_per_actor": 254}, ("steps_per_actor", "give a multiple of 3")),
        ({"samples_per_round": 8, "actors": {"min": 4, "max": 4}}, ("samples_per_round", "of 12")),
        ({"envs_per_actor": 4}, ("envs_per_actor", "4 is no multiple of the 3 agents of Hopper")),
        ({"envs_per_actor": 6, "steps_per_actor": 252}, None),
    ],
)
def test_an_actor_has_an_environment_for_each_agent(
    fields: dict[str, object], wrong: tuple[str, str] | None
) -> None:
    three = HOPPER.model_copy(update={"agents": 3})
    spec = resized(JobSpec.model_validate({"env_id": "Hopper-v5", **fields}), three)
    assert spec.envs_per_actor == fields.get("envs_per_actor", 3)
    errors = [(error.field, error.message) for error in agent_errors(spec, three)]
    assert [field for field, _ in errors] == ([] if wrong is None else [wrong[0]])
    assert wrong is None or wrong[1] in errors[0][1]


async def test_ars_is_refused_where_there_are_several_agents(
    catalogue: EnvironmentCatalogue, lambdas: LambdaEndpoint
) -> None:
    three = HOPPER.model_copy(update={"agents": 3})
    lambdas.behave = lambda task, nth: Reply(body=three.model_dump(mode="json"))
    errors = await refused(admission(catalogue), JobSpec(algorithm="ars"))
    assert "which has several agents; use ppo" in errors["algorithm"]
