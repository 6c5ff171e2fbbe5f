"""What actors cannot import is refused before anything starts, with the way out."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import nitro
from nitro.python.makers import maker_name


def make_pole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


_replaced = make_pole


def make_pole() -> gymnasium.Env[Any, Any]:  # type: ignore[no-redef] # noqa: F811
    return gymnasium.make("CartPole-v1")


def _nested() -> Callable[[], gymnasium.Env[Any, Any]]:
    def inner() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1")

    return inner


def test_a_function_or_class_of_a_module_has_a_name() -> None:
    assert maker_name(make_pole) == f"{__name__}:make_pole"
    assert maker_name(CartPoleEnv) == "gymnasium.envs.classic_control.cartpole:CartPoleEnv"


def _of_a_script() -> Callable[[], gymnasium.Env[Any, Any]]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def make_maze(): ...", namespace)  # noqa: S102 - as a notebook's cell does
    made: Callable[[], gymnasium.Env[Any, Any]] = namespace["make_maze"]
    return made


@pytest.mark.parametrize(
    ("maker", "message"),
    [
        (lambda: gymnasium.make("CartPole-v1"), "cannot import .*lambda.*a file of its own"),
        (_nested(), "cannot import .*inner.*a file of its own"),
        (_of_a_script(), "make_maze is another object by now"),
        (_replaced, "make_pole is another object by now"),
        (functools.partial(gymnasium.make, "CartPole-v1"), "got partial.*env_kwargs"),
        (CartPoleEnv(), "got CartPoleEnv.*env_kwargs"),
    ],
)
def test_anything_else_is_refused_with_what_to_do(maker: Any, message: str) -> None:
    with pytest.raises(nitro.CommandError, match=f"^env: .*{message}"):
        nitro.train(maker)
