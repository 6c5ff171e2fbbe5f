"""`nitro check-env`: what it prints, and how it ends."""

import json
import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.errors import EXIT_FAILED, EXIT_USAGE


class OwnCartPole(CartPoleEnv):
    """Does not say what its state is."""


class BrokenCartPole(CartPoleEnv):
    """Cannot step for long."""

    num_steps = 0

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {}

    def set_state(self, state: object) -> None: ...

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        if self.num_steps == 5:
            raise RuntimeError("out of order")
        return super().step(action)  # type: ignore[no-untyped-call]


class DictReset(CartPoleEnv):
    """Resets as in old Gym, with parts that its space does not have."""

    def reset(self, **_: object) -> Any:
        return {"near": 0.0, "goal": 0.0}


class RandomCartPole(CartPoleEnv):
    """Begins where nobody knows."""

    def reset(self, **_: object) -> Any:
        return super().reset(seed=int.from_bytes(os.urandom(4), "big"))


class WrongCartPole(CartPoleEnv):
    """Says that its state is nothing."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {}

    def set_state(self, state: object) -> None:
        self.state = np.zeros(4)


class NaNReward(CartPoleEnv):
    """Pays NaN in the third step of an episode."""

    num_steps = 0

    def reset(self, **more: Any) -> Any:
        self.num_steps = 0
        return super().reset(**more)

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        observation, reward, *rest = super().step(action)  # type: ignore[no-untyped-call]
        return observation, np.nan if self.num_steps == 3 else reward, *rest


class InfiniteObservation(CartPoleEnv):
    """Observes a number in its third step that is infinite as a policy's float32."""

    num_steps = 0

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {"numbers": np.append(np.asarray(self.state), self.num_steps)}

    def set_state(self, state: dict[str, NDArray[Any]]) -> None:
        *self.state, self.num_steps = state["numbers"].tolist()

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        observation, *rest = super().step(action)  # type: ignore[no-untyped-call]
        seen = observation.astype(np.float64)
        seen[2] *= 1e300 if self.num_steps == 3 else 1.0
        return seen, *rest


KINDS: dict[str, type[CartPoleEnv]] = {
    "Own-v0": OwnCartPole,
    "Broken-v0": BrokenCartPole,
    "DictReset-v0": DictReset,
    "Random-v0": RandomCartPole,
    "Wrong-v0": WrongCartPole,
    "NaNReward-v0": NaNReward,
    "InfiniteObservation-v0": InfiniteObservation,
}


@pytest.fixture
def own_environments() -> Iterator[None]:
    for env_id, kind in KINDS.items():
        gymnasium.register(env_id, entry_point=lambda kind=kind, **_: kind())
    yield
    for env_id in KINDS:
        del gymnasium.registry[env_id]


def check_env(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check-env", *arguments])


def test_an_environment_that_is_kept_ends_with_0() -> None:
    result = check_env("CartPole-v1", "--steps", "100")
    assert result.exit_code == 0, result.output
    assert "yes, bit for bit" in result.output
    assert "4 numbers in a row" in result.output
    assert "100 steps" in result.output


def test_keyword_arguments_and_wrappers_are_those_of_a_job() -> None:
    wrappers = 'wrappers=[{"name": "TimeAwareObservation"}]'
    limit = "env_kwargs.max_episode_steps=10"
    result = check_env("Pendulum-v1", "--steps=100", "--set", wrappers, "--set", limit, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["env_id"], found["why_not"]) == ("Pendulum-v1", None)
    assert (found["num_steps"], found["num_ends"]) == (100, 10)
    assert found["num_left"] > found["num_left_at_ends"] > 0
    assert 0 < found["snapshot_bytes"] < 1000


@pytest.mark.usefixtures("own_environments")
def test_an_environment_that_is_not_kept_is_replayed_and_says_at_what_cost() -> None:
    result = check_env("Own-v0", "--steps=100", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["how"] == "replayed"
    assert "the state of OwnCartPole " in found["why"]
    assert found["repeated"]["repeats"] == "reused"
    assert found["job"] == "episodes of up to 2,048 steps continue, longer ones start over"
    text = " ".join(check_env("Own-v0", "--steps=100").output.split())
    assert "s to repeat 1,024 steps" in text


@pytest.mark.usefixtures("own_environments")
@pytest.mark.parametrize(
    ("env_id", "how", "why"),
    [
        ("Random-v0", "alive only", "the same seed and actions gave other observations"),
        ("Wrong-v0", "none", "Fix get_state and set_state"),
    ],
)
def test_an_environment_whose_episodes_cannot_go_on_ends_with_1_and_says_why(
    env_id: str, how: str, why: str
) -> None:
    limit = "env_kwargs.max_episode_steps=1000"
    result = check_env(env_id, "--steps=100", "--set", limit, "--json")
    assert result.exit_code == EXIT_FAILED
    found = json.loads(result.stdout)
    assert found["how"] == how
    assert why in found["why"]
    if how == "alive only":
        assert "hold whole episodes: 2 actors in a round" in found["job"]


@pytest.mark.usefixtures("own_environments")
@pytest.mark.parametrize(
    ("env_id", "how", "found"),
    [
        ("NaNReward-v0", "replayed", "step 3: the reward is nan. Training drops such an episode"),
        ("InfiniteObservation-v0", "kept", "step 3: 1 of the observation's 4 numbers not finite ("),
    ],
)
def test_numbers_that_are_not_finite_are_reported_with_their_step(
    env_id: str, how: str, found: str
) -> None:
    result = check_env(env_id, "--steps=20", "--json")
    assert result.exit_code == EXIT_FAILED
    report = json.loads(result.stdout)
    assert report["how"] == how
    assert report["not_finite"].startswith(found)
    assert report["repeated"] is None or report["repeated"]["repeats"] == "reused"


@pytest.mark.usefixtures("own_environments")
def test_an_environment_that_fails_by_itself_is_told_apart() -> None:
    result = check_env("Broken-v0")
    assert result.exit_code == EXIT_FAILED
    assert "Broken-v0 failed in the undisturbed episode: RuntimeError" in result.output


@pytest.mark.usefixtures("own_environments")
def test_a_reset_without_information_is_told_what_gymnasiums_returns() -> None:
    result = check_env("DictReset-v0")
    assert result.exit_code == EXIT_USAGE
    told = " ".join(result.output.split())
    assert "reset returns two values: an observation, and a dict of information" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "ENV: name an environment"),
        (["Hoper-v5"], "did you mean Hopper-v5"),
        (["CartPole-v1", "--environment-package", "none_of_mine"], "cannot be imported"),
        (["CartPole-v1", "--set", "env_kwargs.x=1"], "env_kwargs.x is no keyword argument"),
    ],
)
def test_a_wrong_command_is_refused(arguments: list[str], message: str) -> None:
    result = check_env(*arguments)
    assert result.exit_code == EXIT_USAGE
    assert message in result.output
