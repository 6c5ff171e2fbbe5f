"""Simulators of others on the MuJoCo that is pinned, where they are installed."""

import pytest

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("env_id", "size"), [("FetchReach-v4", 16), ("AntMaze_UMaze-v5", 109), ("HandReach-v3", 93)]
)
def test_robots_are_built_and_their_parts_are_a_vector(env_id: str, size: int) -> None:
    pytest.importorskip("gymnasium_robotics")
    assert describe(EnvironmentRef(env_id=env_id)).observation.shape == (size,)


def test_tasks_of_dm_control_are_built_and_refused_for_their_short_seeds_alone() -> None:
    pytest.importorskip("dm_control")
    pytest.importorskip("shimmy")
    ref = EnvironmentRef(env_id="dm_control/walker-walk-v0")
    env = make_environment(ref)
    assert env.reset(seed=1)[0].shape == (24,)
    env.step(env.action_space.sample())
    with pytest.raises(UnsupportedEnvironment, match=r"Seed must be between 0 and 2\*\*32 - 1"):
        describe(ref)
