"""Every short form of a policy, and what is said about those that are none."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nitro.cli.main import app
from nitro.client.client import NitroClient
from nitro.client.follow import follow
from nitro.errors import EXIT_USAGE, CommandError
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from nitro.spec.scaling_option import build_scaling, parse_scaling, policies_table
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import POLICIES, FixedScaling, HydrozoaScaling
from tests.nitro.synthetic_run import JOB_ID, write_run
from tests.services.scaler.scaling.seen import biased_agent

HERE = Path()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nitro", {"policy": "nitro"}),
        ("nitro:artifact", {"policy": "nitro", "convention": "artifact"}),
        ("fixed", {"policy": "fixed"}),
        ("fixed:16", {"policy": "fixed", "num_actors": 16}),
        ("random", {"policy": "random"}),
        ("random:20.5", {"policy": "random", "mean_actors": 20.5}),
        ("kungfu:5", {"policy": "kungfu", "every_rounds": 5}),
        ("marginal:2.5", {"policy": "marginal", "value_of_time_usd_per_hour": 2.5}),
        ("hydrozoa:4", {"policy": "hydrozoa", "every_rounds": 4}),
        ("reward_window:6", {"policy": "reward_window", "window": 6}),
        ("schedule:8,16,64", {"policy": "schedule", "num_actors": [8, 16, 64]}),
        ("schedule:8", {"policy": "schedule", "num_actors": [8]}),
    ],
)
def test_short_forms(text: str, expected: dict[str, object]) -> None:
    assert parse_scaling(text, runs_dir=HERE) == expected


def test_a_run_is_replayed_or_its_mean_taken(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    counts = [line.plan.num_actors for line in read_run(folder).rounds[:-1]]
    replay = {"policy": "schedule", "num_actors": counts}
    assert parse_scaling(f"schedule:{JOB_ID}", runs_dir=tmp_path) == replay
    assert parse_scaling(f"schedule:{folder}", runs_dir=HERE) == replay
    mean = parse_scaling(f"random:{JOB_ID}", runs_dir=tmp_path)
    assert mean == {"policy": "random", "mean_actors": pytest.approx(sum(counts) / len(counts))}


def test_an_agent_comes_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    file.write_text(biased_agent(0.0, 1.0).model_dump_json())
    scaling = build_scaling(f"minionsrl:{file}", num_actors=None, assignments=[], runs_dir=tmp_path)
    assert scaling.policy == "minionsrl"
    file.write_text('{"layers": []}')
    with pytest.raises(CommandError, match=rf"{file}: is not an agent: layers"):
        parse_scaling(f"minionsrl:{file}", runs_dir=tmp_path)
    with pytest.raises(CommandError, match="none.json: cannot be read"):
        parse_scaling("minionsrl:none.json", runs_dir=tmp_path)


@pytest.mark.parametrize("text", ["", "fixed:", "guess", "guess:3", ":3"])
def test_what_names_no_policy_is_told_which_there_are(text: str) -> None:
    with pytest.raises(CommandError, match=re.escape("--scaling: must be one of nitro[:artifact]")):
        parse_scaling(text, runs_dir=HERE)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fixed:x", "--scaling fixed: must be followed by a whole number, got 'x'"),
        ("fixed:-1", "whole number"),
        ("nitro:code", "paper or artifact"),
        ("schedule:nowhere", "no run at 'nowhere'"),
        ("random:nowhere", "no run at 'nowhere'"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(CommandError, match=re.escape(complaint)):
        parse_scaling(text, runs_dir=HERE)


def test_parameters_and_pins() -> None:
    made = build_scaling("hydrozoa", num_actors=None, assignments=["every_rounds=3"], runs_dir=HERE)
    assert made == HydrozoaScaling(policy="hydrozoa", every_rounds=3)
    as_of_a_job = ["scaling.every_rounds=3"]
    assert made == build_scaling(
        "hydrozoa", num_actors=None, assignments=as_of_a_job, runs_dir=HERE
    )
    pinned = build_scaling(None, num_actors=32, assignments=[], runs_dir=HERE)
    assert pinned == FixedScaling(policy="fixed", num_actors=32)


@pytest.mark.parametrize(
    ("policy", "num_actors", "assignments", "complaint"),
    [
        (None, None, [], "either --policy, such as hydrozoa, or --actors"),
        ("nitro", 3, [], "either --policy"),
        ("hydrozoa", None, ["every=3"], "every: no such field"),
        ("kungfu", None, ["smothing=0.2"], r"^smothing: no such field; did you mean smoothing\?$"),
        ("hydrozoa", None, ["every_rounds=0"], "every_rounds: "),
        ("hydrozoa", None, ["every_rounds"], "--set: must look like name=value"),
        ("schedule", None, [], "num_actors: "),
        ("none", None, [], "--policy: must be one of"),
    ],
)
def test_what_cannot_be_switched_to_is_refused(
    policy: str | None, num_actors: int | None, assignments: list[str], complaint: str
) -> None:
    with pytest.raises(CommandError, match=complaint):
        build_scaling(policy, num_actors=num_actors, assignments=assignments, runs_dir=HERE)


def test_the_list_shows_every_policy_with_its_parameters_and_defaults() -> None:
    table = policies_table()
    names = [str(cell) for cell in table.columns[0].cells]
    for policy, model in POLICIES.items():
        assert policy in names
        assert all(f"  {field}" in names for field in model.model_fields if field != "policy")
    assert CliRunner().invoke(app, ["policies"]).exit_code == 0


def test_a_wrong_switch_ends_before_anything_is_asked_of_the_api() -> None:
    result = CliRunner().invoke(app, ["jobs", "scale", "some-job"])
    assert result.exit_code == EXIT_USAGE
    assert "give either --policy" in result.output


def test_a_running_job_is_switched_from_the_command_line(
    system: LocalSystem, client: NitroClient, endless_job: JobSpec
) -> None:
    job_id = client.submit(endless_job).job_id

    def nitro_jobs(*arguments: str) -> str:
        environment = {"NITRO_API_URL": system.api_url, "NITRO_TOKEN": system.token}
        result = CliRunner().invoke(app, ["jobs", *arguments], env=environment)
        assert result.exit_code == 0, result.output
        return result.output

    for snapshot in follow(client, job_id, check=system.check, every_s=0.05):
        if snapshot.finished_rounds == 0:
            continue
        if not snapshot.job.switches:
            assert "fixed:1 from round" in nitro_jobs("scale", job_id, "--actors", "1")
        elif snapshot.finished_rounds > snapshot.job.switches[0].round:
            client.stop(job_id)
    first = client.get(job_id).switches[0].round
    assert f"fixed:1 from round {first} on" in nitro_jobs("show", job_id)
    counts = [r.plan.num_actors for r in client.every_round(job_id) if r.result is not None]
    assert set(counts[first:]) == {1}
