"""examples/highway_env: its episodes go on bit for bit, and are drawn without a screen."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from nitro.runs.drawing.video import drawing_environment
from nitro.spec.spec_file import build_spec
from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.packages import import_environment_packages
from shared.environments.state.compliance import check_compliance
from tests.documents import ROOT

pytest.importorskip("highway_env")
EXAMPLE = ROOT / "examples" / "highway_env"
TASKS = ("Driving/HighwayFast-v0", "Driving/Merge-v1", "Driving/Racetrack-v1")


@pytest.fixture(scope="module", autouse=True)
def _on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLE))
    import_environment_packages(["driving"])
    yield
    sys.path.remove(str(EXAMPLE))


@pytest.mark.parametrize("env_id", TASKS)
def test_its_episodes_go_on_elsewhere(env_id: str) -> None:
    ref = EnvironmentRef(env_id=env_id)
    found = check_compliance(lambda: make_environment(ref), num_steps=80, num_left=24)
    assert found.why_not is None
    assert found.num_left > found.num_left_at_ends > 0


def test_what_is_not_known_of_a_vehicle_is_not_kept() -> None:
    env: Any = make_environment(EnvironmentRef(env_id="Driving/Merge-v1")).unwrapped
    env.road.vehicles[1].cargo = object()
    with pytest.raises(ValueError, match="a object is not kept"):
        env.get_state()
    env.road.vehicles[1] = object()
    with pytest.raises(ValueError, match="a object is not known; known: Vehicle, MDPVehicle"):
        env.get_state()


def test_it_is_drawn_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env: Any = drawing_environment(EnvironmentRef(env_id="Driving/HighwayFast-v0"))
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (150, 600, 3)
    assert len({tuple(pixel) for pixel in picture.reshape(-1, 3).tolist()}) > 3, "road and vehicles"
    env.close()


def test_its_job_is_one() -> None:
    job = build_spec(file=EXAMPLE / "job.yaml", options={})
    assert describe(job.environment_ref).keeps_state
    assert job.resolved().episodes.go_on
