"""What the library's environments keep, and that the comparison finds what is not kept."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry
from gymnasium.spaces import Box
from numpy.typing import NDArray

from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import make_environment
from shared.environments.state.compliance import Compliance, check_compliance
from shared.environments.state.keeper import NotNowError

NEEDS_OLD_MUJOCO = {"Pusher-v4"}
MUJOCO = sorted(
    env_id
    for env_id, spec in registry.items()
    if str(spec.entry_point).startswith("gymnasium.envs.mujoco.")
    and env_id.endswith(("-v4", "-v5"))
    and env_id not in NEEDS_OLD_MUJOCO
)
CLASSIC = sorted(
    env_id
    for env_id, spec in registry.items()
    if str(spec.entry_point).startswith("gymnasium.envs.classic_control.")
)
TOY_TEXT = sorted(
    env_id
    for env_id, spec in registry.items()
    if str(spec.entry_point).startswith("gymnasium.envs.toy_text.")
)
GAMES = [
    "Alien",
    "Amidar",
    "Assault",
    "Asterix",
    "Atlantis",
    "BankHeist",
    "Boxing",
    "Breakout",
    "Enduro",
    "Freeway",
    "Gravitar",
    "Hero",
    "MontezumaRevenge",
    "MsPacman",
    "Pitfall",
    "Pong",
    "Qbert",
    "Seaquest",
    "SpaceInvaders",
    "Venture",
]
FLAT = {"name": "FlattenObservation"}
STICKY = {"name": "StickyAction", "kwargs": {"repeat_action_probability": 0.5}}
STACK = {"name": "FrameStackObservation", "kwargs": {"stack_size": 3}}


def builder(
    env_id: str, *wrappers: Mapping[str, Any], **kwargs: Any
) -> Callable[[], gymnasium.Env[Any, Any]]:
    ref = EnvironmentRef.model_validate(
        {"env_id": env_id, "env_kwargs": kwargs, "wrappers": wrappers}
    )
    return lambda: make_environment(ref)


def require_kept(found: Compliance, *, num_steps: int) -> None:
    assert found.why_not is None
    assert found.num_steps == num_steps
    assert found.num_left > 0
    assert found.num_left_at_ends > 0


@pytest.mark.parametrize("env_id", [*MUJOCO, *CLASSIC])
def test_mujoco_and_classic_control_are_kept(env_id: str) -> None:
    make = builder(env_id, max_episode_steps=12)
    found = check_compliance(make, num_steps=60, num_left=6)
    require_kept(found, num_steps=60)
    assert found.snapshot_bytes <= 2048


@pytest.mark.parametrize("env_id", TOY_TEXT)
def test_toy_text_is_kept(env_id: str) -> None:
    make = builder(env_id, FLAT, max_episode_steps=20)
    require_kept(check_compliance(make, num_steps=200), num_steps=200)


def test_a_taxi_whose_passengers_change_their_minds_is_kept() -> None:
    make = builder("Taxi-v4", FLAT, max_episode_steps=20, fickle_passenger=True, is_rainy=True)
    require_kept(check_compliance(make, num_steps=200), num_steps=200)


@pytest.mark.parametrize("game", GAMES)
def test_games_are_kept(game: str) -> None:
    make = builder(f"{game}NoFrameskip-v4", max_episode_frames=48, noop_max=5)
    found = check_compliance(make, num_steps=84, num_left=2)
    require_kept(found, num_steps=84)
    assert found.snapshot_bytes <= 8192


def test_a_game_with_sticky_actions_and_single_lives_is_kept() -> None:
    make = builder("ALE/Breakout-v5", terminal_on_life_loss=True)
    found = check_compliance(make, num_steps=250, num_left=5)
    require_kept(found, num_steps=250)


@pytest.mark.parametrize(
    ("env_id", "wrappers"),
    [
        ("Hopper-v5", [STACK]),
        ("Hopper-v5", [STICKY]),
        ("CartPole-v1", [STICKY]),
        ("Hopper-v5", [{"name": "TimeAwareObservation"}]),
        ("CartPole-v1", [STACK, {"name": "TimeAwareObservation"}, STICKY, FLAT]),
        ("FrozenLake-v1", [STACK, FLAT]),
        (
            "Pendulum-v1",
            [{"name": "RescaleObservation", "kwargs": {"min_obs": 0.0, "max_obs": 1.0}}],
        ),
        ("Pendulum-v1", [{"name": "ClipReward", "kwargs": {"min_reward": -1.0}}]),
    ],
    ids=str,
)
def test_wrappers_are_kept(env_id: str, wrappers: list[Mapping[str, Any]]) -> None:
    make = builder(env_id, *wrappers, max_episode_steps=15)
    require_kept(check_compliance(make, num_steps=150), num_steps=150)


def test_the_wrappers_of_gymnasiums_own_making_are_kept() -> None:
    found = check_compliance(lambda: gymnasium.make("CartPole-v1"), num_steps=150)
    require_kept(found, num_steps=150)


class Drift(gymnasium.Env[Any, Any]):
    """Moves at random; every tenth step counts double, which only its state knows."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: object = None) -> Any:
        super().reset(seed=seed)
        self.place, self.count = self.np_random.normal(size=2), 0
        return self.place.astype(np.float32), {}

    def step(self, action: NDArray[Any]) -> Any:
        self.count += 1
        factor = 2.0 if self.count % 10 == 0 else 1.0
        self.place = self.place + factor * (action + self.np_random.normal(size=2))
        reward = float(self.place.sum())
        return self.place.astype(np.float32), reward, self.count == 35, False, {}

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {"place": self.place, "count": np.array(self.count)}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.place, self.count = state["place"], int(state["count"])


def test_an_environment_of_ones_own_is_kept_by_its_two_methods() -> None:
    require_kept(check_compliance(Drift, num_steps=200), num_steps=200)


class Forgetful(Drift):
    """Leaves out the count."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {"place": self.place}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.place, self.count = state["place"], 0


class Rounding(Drift):
    """Leaves out some digits."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        return {**super().get_state(), "place": self.place.astype(np.float32)}


class Raising(Drift):
    """Cannot take its own state."""

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        raise KeyError("speed")


class Shared(Drift):
    """Keeps nothing to itself: what one moves, all have moved."""

    moved = 0

    def step(self, action: NDArray[Any]) -> Any:
        Shared.moved += 1
        return super().step(action + Shared.moved)


@pytest.mark.parametrize(
    ("kind", "why_not"),
    [
        (Forgetful, "having been left after step"),
        (Rounding, "numbers of the observation differ|the reward is"),
        (Raising, r"the state of 0.Raising does not fit: KeyError\('speed'\)"),
        (Shared, "equal seeds and actions give unequal episodes"),
    ],
)
def test_what_differs_is_found_and_told(kind: type[Drift], why_not: str) -> None:
    found = check_compliance(kind, num_steps=200)
    assert re.search(why_not, found.why_not or "")


class Unsure(Drift):
    """Cannot be left at odd steps."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        if self.count % 2:
            raise NotNowError("in the middle of something")
        return super().get_state()


def test_moments_at_which_nothing_can_be_left_are_counted() -> None:
    found = check_compliance(Unsure, num_steps=200, num_left=50)
    assert found.why_not is None
    assert found.num_not_left > 10
    assert found.num_left > 10


class NeverSure(Drift):
    """Can be left at no moment."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        raise NotNowError("in the middle of something")


def test_an_environment_that_could_never_be_left_is_not_kept() -> None:
    found = check_compliance(NeverSure, num_steps=200, num_left=50)
    assert (found.num_left, found.num_steps) == (0, 200)
    assert found.why_not == f"it could not be left at any of {found.num_not_left} moments"


class Steered(Drift):
    """Makes its spaces anew with every reset; ends early where it is steered to."""

    def reset(self, *, seed: int | None = None, options: object = None) -> Any:
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)
        return super().reset(seed=seed)

    def step(self, action: NDArray[Any]) -> Any:
        observation, reward, ended, cut, info = super().step(action)
        return observation, reward, ended or bool(action[0] > 0.8), cut, info


def test_equal_seeds_play_equal_games_where_spaces_are_made_anew() -> None:
    first, second = (check_compliance(Steered, num_steps=200) for _ in range(2))
    assert first.why_not is None
    assert (first.num_ends, first.num_left) == (second.num_ends, second.num_left)
    assert first.num_ends > 10
