"""`nitro plan`: what it measures, prints and draws."""

from pathlib import Path

import matplotlib as mpl
import pytest
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.deploy.findings import wrong
from nitro.errors import EXIT_USAGE
from nitro.planning.picture import draw_plan
from nitro.planning.report import Plan


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_plan_measures_projects_and_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.service.cores.usable_cores", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (3.3, 0.0, 0.0))
    picture = tmp_path / "plan.svg"
    result = plan("CartPole-v1", "--total-steps", "50_000", "--json", "-o", str(picture))
    assert result.exit_code == 0, result.output
    assert "measuring CartPole-v1" in result.stderr
    assert "this machine is busy (load 3.3 on 4 cores)" in result.stderr
    monkeypatch.setattr("os.getloadavg", lambda: (1.9, 9.0, 9.0))
    assert "busy" not in plan("CartPole-v1", "--total-steps", "4096").stderr
    found = Plan.model_validate_json(result.stdout)
    workload = found.workload
    assert (workload.env_id, workload.episode_steps) == ("CartPole-v1", 500)
    assert workload.total_steps == 51_200, "whole rounds"
    assert 1e-6 < workload.step_s < 1e-3
    assert workload.gpu_update_s < workload.update_s
    assert 10 < workload.bytes_per_sample < 100
    assert {way.place for way in found.ways} == {"here", "own", "server", "serverless"}
    assert found.ways[found.cheapest].usd == 0.0
    assert found.ways[found.fastest].wall_s == min(way.wall_s for way in found.ways)
    with mpl.rc_context({"svg.fonttype": "none"}):
        text = draw_plan(found, picture).read_text(encoding="utf-8")
    for drawn in ("serverless, CPU learner", "one server", "this machine", "1,000", "USD"):
        assert drawn in text


def test_a_job_with_several_environments_an_actor_and_episodes_that_begin_anew_is_measured() -> (
    None
):
    fields = ("envs_per_actor=4", "episodes.horizon=fragment", "samples_per_round=1024")
    options = [part for field in fields for part in ("--set", field)]
    result = plan("Pendulum-v1", "--total-steps", "10_000", *options)
    assert result.exit_code == 0, result.output
    for said in ("rounds of 1,024", "this machine", "c7i.4xlarge", "cheapest", "Serverless"):
        assert said in result.output


def test_a_plan_of_sac_says_how_many_actors_its_learner_can_follow() -> None:
    small = ("hidden_sizes=[16,16]", "minibatch_size=16")
    fields = ("algorithm=sac", *(f"hyperparameters.{field}" for field in small))
    options = [part for field in fields for part in ("--set", field)]
    result = plan("Pendulum-v1", "--total-steps", "2048", "--json", *options)
    assert result.exit_code == 0, result.output
    workload = Plan.model_validate_json(result.stdout).workload
    assert workload.samples_per_round == 256
    assert workload.update_s > 256 * 1e-4, "its first steps are passed over"
    assert workload.gpu_update_s == pytest.approx(workload.update_s), "it computes on cores alone"
    slow = workload.model_copy(update={"step_s": 0.024, "update_s": 2.56})
    assert slow.useful_actors == 3  # 100 gradient steps a second, times 0.024 s
    assert slow.model_copy(update={"open_rounds": 1}).useful_actors is None


@pytest.mark.parametrize("algorithm", ["ars", "es"])
def test_a_search_is_planned_by_whole_episodes_of_a_length_that_is_assumed(algorithm: str) -> None:
    fields = ("--set", "hyperparameters.directions=30", "--total-steps", "1_200_000")
    result = plan(
        "CartPole-v1", "--algorithm", algorithm, "--episode-steps", "200", "--json", *fields
    )
    assert result.exit_code == 0, result.output
    found = Plan.model_validate_json(result.stdout)
    workload = found.workload
    assert (workload.iterations, workload.episodes_per_round) == (10, 600)
    assert workload.samples_per_round == 120_000
    assert workload.num_rounds(8) == workload.num_rounds(60) == 10
    assert [workload.steps_of(num) for num in (8, 59, 60)] == [16_000, 4000, 2000]
    assert {way.num_actors for way in found.ways if way.place == "serverless"} == {8, 16, 60}
    assert 1e-6 < workload.step_s < 1e-2
    assert any("--episode-steps" in said for said in found.assumptions)


def test_a_search_is_planned_to_a_published_return_and_says_what_that_rests_on() -> None:
    asked = ("Humanoid-v5", "--algorithm", "ars", "--to-return", "6000", "--episode-steps", "100")
    result = plan(*asked, "--json")
    assert result.exit_code == 0, result.output
    found = Plan.model_validate_json(result.stdout)
    assert found.workload.total_steps == 142_600 * 100
    assert found.workload.num_rounds(460) == 142_600 / (10 * 460)
    for said in ("for a return of 6,000", "1803.07055", "Humanoid-v1", "not reproduced here"):
        assert said in found.steps_source
    planned = {way.num_actors for way in found.ways if way.place == "serverless"}
    assert {64, 256, 460} <= planned
    assert 1000 not in planned


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("Hopper-v5", "--algorithm", "es", "--to-return", "9"),
            "no recorded run is of es: give --total-steps",
        ),
        (
            ("Humanoid-v5", "--algorithm", "ars", "--to-return", "6001"),
            "published is 6000. Use a lower return, or give --total-steps",
        ),
        (("Hopper-v5", "--episode-steps", "9"), "--episode-steps: is for ars and es"),
        (("Hoper-v5",), "did you mean Hopper-v5"),
        (("Hopper-v5", "--to-return", "1", "--total-steps", "1"), "not both"),
        (("Pendulum-v1", "--to-return", "-200"), "give --total-steps"),
        (("Hopper-v5", "--total-steps", "many"), "--total-steps: must be a whole number"),
        (("Hopper-v5", "--set", "algorithm=impact"), "rounds_in_flight: must be 1"),
        (("CartPole-v1", "--algorithm", "sac"), "algorithm: sac"),
        (("Hopper-v5", "--set", "scaling.policy=marginal"), "samples_per_round: must be set"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = plan(*arguments)
    assert result.exit_code == EXIT_USAGE
    assert message in " ".join(result.output.split())


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = wrong("packages", "missing: torch", "install Nitro with its extra `local`")
    monkeypatch.setattr("nitro.deploy.machine_checks.check_packages", lambda: missing)
    result = plan("CartPole-v1")
    assert result.exit_code == EXIT_USAGE
    assert "missing: torch: install Nitro with its extra" in result.output
