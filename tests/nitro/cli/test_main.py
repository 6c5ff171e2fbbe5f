import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.errors import EXIT_FAILED, EXIT_USAGE
from shared.artifacts.store import COST_FILE, JOB_FILE
from tests.nitro.synthetic_run import JOB_ID, cost, write_run

COMMANDS = [
    ["train"],
    ["up"],
    ["evaluate"],
    ["plot"],
    ["check-env"],
    ["doctor"],
    ["fields"],
    ["presets"],
    ["runs", "list"],
    ["runs", "show"],
    ["runs", "compare"],
    ["jobs", "list"],
    ["jobs", "show"],
    ["jobs", "stop"],
    ["jobs", "resume"],
    ["jobs", "delete"],
    ["jobs", "scale"],
    ["policies"],
    ["scheduler", "train"],
]


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NITRO_API_URL", "NITRO_TOKEN", "NITRO_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def nitro(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_shows_examples(command: list[str]) -> None:
    result = nitro(*command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert f"$ nitro {' '.join(command)}" in result.output


def test_help_loads_no_heavy_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "nitro.cli.main", "train", "--help"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines()}
    assert "typer" in loaded
    assert not loaded & {"matplotlib", "httpx", "numpy", "torch", "gymnasium", "yaml"}


def test_presets_prints_values_with_their_sources() -> None:
    result = nitro("presets", "ppo", "--preset", "standard", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)[0]["hyperparameters"]
    (clip,) = (row for row in rows if row["name"] == "clip")
    assert (clip["value"], clip["source"]) == (0.2, "CleanRL")
    assert "CleanRL" in nitro("presets", "ppo").output
    refused = nitro("presets", "trpo")
    assert refused.exit_code == EXIT_USAGE
    assert "NAME: must be one of" in refused.output


def test_a_dry_run_prints_the_job_and_starts_nothing(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result = nitro(
        *("train", "Walker2d-v5", "--rounds", "5", "--seed", "3", "--actors", "4:16"),
        *("--scaling", "fixed:8", "--budget-usd", "0.5", "--target-return", "3000"),
        *("--steps-per-actor", "128", "--eval-every", "2", "--eval-episodes", "3"),
        *("--algorithm", "impact", "--preset", "standard", "--set", "hyperparameters.clip=0.2"),
        *("--dry-run", "--runs-dir", str(runs)),
    )
    assert result.exit_code == 0, result.output
    job = json.loads(result.stdout)
    assert (job["env_id"], job["seed"], job["steps_per_actor"]) == ("Walker2d-v5", 3, 128)
    assert (job["actors"]["min"], job["actors"]["max"]) == (4, 16)
    assert job["actors"]["own"] == "auto"
    assert job["scaling"] == {"policy": "fixed", "num_actors": 8}
    assert job["stop"]["max_rounds"] == 5
    assert job["stop"]["budget_usd"] == 0.5
    assert job["stop"]["target_return"] == 3000
    assert job["evaluation"] == {"every_rounds": 2, "episodes": 3}
    assert (job["algorithm"], job["preset"]) == ("impact", "standard")
    assert job["hyperparameters"]["clip"] == 0.2
    assert job["hyperparameters"]["observation_normalisation"] is True
    assert not runs.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "stop.max_rounds: "),
        (["--actors", "9:8"], "actors: min (9) must not exceed max (8)"),
        (["--budget-usd", "0"], "stop.budget_usd: "),
        (["--budget-usd", "nan"], "stop.budget_usd: "),
        (["--seed", "-1"], "seed: "),
        (["--algorithm", "trpo"], "algorithm: "),
        (["my.envs:Env-v0"], "write Env-v0 and add --environment-package my.envs"),
        (["os;x:Env-v0"], "env_id: must be a registered name"),
        (["--set", "sede=1"], "sede: no such field; did you mean seed?"),
        (["--spec", "missing.yaml"], "--spec missing.yaml: cannot be read"),
        (["--resume", "job", "--seed", "1"], "--resume: seed cannot change in a job"),
        (["--api-url", "example.com"], "--api-url: must start with http"),
        (["--api-url", "https://example.com", "--processes", "2"], "--processes: is for a local"),
        (["--api-url", "https://example.com"], "no token for https://example.com"),
    ],
)
def test_bad_input_is_lines_on_stderr_and_exit_code_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    runs = tmp_path / "runs"
    result = nitro("train", *arguments, "--json", "--runs-dir", str(runs))
    assert result.exit_code == EXIT_USAGE, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert not runs.exists()


OURS_AND_THEIRS = [
    ("--learning-rate", "--lr", "0.001", 0.001),
    ("--discount", "--gamma", "0.9", 0.9),
    ("--gae-lambda", "--gae-lambda", "0.8", 0.8),
    ("--clip", "--clip-range", "0.3", 0.3),
    ("--entropy-coefficient", "--ent-coef", "0.02", 0.02),
    ("--num-epochs", "--n-epochs", "3", 3),
    ("--minibatch-size", "--batch-size", "32", 32),
    ("--hidden-sizes", "--net-arch", "[32, 16]", [32, 16]),
]


@pytest.mark.parametrize(("ours", "theirs", "text", "value"), OURS_AND_THEIRS)
def test_common_hyperparameters_are_options_by_our_and_by_familiar_names(
    ours: str, theirs: str, text: str, value: object
) -> None:
    name = ours.removeprefix("--").replace("-", "_")
    for option in (ours, theirs):
        job = json.loads(nitro("train", "CartPole-v1", option, text, "--dry-run").stdout)
        assert job["hyperparameters"][name] == value


def test_lengths_and_sizes_have_familiar_names_too() -> None:
    length = ("--total-timesteps", "4e3", "--n-steps", "50", "--no-observation-normalisation")
    job = json.loads(nitro("train", "CartPole-v1", *length, "--dry-run").stdout)
    assert (job["stop"]["max_rounds"], job["steps_per_actor"]) == (10, 50)
    assert job["hyperparameters"]["observation_normalisation"] is False
    whole = ("--samples-per-round", "512", "--rounds", "3", "--dry-run")
    assert json.loads(nitro("train", "CartPole-v1", *whole).stdout)["samples_per_round"] == 512


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--vf-coef", "write --value-coefficient"),
        ("--objective", "write --detector.objective or --learner-functions.objective"),
        ("--device", "uses its GPU if it has one"),
    ],
)
def test_an_option_of_another_library_is_told_what_it_is_here(option: str, told: str) -> None:
    result = nitro("train", option, "1")
    assert result.exit_code == EXIT_USAGE
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_every_field_is_an_option_by_its_name() -> None:
    named = ("--value-coefficient", ".7", "--detector.num-samples=77", "--envs-per-actor", "2")
    more = ("--layer-norm", "--no-episodes.resize", "--env-kwargs.sutton_barto_reward", "True")
    short = ("--tags", "a,b", "--value-hidden-sizes", "8")
    job = json.loads(nitro("train", "CartPole-v1", *named, *more, *short, "--dry-run").stdout)
    hyperparameters = job["hyperparameters"]
    assert (hyperparameters["value_coefficient"], hyperparameters["layer_norm"]) == (0.7, True)
    assert (hyperparameters["value_hidden_sizes"], job["tags"]) == ([8], ["a", "b"])
    assert (job["detector"]["num_samples"], job["envs_per_actor"]) == (77, 2)
    assert (job["episodes"]["resize"], job["env_kwargs"]) == (False, {"sutton_barto_reward": True})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--value-coefficient",), "Invalid value for --value-coefficient: give a value"),
        (("--episodes", "5"), "No such option: --episodes"),
        (("--cpu", "2"), "write --learner-task.cpu"),
        (("--policy", "MlpPolicy"), "the network depends on the observations"),
        (("--set", "episodes=5"), "episodes: "),
        (("--resume", "hopper", "--layer-norm"), "hyperparameters.layer_norm cannot change"),
    ],
)
def test_what_is_no_option_of_a_field_is_refused(options: tuple[str, ...], told: str) -> None:
    refused = nitro("train", *options, "--dry-run")
    assert refused.exit_code == EXIT_USAGE
    assert told in " ".join(refused.stderr.replace("│", " ").split())


def test_an_unknown_option_is_exit_code_2() -> None:
    assert nitro("train", "--round", "5").exit_code == EXIT_USAGE


def test_an_api_that_is_not_there_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NITRO_TOKEN", "token")
    result = nitro("jobs", "list", "--api-url", "http://127.0.0.1:1", "--runs-dir", str(tmp_path))
    assert result.exit_code == EXIT_FAILED
    assert "no answer from http://127.0.0.1:1" in result.stderr


def test_jobs_without_a_local_system_are_those_of_the_run_folders(tmp_path: Path) -> None:
    where = ("--runs-dir", str(tmp_path))
    assert nitro("jobs", "list", *where).stdout == "no jobs\n"
    folder = write_run(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / JOB_FILE).write_text("{")
    listed = nitro("jobs", "list", *where)
    assert listed.exit_code == 0
    assert JOB_ID in listed.stdout
    assert "no local system is up: read from the run folders" in listed.stderr
    assert str(tmp_path / "broken" / JOB_FILE) in listed.stderr
    assert nitro("jobs", "list", "--status", "running", *where).stdout == "no jobs\n"
    assert "12/12" in nitro("jobs", "show", JOB_ID, *where).stdout
    (folder / COST_FILE).write_text(cost().model_dump_json())
    assert "test prices" in nitro("jobs", "show", JOB_ID, *where).stdout
    assert json.loads(nitro("jobs", "show", JOB_ID, "--json", *where).stdout)["job_id"] == JOB_ID


def test_telling_a_job_something_without_a_local_system_says_how_to_get_one(tmp_path: Path) -> None:
    result = nitro("jobs", "stop", JOB_ID, "--runs-dir", str(tmp_path))
    assert result.exit_code == EXIT_USAGE
    assert "nitro up" in result.stderr


def test_an_unknown_status_lists_the_known_ones() -> None:
    result = nitro("jobs", "list", "--status", "sleeping")
    assert result.exit_code == EXIT_USAGE
    assert "--status: must be one of checking, queued, running" in result.stderr


def test_plot_writes_the_picture_and_says_where(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=3)
    result = nitro("plot", JOB_ID, "--runs-dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()) == folder / "plots" / "run.png"
    assert (folder / "plots" / "run.png").stat().st_size > 10_000


def test_plot_of_several_runs_writes_one_picture(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path, job_id=name, rounds=6)
    result = nitro("plot", "one", "two", "-o", str(tmp_path / "x.pdf"), "--runs-dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert Path(result.stdout.strip()).read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("command", ["plot", "evaluate"])
def test_a_run_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    result = nitro(command, "nowhere", "--runs-dir", str(tmp_path))
    assert result.exit_code == EXIT_USAGE
    assert "RUN: no run at 'nowhere'" in result.stderr


def test_the_version_is_shown() -> None:
    result = nitro("--version")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("nitro ")


def test_experiments_are_listed_without_what_running_them_needs() -> None:
    without = "import sys; sys.modules['scipy'] = None; from nitro.cli.main import main; main()"
    command = [sys.executable, "-c", without, "experiment"]
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert "scalability" in listed.stdout
    refused = subprocess.run([*command, "run", "gain"], capture_output=True, text=True, check=False)
    assert refused.returncode == EXIT_USAGE
    assert "this needs scipy: pip install" in refused.stderr


@pytest.mark.parametrize("command", [["experiment", "list"], ["scheduler", "train", "Hopper-v5"]])
def test_what_lies_in_the_source_tree_is_missed_by_name(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "experiments", None)
    result = nitro(*command)
    assert result.exit_code == EXIT_USAGE
    assert "no package 'experiments': experiments come with the source tree" in result.stderr
