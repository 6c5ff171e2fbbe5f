"""Environments whose `reset` and `step` do not return what Gymnasium's do."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from functions.actor.errors import RolloutError
from functions.actor.rollout import evaluate_episode, sample_fragment
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment
from shared.policy.numpy_policy import load_policy
from shared.policy.spec import POLICY_FORMAT

OBSERVATION = np.zeros(2, np.float32)
GOOD_START: Any = (OBSERVATION, {})
GOOD_STEP: Any = (OBSERVATION, 1.0, False, False, {})
_NAME = "Odd/Returns-v0"


class UntoldError(Exception):
    """Cannot be told."""

    def __repr__(self) -> str:
        raise KeyError("no text")

    __str__ = __repr__


class Returns(gymnasium.Env[Any, Any]):
    """Returns what a test says, from the second step of its episode on if it is to come late."""

    observation_space = Box(-1, 1, (2,))
    action_space = Discrete(2)
    start: Any = GOOD_START
    taken: Any = GOOD_STEP
    late = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.elapsed = 0
        return self.start

    def step(self, action: object) -> Any:
        self.elapsed += 1
        if self.late and self.elapsed < 3:
            return GOOD_STEP
        if isinstance(self.taken, Exception):
            raise self.taken
        return self.taken


def made(**_: Any) -> Returns:
    return Returns()


@pytest.fixture(autouse=True)
def returns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    gymnasium.register(_NAME, entry_point=made)

    def tell(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setattr(Returns, name, value)

    yield tell
    del gymnasium.registry[_NAME]


@pytest.mark.parametrize("size", [2, 3])
def test_a_reset_of_old_gym_is_refused_with_what_gymnasiums_returns(
    size: int, returns: Callable[..., None]
) -> None:
    returns(start=np.zeros(size, np.float32), observation_space=Box(-1, 1, (size,)))
    with pytest.raises(UnsupportedEnvironment) as refused:
        describe(EnvironmentRef(env_id=_NAME))
    assert "reset returned array([0" in str(refused.value)
    assert "reset returns two values: an observation, and a dict" in str(refused.value)


def test_a_reset_that_returns_a_dict_of_two_is_not_taken_for_its_keys(
    returns: Callable[..., None],
) -> None:
    parts = Dict(near=Box(-1, 1, (2,)), turn=Discrete(2))
    returns(start={"near": OBSERVATION, "turn": 0}, observation_space=parts)
    with pytest.raises(UnsupportedEnvironment) as refused:
        describe(EnvironmentRef(env_id=_NAME))
    told = "reset returns two values: an observation, and a dict of information; unpacked, its"
    assert f"{told} result is 'near' (str) and 'turn' (str)" in str(refused.value)
    assert place("reset") in str(refused.value)


def test_a_step_of_old_gym_is_refused_with_what_gymnasiums_returns_and_its_line(
    returns: Callable[..., None],
) -> None:
    returns(taken=(OBSERVATION, 1.0, False, {}))
    with pytest.raises(UnsupportedEnvironment) as refused:
        describe(EnvironmentRef(env_id=_NAME))
    assert "step returns five values: observation, reward, terminated" in str(refused.value)
    assert place("step") in str(refused.value)


@pytest.mark.parametrize("mode", ["sample", "evaluate"])
@pytest.mark.parametrize(
    ("taken", "says"),
    [
        ((OBSERVATION, None, False, False, {}), "the reward None (NoneType); a reward is one"),
        ((OBSERVATION, np.ones(3), False, False, {}), "the reward array([1., 1., 1.]) (ndarray)"),
        ((OBSERVATION, 1.0, False, {}), "step returns five values"),
    ],
)
def test_what_comes_later_in_a_rollout_is_told_likewise(
    mode: Any, taken: Any, says: str, returns: Callable[..., None]
) -> None:
    returns(taken=taken, late=True)
    message = failure(mode)
    assert message.startswith(f"{_NAME} failed at step 3: ")
    assert says in message
    assert place("step") in message


@pytest.mark.parametrize("mode", ["sample", "evaluate"])
def test_an_error_that_cannot_be_told_is_told_by_its_type_file_and_line(
    mode: Any, returns: Callable[..., None]
) -> None:
    returns(taken=UntoldError(), late=True)
    message = failure(mode)
    assert "UntoldError (its text raises KeyError)" in message
    assert f'File "{__file__}", line ' in message
    assert message.splitlines()[-1].strip() == "raise self.taken"


def test_so_it_is_when_the_environment_is_tried(returns: Callable[..., None]) -> None:
    returns(taken=UntoldError())
    with pytest.raises(UnsupportedEnvironment, match="UntoldError .its text raises KeyError"):
        describe(EnvironmentRef(env_id=_NAME))


def test_an_environments_own_trouble_with_unpacking_is_its_own(
    returns: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: Returns, action: object) -> Any:
        two: Any = (1, 2)
        a, b, c, d, e = two
        return a, b, c, d, e

    monkeypatch.setattr(Returns, "step", step)
    message = failure("sample")
    assert "five values" not in message
    assert "ValueError('not enough values to unpack (expected 5, got 2)')" in message


def failure(mode: Any) -> str:
    """Return how a rollout fails."""
    ref = EnvironmentRef(env_id=_NAME)
    fields: dict[str, Any] = {"job_id": "job", "round": 0, "attempt": 0, "actor_index": 0}
    task = RolloutTask(mode=mode, env=ref, steps=8, seed=1, policy_version=0, **fields)
    arrays = {
        "policy.0.weight": np.zeros((2, 2), np.float32),
        "policy.0.bias": np.zeros(2, np.float32),
    }
    metadata = {
        "format": POLICY_FORMAT,
        "network": "mlp",
        "activation": "tanh",
        "distribution": "categorical",
        "log_std": "none",
    }
    policy, env = load_policy(arrays, metadata), make_environment(ref)
    plays: dict[str, Callable[[], object]] = {
        "sample": lambda: sample_fragment(task, [env], policy),
        "evaluate": lambda: evaluate_episode(task, env, policy),
    }
    with pytest.raises(RolloutError) as failed:
        plays[mode]()
    return str(failed.value)


def place(method: str) -> str:
    """Return where a method of the environment is."""
    line = inspect.getsourcelines(getattr(Returns, method))[1]
    return f'File "{__file__}", line {line}, in {method}'
