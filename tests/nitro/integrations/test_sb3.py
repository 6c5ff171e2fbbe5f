"""NitroPPO in the library's own interpreter, on a real local system (`make integrations-test`)."""

import json
import re
from typing import Any

import pytest

from tests.faults.rig import Rig
from tests.nitro.integrations.conftest import Start, finished, job_under_way, wait_until_lost

pytestmark = pytest.mark.integrations
_EXAMPLE = "examples/integrations/sb3_ppo.py"


@pytest.fixture(scope="module")
def checks(start_once: Start) -> dict[str, Any]:
    lines = finished(start_once("stable_baselines3", "tests/nitro/integrations/sb3_checks.py"))
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def test_the_number_of_actors_may_change_with_every_rollout(checks: dict[str, Any]) -> None:
    widths = checks["widths"]
    assert widths["columns"] == [2, 4, 3]
    # The callback ended the third at its first step.
    assert widths["steps_before"] == 32 * (2 + 4) + 3
    assert widths["steps_after"] == widths["steps_before"] + 32 * 3


def test_callbacks_are_told_of_every_episode(checks: dict[str, Any]) -> None:
    widths = checks["widths"]
    assert sorted(widths["told"]) == sorted(widths["buffered"])
    assert widths["told"]


def test_a_saved_model_predicts_alone_and_learns_with_a_pool(checks: dict[str, Any]) -> None:
    widths = checks["widths"]
    assert widths["loaded_is_equal"]
    assert widths["loaded_has_learned"]
    assert widths["loaded_alone_is_equal"]
    assert widths["refused_without_pool"].startswith("pool: this model has none")


def test_the_end_of_the_job_ends_the_training(checks: dict[str, Any]) -> None:
    assert checks["end"] == {"steps": 2 * 2 * 32, "stopped": "max_rounds"}


def test_what_a_model_predicts_is_what_the_environment_takes(checks: dict[str, Any]) -> None:
    assert checks["offsets"] == [True] * 10


@pytest.mark.parametrize("kind", ["plain", "normalised"])
def test_actors_and_library_agree_on_probabilities_and_advantages(
    checks: dict[str, Any], kind: str
) -> None:
    """The oracle of advantages goes part by part of every episode, with what lies beyond a cut."""
    assert checks[kind]["learned"]
    assert checks[kind]["scaled"] == (kind == "normalised")
    for found in checks[kind]["off"]:
        assert found["cut"] > 0
        assert found["log_prob"] < 1e-4
        assert found["advantage"] < 1e-3
    assert checks[kind]["measured"] == pytest.approx([0.0, 1.0], abs=1e-3)


def test_an_extractor_of_the_values_own_normalises_as_well(checks: dict[str, Any]) -> None:
    assert checks["value scales"] == [True, True]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("gSDE", "use_sde"),
        ("Dict", "Dict observations"),
        ("VecNormalize", "normalize_observations=True"),
        ("discrete", "must be vectors"),
        ("activation", "ELU"),
        ("extractor", "features_extractor_class: actors would not run Normed"),
        ("two extractors", "normalize_observations: takes the place"),
        ("n_steps", "the pool's fragment (32), got 64"),
    ],
)
def test_what_actors_cannot_do_is_refused_by_name(
    checks: dict[str, Any], what: str, said: str
) -> None:
    assert said in checks["refusals"][what]


def test_the_example_learns_although_actors_are_killed(rig: Rig, start: Start) -> None:
    known = {job.job_id for job in rig.client.every_job()}
    example = start("stable_baselines3", _EXAMPLE)
    job_under_way(rig, known)
    before = rig.stats()["crashes_on_purpose"]
    rig.break_actors(crash_next=2)
    lines = finished(example)
    assert rig.stats()["crashes_on_purpose"] == before + 2
    reached = next(line for line in lines if line.startswith("return "))
    assert float(reached.split()[1]) >= 400
    counts = next(line for line in lines if line.startswith("actors of each round"))
    assert len(set(re.findall(r"\d+", counts))) > 1


def test_the_job_of_a_killed_program_ends(rig: Rig, start: Start) -> None:
    known = {job.job_id for job in rig.client.every_job()}
    example = start("stable_baselines3", _EXAMPLE)
    job_id = job_under_way(rig, known)
    example.kill()
    assert wait_until_lost(rig, job_id) == "client_gone"
