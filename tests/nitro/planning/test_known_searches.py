"""Steps to a return with ARS: of recorded runs, otherwise of the paper's."""

import json
from collections.abc import Mapping
from statistics import fmean, median

import pytest
from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.planning.known_searches import search_steps_to_return
from nitro.spec.train_spec import train_spec
from shared.contracts.job_spec import JobSpec
from tests.documents import ROOT

RECORDED = "benchmarks/results/first_results_ars.jsonl"
EPISODES = {
    "Hopper": (1_973, 3_120),
    "HalfCheetah": (1_707, 3_430),
    "Walker2d": (24_000, 4_390),
    "Ant": (20_800, 3_580),
    "Humanoid": (142_600, 6_000),
}
"""Table 1 of arXiv 1803.07055, ARS V2-t: mean episodes to the threshold."""


def job(env_id: str, changed: Mapping[str, JsonValue] | None = None) -> JobSpec:
    return train_spec(options={"env_id": env_id, "algorithm": "ars", **(changed or {})})


def recorded(env_id: str) -> list[tuple[int, float]]:
    """Return the steps and final mean return of each recorded run of Nitro's."""
    rows = map(json.loads, (ROOT / RECORDED).read_text("utf-8").splitlines())
    return [
        (row["steps"], fmean(row["returns"]))
        for row in rows
        if (row["env_id"], row["contestant"]) == (env_id, "nitro")
    ]


@pytest.mark.parametrize("env_id", ["Swimmer-v5", "Hopper-v5", "HalfCheetah-v5"])
def test_the_ends_of_recorded_runs_bound_the_steps_to_their_median_return(env_id: str) -> None:
    runs = recorded(env_id)
    (steps,) = {steps for steps, _ in runs}
    middle = median(mean for _, mean in runs)
    known = search_steps_to_return(job(env_id), middle)
    assert known.steps == steps
    reached = sum(mean >= middle for _, mean in runs)
    assert f"{reached} of {len(runs)} runs had it after {steps:,} steps" in known.source
    assert RECORDED in known.source
    assert "upper bound" in known.source


@pytest.mark.parametrize("task", ["Walker2d", "Ant", "Humanoid"])
def test_what_no_recorded_run_tells_is_published(task: str) -> None:
    episodes, threshold = EPISODES[task]
    known = search_steps_to_return(job(f"{task}-v5"), threshold)
    assert known.steps == 1000 * episodes
    shorter = search_steps_to_return(job(f"{task}-v5"), threshold, episode_steps=300)
    assert shorter.steps == 300 * episodes
    assert search_steps_to_return(job(f"{task}-v5"), 1.0, episode_steps=5000) == known
    for said in (f"{episodes:,} episodes", f"{task}-v1", "table 1", "Published, not reproduced"):
        assert said in known.source


def test_what_is_measured_is_preferred() -> None:
    assert search_steps_to_return(job("Hopper-v5"), 3000.0).source.endswith("were measured")
    assert search_steps_to_return(job("Hopper-v4"), 3000.0).steps == 1000 * EPISODES["Hopper"][0]


def test_published_episodes_are_whole_iterations_of_three_seeds() -> None:
    # The authors evaluated every ten iterations. So the numbers are of episodes, not of steps.
    for task, (episodes, _) in EPISODES.items():
        directions = job(f"{task}-v5").hyperparameters["directions"]
        assert isinstance(directions, int)
        between = 10 * 2 * directions
        assert min((3 * episodes) % between, -(3 * episodes) % between) <= 1


@pytest.mark.parametrize("changed", [{"hyperparameters.iterations": 3}, {"seed": 4}])
def test_what_does_not_change_what_is_learned_may_differ(changed: Mapping[str, JsonValue]) -> None:
    assert search_steps_to_return(job("Ant-v5", changed), 3000.0).steps == 20_800_000


@pytest.mark.parametrize(
    ("spec", "target", "message"),
    [
        (job("Ant-v5"), 3581.0, "published is 3580. Use a lower return, or give --total-steps"),
        (
            job("Hopper-v5", {"algorithm": "es"}),
            9.0,
            "no recorded run is of es: give --total-steps",
        ),
        (job("Pendulum-v1"), -200.0, "no run of ars in Pendulum-v1 .* give --total-steps"),
        (job("Swimmer-v5"), 1000.0, "no run of ars in Swimmer-v5 .* give --total-steps"),
        (job("HumanoidStandup-v5"), 9.0, "no run of ars in HumanoidStandup-v5"),
        (
            job("Ant-v5", {"hyperparameters.directions": 8}),
            9.0,
            "Leave yours out, or give --total-steps",
        ),
        (job("Ant-v5", {"episodes.horizon": 100}), 9.0, "`episodes.horizon`, or give"),
        (job("Ant-v5", {"env_kwargs": {"ctrl_cost_weight": 0}}), 9.0, "`env_kwargs`"),
    ],
)
def test_what_nobody_knows_is_asked_for(spec: JobSpec, target: float, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        search_steps_to_return(spec, target)
