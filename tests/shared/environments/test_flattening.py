"""What is advised where observations have several parts; whatever is advised works."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from shared.contracts.job_spec import EnvironmentRef, WrapperRef
from shared.environments.building import describe
from shared.environments.spaces import UnsupportedEnvironment

VECTOR = Box(-1, 1, (3,), np.float32)
CAMERA = Box(0, 255, (64, 64, 3), np.uint8)
_NAME = "Odd/Parts-v0"


class Words(Space[str]):
    """A space of somebody else's, as MiniGrid's missions."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "open the red door"


class Parts(gymnasium.Env[Any, Any]):
    """Has spaces, and ends at once."""

    action_space = Discrete(2)

    def __init__(self, observation: Space[Any]) -> None:
        self.observation_space = observation

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: object) -> Any:
        return self.observation_space.sample(), 1.0, True, False, {}


def refusal(space: Space[Any]) -> str:
    """Return how observations of a space are refused."""
    with pytest.raises(UnsupportedEnvironment) as refused:
        described(space)
    return str(refused.value)


def described(space: Space[Any], *wrappers: WrapperRef) -> Any:
    gymnasium.register(_NAME, entry_point=lambda **_: Parts(space))
    try:
        return describe(EnvironmentRef(env_id=_NAME, wrappers=wrappers))
    finally:
        del gymnasium.registry[_NAME]


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3),
        MultiDiscrete([2, 3]),
        MultiBinary(4),
        Dict(a=VECTOR, b=Dict(c=Discrete(3))),
        Tuple((VECTOR, VECTOR)),
    ],
    ids=str,
)
def test_flattening_is_advised_where_it_works(space: Space[Any]) -> None:
    assert "wrappers=[{name: FlattenObservation}]" in refusal(space)
    assert described(space, WrapperRef(name="FlattenObservation")).observation.dtype == "float32"


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (Dict(image=Box(0, 255, (7, 7, 3), np.uint8), mission=Words()), "part mission .*numbers"),
        (
            Dict(observation=VECTOR, action_mask=MultiBinary(3)),
            "part action_mask .*mask",
        ),
        (Dict(state=VECTOR, eyes=Dict(left=CAMERA)), "part eyes.left is a picture"),
        (Tuple((VECTOR, CAMERA)), "part 1 is a picture"),
        (Discrete(2**21), "keep fewer numbers"),
    ],
    ids=["words", "mask", "cameras", "a camera", "huge"],
)
def test_elsewhere_it_is_not(space: Space[Any], says: str) -> None:
    text = refusal(space)
    assert "FlattenObservation" not in text
    assert "a wrapper of your own" in text
    with pytest.raises(UnsupportedEnvironment, match=says):
        described(space)
