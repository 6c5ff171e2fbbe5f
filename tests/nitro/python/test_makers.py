"""What actors cannot import is refused before anything starts, with the way out."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import nitro
from nitro.local.own_environments import own_packages
from nitro.python.makers import maker_name, registered_name


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


def test_what_was_made_before_is_made_again_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "poles.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\nclass Pole(CartPoleEnv): ..."
    )
    (name,) = own_packages([f"{tmp_path}/poles.py:Pole"])
    assert registered_name("own/poles.Pole", _write) == name


def test_an_environment_that_a_package_registers_is_registered_by_its_actors_too() -> None:
    own: Any = CartPoleEnv
    gymnasium.register("Made-v0", entry_point=own, max_episode_steps=9)
    assert registered_name("Made-v0", _write) is None  # Gymnasium's own class, known everywhere
    odd = "tests.e2e.odd_environments:Odd"
    gymnasium.register("Made-v1", entry_point=odd, max_episode_steps=9, kwargs={"size": (1, 2)})
    source = registered_name("Made-v1", _write)
    assert source is not None
    del gymnasium.registry["Made-v1"]
    exec(source, {})  # as an actor imports it
    spec = gymnasium.registry["Made-v1"]
    assert (spec.entry_point, spec.max_episode_steps) == (odd, 9)
    assert spec.kwargs == {"size": (1, 2)}
    gymnasium.register("Made-v2", entry_point=odd, kwargs={"at": object()})
    assert registered_name("Made-v2", _write) is None
    assert registered_name("CartPole-v1", _write) is None
    assert registered_name("Nowhere-v0", _write) is None


def _write(stem: str, source: str) -> str:
    return source


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
        (_of_a_script(), "make_maze now names another object"),
        (_replaced, "make_pole now names another object"),
        (functools.partial(gymnasium.make, "CartPole-v1"), "got partial.*env_kwargs"),
        (CartPoleEnv(), "got CartPoleEnv.*env_kwargs"),
    ],
)
def test_anything_else_is_refused_with_what_to_do(maker: Any, message: str) -> None:
    with pytest.raises(nitro.CommandError, match=f"^env: .*{message}"):
        nitro.train(maker)
