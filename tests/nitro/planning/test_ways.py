"""Times and dollars of ways to train, against what they come to by hand."""

import math
from dataclasses import replace

import pytest

from nitro.planning.prices import function_learner
from nitro.planning.ways import (
    ACTORS,
    GRADIENT_CALL_S,
    one_server,
    serverless,
    serverless_rounds,
    this_machine,
    ways,
)
from nitro.planning.workload import LAUNCH_S, NETWORK_BYTES_PER_S, PLAN_S
from shared.contracts.job_spec import JobSpec
from shared.deployment.config import NitroConfig
from shared.money.one_server import BOOT_S
from shared.money.prices import SECONDS_PER_HOUR
from tests.nitro.planning.job import CPU, GPU, SLOW_STEP_S, a_job, at_once


def test_a_serverless_round_is_plan_launch_slowest_actor_and_update() -> None:
    job, num = a_job(), 16
    actor_s = (0.003 + 128 * 1e-4) * 1769 / 1024
    round_s = PLAN_S + 2048 * 64 / NETWORK_BYTES_PER_S + num * LAUNCH_S + actor_s + 0.1
    projected = serverless_rounds(job, at_once(CPU), num)
    assert projected.wall_s == pytest.approx(100 * round_s)
    gb_s = 100 * num * -(-actor_s * 1000 // 1) / 1000
    held_usd = projected.wall_s * CPU.basis.base_usd_per_s
    requests_usd = 100 * num * 0.2e-6
    assert projected.usd == pytest.approx(held_usd + gb_s * 0.0000166667 + requests_usd, rel=1e-3)


def test_of_two_open_rounds_one_is_learned_from_while_the_other_is_collected() -> None:
    fast, slow = a_job(open_rounds=2), a_job(open_rounds=2, step_s=SLOW_STEP_S)
    assert serverless_rounds(fast, at_once(CPU), 16).wall_s == pytest.approx(100 * 0.1)
    actor_s = (0.003 + 128 * SLOW_STEP_S) * 1769 / 1024
    latency_s = PLAN_S + 2048 * 64 / NETWORK_BYTES_PER_S + 16 * LAUNCH_S + actor_s + 0.1
    projected = serverless_rounds(slow, at_once(CPU), 16)
    assert projected.wall_s == pytest.approx(100 * latency_s / 2)
    one_by_one = serverless_rounds(a_job(step_s=SLOW_STEP_S), at_once(CPU), 16)
    executions_usd = one_by_one.usd - one_by_one.wall_s * CPU.basis.base_usd_per_s
    assert projected.usd - projected.wall_s * CPU.basis.base_usd_per_s == pytest.approx(
        executions_usd, rel=1e-3
    ), "they last as long"


def test_the_final_evaluation_waits_for_all_of_its_longest_episode() -> None:
    evaluated = {"total_steps": 2048, "evaluate_every": 10, "episode_steps": 20_000}
    job = a_job(open_rounds=2, **evaluated)
    episode_s = (0.003 + 20_000 * 1e-4) * 1769 / 1024 + PLAN_S + LAUNCH_S
    whole_s = serverless_rounds(job, at_once(CPU), 16).wall_s
    assert episode_s < whole_s - 0.5 * episode_s < 1.2 * episode_s


def test_rounds_are_no_faster_than_the_caches_network() -> None:
    job = a_job(policy_bytes=6e6, total_steps=40_960)
    small = serverless(job, CPU, 16)
    num_rounds = job.num_rounds(16)
    assert small.wall_s - CPU.start_s >= num_rounds * 16 * 6e6 / 8e6
    larger = replace(CPU, cache_bytes_per_s=math.inf)
    assert serverless(job, larger, 16).wall_s < small.wall_s / 2
    light = a_job(total_steps=40_960)
    assert serverless(light, larger, 16) == serverless(light, CPU, 16)


def test_only_the_first_round_waits_for_new_environments() -> None:
    job = a_job()
    cold, warm = serverless(job, CPU, 16), serverless(job, at_once(CPU), 16)
    assert cold.wall_s - warm.wall_s == pytest.approx(CPU.start_s + CPU.basis.cold_start_s)


def test_the_shortest_job_pays_for_a_minute_of_its_learner() -> None:
    shortest = serverless(a_job(total_steps=2048), CPU, 8)
    assert shortest.wall_s - CPU.start_s < 20.0
    assert shortest.usd >= 60.0 * CPU.basis.learner_usd_per_s


def test_what_is_left_over_is_not_billed_as_a_round() -> None:
    one, two = a_job(total_steps=2048), a_job(total_steps=2049)
    assert (one.num_rounds(8), two.num_rounds(8)) == (1, 2)
    assert a_job().steps_of(1000) == 2, "a remainder is left out"
    assert a_job(total_steps=204_800).num_rounds(1000) == 103


def test_evaluations_are_paid_for_and_outlast_short_rounds() -> None:
    plain = serverless_rounds(a_job(), at_once(CPU), 64)
    evaluated = a_job(evaluate_every=10, episode_steps=20_000)
    beside = serverless_rounds(evaluated, at_once(CPU), 64)
    episode_s = 20_000 * 1e-4 * 1769 / 1024
    assert beside.wall_s > plain.wall_s + 10 * (episode_s - 0.2)
    assert beside.usd - plain.usd > 11 * 10 * episode_s * 0.0000166667


def test_a_server_boots_and_its_cores_share_the_steps() -> None:
    job = a_job(step_s=SLOW_STEP_S)
    four, sixteen = (
        one_server(job, CPU.basis, "c7i.xlarge"),
        one_server(job, CPU.basis, "c7i.4xlarge"),
    )
    stepping_s = 204_800 * SLOW_STEP_S
    assert four.wall_s == pytest.approx(BOOT_S + stepping_s / 4 + 100 * 0.1, rel=0.01)
    assert sixteen.wall_s == pytest.approx(BOOT_S + stepping_s / 16 + 100 * 0.1, rel=0.02)
    assert four.usd == pytest.approx(four.wall_s * 0.1785 / SECONDS_PER_HOUR)


def test_this_machine_costs_nothing_and_does_not_boot() -> None:
    here = this_machine(a_job(), CPU.basis, cores=2, num_actors=8)
    assert (here.usd, here.start_s) == (0.0, 0.0)
    assert here.wall_s == pytest.approx(100 * (0.1 + 0.012 + 2048 * 1e-4 / 2), rel=0.15)


def test_a_gpu_learner_is_faster_and_dearer() -> None:
    job = a_job()
    cpu, gpu = serverless_rounds(job, CPU, 16), serverless_rounds(job, GPU, 16)
    assert gpu.wall_s < cpu.wall_s
    assert gpu.usd > cpu.usd


def test_every_way_is_there_and_one_that_cannot_be_is_not() -> None:
    def offered(**changed: float) -> set[int]:
        found = ways(a_job(**changed), (CPU, GPU), cores_here=2, actors_here=8)  # type: ignore[arg-type]
        assert [way.place for way in found[:4]] == ["here", "server", "server", "server"]
        assert [(way.place, way.learner) for way in found[4:5]] == [("own", "cpu")]
        assert {way.learner for way in found[5:]} == {"cpu", "gpu"}
        return {way.num_actors for way in found[5:]}

    here, *_, own = ways(a_job(), (CPU,), cores_here=2, actors_here=8, actors=())
    assert (own.place, own.name, own.cores) == ("own", "own cores, cpu learner", 2)
    # As fast as such a machine here, once the learner has started; paid by the second.
    assert own.wall_s == pytest.approx(CPU.start_s + here.wall_s)
    held_usd = here.wall_s * CPU.basis.base_usd_per_s
    assert own.usd == pytest.approx(CPU.start_s * CPU.basis.learner_usd_per_s + held_usd)

    assert offered() == set(ACTORS)
    assert offered(samples_per_round=500) == set(ACTORS) - {1000}, "no step for each"
    assert offered(step_s=0.2) == set(ACTORS) - {8}, "88 s on Lambda, which gives it 60"


def test_an_evaluation_episode_has_to_end_before_its_function_does() -> None:
    def serverless_ways(**changed: float) -> int:
        job = a_job(step_s=SLOW_STEP_S, **changed)  # type: ignore[arg-type]
        found = ways(job, (CPU, GPU), cores_here=2, actors_here=8)
        return sum(way.place == "serverless" for way in found)

    lasts_69_s = {"episode_steps": 1000}
    assert serverless_ways(**lasts_69_s, evaluate_every=10) == 0
    assert serverless_ways(**lasts_69_s, evaluate_every=0) == 2 * len(ACTORS)
    assert serverless_ways(episode_steps=800, evaluate_every=10) == 2 * len(ACTORS)


def test_functions_learn_slower_than_a_small_networks_own_cores_and_are_billed() -> None:
    functions = function_learner(NitroConfig(), JobSpec(preset="standard"))
    assert functions is not None
    assert (functions.calls, functions.functions) == (160, 4)
    workload = a_job()
    on_cores = serverless_rounds(workload, at_once(CPU), 8)
    on_functions = serverless_rounds(workload, at_once(functions), 8)
    assert functions.update_s(workload) == pytest.approx(40 * (GRADIENT_CALL_S + 0.1 / 160))
    more_s = functions.update_s(workload) - workload.update_s
    rounds = workload.num_rounds(8)
    assert on_functions.wall_s == pytest.approx(on_cores.wall_s + rounds * more_s)
    held_usd = (on_functions.wall_s - on_cores.wall_s) * CPU.basis.usd_per_s
    gradients_usd = rounds * functions.gradients_usd(workload)
    assert on_functions.usd == pytest.approx(on_cores.usd + held_usd + gradients_usd)


def test_a_large_update_is_faster_on_functions() -> None:
    functions = function_learner(NitroConfig(), JobSpec(preset="standard"))
    assert functions is not None
    large = a_job(update_s=20.0)
    assert serverless_rounds(large, at_once(functions), 8).wall_s < (
        serverless_rounds(large, at_once(CPU), 8).wall_s
    )


def test_impala_has_no_functions() -> None:
    assert function_learner(NitroConfig(), JobSpec(algorithm="impala")) is None


def test_replays_are_paid_for_on_lambda_and_spared_where_processes_stay() -> None:
    usual, replays = a_job(step_s=1e-3), a_job(step_s=1e-3, replay_s=0.5)
    here, there = (this_machine(job, CPU.basis, cores=2, num_actors=8) for job in (usual, replays))
    assert here == there
    few, more = (serverless(job, CPU, 8) for job in (usual, replays))
    assert more.usd > few.usd
    rounds = usual.num_rounds(8)
    assert more.wall_s - few.wall_s > 0.5 * rounds  # a core of Lambda's size is no faster


def test_rounds_of_the_warm_up_have_no_update() -> None:
    job = a_job(warm_up_steps=10 * 2048 + 100, evaluate_every=25)
    plain = serverless_rounds(a_job(evaluate_every=25), at_once(CPU), 16)
    warm = serverless_rounds(job, at_once(CPU), 16)
    assert plain.wall_s - warm.wall_s == pytest.approx(10 * 0.1)
    alone = a_job(warm_up_steps=10**9, update_s=1e9)
    assert serverless_rounds(alone, at_once(CPU), 16).wall_s < 100 * 1.0
