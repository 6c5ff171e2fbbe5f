"""The dead-man switch: when it closes. What it closes is shown by `tests/lifecycle`."""

import subprocess
import sys
from pathlib import Path

import pytest

from functions.dead_man import handler as dead_man
from functions.dead_man.handler import Heartbeat, Settings, SettingsError, reason_to_close

NOW = 1_800_000_000.0
VARIABLES = {
    "NITRO_TABLE": "jobs",
    "NITRO_LAMBDA_FUNCTION": "nitro-actor",
    "NITRO_LAMBDA_QUALIFIER": "live",
    "NITRO_ECS_CLUSTER": "nitro",
    "NITRO_ECS_GPU_FAMILY": "gpu-learner",
    "NITRO_ECS_CPU_FAMILY": "cpu-learner",
}


def reason(*, until: float, at: float = NOW) -> str | None:
    # Only what is asked about counts.
    heartbeat = Heartbeat(at=at, until=-1, jobs={})
    return reason_to_close(heartbeat, until, now=NOW, silent_after_s=600)


@pytest.mark.parametrize("age_s", [-60, 0, 60, 600])
def test_a_living_scaler_with_jobs_in_their_time_is_left_alone(age_s: float) -> None:
    assert reason(at=NOW - age_s, until=NOW) is None
    assert reason(at=NOW - age_s, until=NOW + 3600) is None


@pytest.mark.parametrize(
    ("at", "until", "words"),
    [
        (NOW - 601, NOW + 3600, "silent for 601 s, 600 are allowed"),
        (NOW, 0, "no job wants it"),
        (NOW, NOW - 5, "5 s beyond"),
    ],
)
def test_it_closes_and_says_why(at: float, until: float, words: str) -> None:
    found = reason(at=at, until=until)
    assert found is not None
    assert words in found


def test_without_a_heartbeat_it_closes() -> None:
    assert "no scaler" in str(reason_to_close(None, 0.0, now=NOW, silent_after_s=600))


def test_settings_come_from_the_environment() -> None:
    settings = Settings.read({**VARIABLES, "NITRO_SILENT_AFTER_S": "120"})
    assert settings.families == ("cpu-learner", "gpu-learner")
    assert (settings.table, settings.silent_after_s) == ("jobs", 120)
    assert Settings.read(VARIABLES).silent_after_s == 600


@pytest.mark.parametrize("name", sorted(VARIABLES.keys() - {"NITRO_ECS_GPU_FAMILY"}))
@pytest.mark.parametrize("value", [None, "", " "])
def test_a_missing_variable_is_named(name: str, value: str | None) -> None:
    variables = {**VARIABLES, name: value}
    with pytest.raises(SettingsError, match=name):
        Settings.read({k: v for k, v in variables.items() if v is not None})


@pytest.mark.parametrize("text", ["", "ten", "0", "-1", "nan", "inf"])
def test_a_silence_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="NITRO_SILENT_AFTER_S"):
        Settings.read({**VARIABLES, "NITRO_SILENT_AFTER_S": text})


def test_the_file_works_alone_as_it_is_packed() -> None:
    folder = Path(dead_man.__file__).parent
    script = (
        "import sys, handler;"
        "ours = {'functions', 'services', 'shared', 'nitro', 'pydantic'} & set(sys.modules);"
        "assert not ours, ours; print(handler.handler.__module__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "handler"
