"""NitroEnvRunner in RLlib's own interpreter, on a real local system (`make integrations-test`)."""

import json
import math
import re
from typing import Any

import pytest

from tests.faults.rig import Rig
from tests.nitro.integrations.conftest import Start, finished, job_under_way, wait_until_lost

pytestmark = pytest.mark.integrations
_EXAMPLE = "examples/integrations/rllib_ppo.py"


@pytest.fixture(scope="module")
def checks(start_once: Start) -> dict[str, Any]:
    lines = finished(start_once("rllib", "tests/nitro/integrations/rllib_checks.py"))
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def test_the_number_of_actors_may_change_with_every_iteration(checks: dict[str, Any]) -> None:
    widths = checks["widths"]
    assert widths["actors"] == [2, 4, 2]  # the last of a job of its own
    assert widths["steps"] == [64, 128, 64]
    assert widths["weights_seq_no"] == [0, 1]
    assert widths["episode_return"] > 0
    assert all(math.isfinite(kl) for kl in widths["kl"])


def test_a_checkpoint_goes_on(checks: dict[str, Any]) -> None:
    assert checks["widths"]["restored_is_equal"]
    assert checks["widths"]["lifetime"] == 64 + 128 + 64


def test_evaluation_is_rllibs_own(checks: dict[str, Any]) -> None:
    assert checks["widths"]["evaluation"] > 0


def test_an_evaluation_takes_actions_of_the_environments_space(checks: dict[str, Any]) -> None:
    assert checks["offsets"] == [1.0] * 16


@pytest.mark.parametrize("kind", ["state dependent", "free"])
def test_actors_and_rllib_agree_on_probabilities(checks: dict[str, Any], kind: str) -> None:
    found = checks[kind]
    assert found["off"] < 1e-4
    assert found["steps"] == 2 * 32
    assert found["cut"] == 2 * 1 or found["cut"] == 2 * 2  # every 20 steps, wherever they began
    assert found["going_on"] > 0


@pytest.mark.parametrize("algorithm", ["appo", "impala"])
def test_other_algorithms_train(checks: dict[str, Any], algorithm: str) -> None:
    assert checks[algorithm]["steps"] >= 2 * 64
    assert checks[algorithm]["loss_is_finite"]


def test_the_end_of_the_job_is_said(checks: dict[str, Any]) -> None:
    assert checks["end"].startswith("the pool has stopped (max_rounds)")


def test_the_number_that_the_fragment_goes_by_is_the_pools(checks: dict[str, Any]) -> None:
    assert checks["few settings"] == {"policy": "nitro", "actors": 4, "fragment": 1000}
    assert checks["fragments"] == [1334, 500]  # the fewest actors bring 4,000 steps, or few more


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("runners", "num_env_runners: must be 0"),
        ("connector", "env_to_module_connector"),
        ("action connector", "module_to_env_connector"),
        ("explore", "explore: must be True"),
        ("map", "nitro.policy_map"),
        ("actions", "normalize_actions"),
        ("fragment", "rollout_fragment_length"),
        ("lstm", "use_lstm"),
        ("activation", "ELU"),
    ],
)
def test_what_actors_cannot_do_is_refused_by_name(
    checks: dict[str, Any], what: str, said: str
) -> None:
    assert said in checks["refusals"][what]


def test_the_example_learns_although_actors_are_killed(rig: Rig, start: Start) -> None:
    known = {job.job_id for job in rig.client.every_job()}
    example = start("rllib", _EXAMPLE)
    job_under_way(rig, known)
    before = rig.stats()["crashes_on_purpose"]
    rig.break_actors(crash_next=2)
    lines = finished(example)
    assert rig.stats()["crashes_on_purpose"] == before + 2
    reached = [line for line in lines if line.startswith("return ")]
    assert float(reached[-1].split()[1]) >= 400
    counts = next(line for line in lines if line.startswith("actors of each iteration"))
    assert len(set(re.findall(r"\d+", counts))) > 1


def test_the_job_of_a_killed_program_ends(rig: Rig, start: Start) -> None:
    known = {job.job_id for job in rig.client.every_job()}
    example = start("rllib", _EXAMPLE)
    job_id = job_under_way(rig, known)
    example.kill()
    assert wait_until_lost(rig, job_id) == "client_gone"
