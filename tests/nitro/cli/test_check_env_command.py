"""`nitro check-env`: what it prints, and how it ends."""

import json
from collections.abc import Iterator
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from nitro.cli.main import app
from nitro.errors import EXIT_FAILED, EXIT_USAGE


class OwnCartPole(CartPoleEnv):
    """Does not say what its state is."""


class BrokenCartPole(CartPoleEnv):
    """Cannot step."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {}

    def set_state(self, state: object) -> None: ...

    def step(self, action: object) -> None:  # type: ignore[override]
        raise RuntimeError("out of order")


@pytest.fixture
def own_environments() -> Iterator[None]:
    gymnasium.register("Own-v0", entry_point=lambda **_: OwnCartPole())
    gymnasium.register("Broken-v0", entry_point=lambda **_: BrokenCartPole())
    yield
    del gymnasium.registry["Own-v0"], gymnasium.registry["Broken-v0"]


def check_env(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check-env", *arguments])


def test_an_environment_that_is_kept_ends_with_0() -> None:
    result = check_env("CartPole-v1", "--steps", "100")
    assert result.exit_code == 0, result.output
    assert "yes, bit for bit" in result.output
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
def test_an_environment_that_is_not_kept_ends_with_1_and_says_why() -> None:
    result = check_env("Own-v0", "--json")
    assert result.exit_code == EXIT_FAILED
    assert "the state of OwnCartPole " in json.loads(result.stdout)["why_not"]
    assert "no: the state of OwnCartPole" in check_env("Own-v0").output


@pytest.mark.usefixtures("own_environments")
def test_an_environment_that_fails_by_itself_is_told_apart() -> None:
    result = check_env("Broken-v0")
    assert result.exit_code == EXIT_FAILED
    assert "Broken-v0 failed in the undisturbed game: RuntimeError" in result.output


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
