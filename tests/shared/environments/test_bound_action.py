"""Bounds for actions that have none."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.environment_spec import ContinuousActionSpec
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from shared.environments.state.compliance import check_compliance

_NAME = "Odd/Unbounded-v0"
_BOUND = {"name": "BoundAction", "kwargs": {"low": -2.0, "high": 3.0}}


class Unbounded(gymnasium.Env[Any, Any]):
    """Adds up actions without bounds, but for the second one's lower."""

    observation_space = Box(-np.inf, np.inf, (2,))
    action_space = Box(np.array([-np.inf, 0], np.float32), np.full(2, np.inf, np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.total = np.zeros(2, np.float32)
        return self.total.copy(), {}

    def step(self, action: Any) -> Any:
        self.total = self.total + action
        return self.total.copy(), 0.0, False, False, {}

    def get_state(self) -> dict[str, Any]:
        return {"total": self.total}

    def set_state(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    gymnasium.register(_NAME, entry_point=lambda **_: Unbounded())
    yield
    del gymnasium.registry[_NAME]


def ref(**fields: Any) -> EnvironmentRef:
    return EnvironmentRef.model_validate({"env_id": _NAME, **fields})


def test_the_wrapper_that_is_named_where_bounds_are_missing_sets_them() -> None:
    with pytest.raises(UnsupportedEnvironment, match=r"wrappers=\[\{\"name\": \"BoundAction\", "):
        describe(ref())
    bounded = describe(ref(wrappers=[_BOUND]))
    assert bounded.action == ContinuousActionSpec(low=(-2.0, 0.0), high=(3.0, 3.0))
    assert bounded.keeps_state


def test_actions_reach_the_environment_as_they_are() -> None:
    env = make_environment(ref(wrappers=[_BOUND]))
    env.reset(seed=0)
    assert env.step(np.array([-1.5, 2.5], np.float32))[0].tolist() == [-1.5, 2.5]
    assert (
        check_compliance(lambda: make_environment(ref(wrappers=[_BOUND])), num_steps=50).why_not
        is None
    )


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, -2.0)])
def test_bounds_that_are_none_are_refused(low: float, high: float) -> None:
    wrapper = {"name": "BoundAction", "kwargs": {"low": low, "high": high}}
    with pytest.raises(UnsupportedEnvironment, match="must be finite, and in this order"):
        describe(ref(wrappers=[wrapper]))
