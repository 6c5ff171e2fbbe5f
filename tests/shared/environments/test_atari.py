"""Which ids name a game, and which options it has."""

import subprocess
import sys

import pytest

from shared.contracts.environment_ref import EnvironmentRef, EnvKwarg, WrapperRef
from shared.contracts.environment_spec import DiscreteActionSpec
from shared.environments import atari
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.environments.spaces import UnsupportedEnvironment

GAME = "ALE/SpaceInvaders-v5"


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    assert atari.register_games()


@pytest.mark.parametrize(("env_id", "sticky"), [(GAME, 0.25), ("SpaceInvadersNoFrameskip-v4", 0.0)])
def test_an_id_says_how_sticky_actions_are_and_nothing_else(env_id: str, sticky: float) -> None:
    options = atari.atari_options(env_id, {})
    assert options.sticky_actions == sticky
    assert options.frame_skip == 4
    plain = atari.atari_options("SpaceInvadersNoFrameskip-v4", {})
    assert options.model_copy(update={"sticky_actions": 0.0}) == plain


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        (GAME, {"frame_stak": 3}, r"env_kwargs\.frame_stak is no option of a game; known: frame_s"),
        (GAME, {"frame_skip": 0}, r"env_kwargs\.frame_skip is 0: .* greater than or equal to 1"),
        (GAME, {"frame_skip": 4.0}, r"env_kwargs\.frame_skip is 4\.0: .*valid integer"),
        (GAME, {"sticky_actions": 1.5}, r"env_kwargs\.sticky_actions is 1\.5: .* equal to 1"),
        (GAME, {"terminal_on_life_loss": 1}, r"env_kwargs\.terminal_on_life_loss is 1: .*boolean"),
        (GAME, {"mode": 99}, r"env_kwargs\.mode is 99, space_invaders has \[0, 1, "),
        (GAME, {"difficulty": 7}, r"env_kwargs\.difficulty is 7, space_invaders has \[0, 1\]"),
        (GAME, {"max_episode_steps": 9}, r"env_kwargs\.max_episode_steps is no option of a game"),
        (GAME, {"noop_max": 3601}, r"env_kwargs\.noop_max is 3601: .* equal to 3600"),
        (GAME, {"max_episode_frames": 2**31}, r"env_kwargs\.max_episode_frames is 2147483648"),
        ("Qbert-v4", {}, r"'Qbert-v4' is not supported; use ALE/Qbert-v5 or QbertNoFrameskip-v4"),
        ("QbertNoFrameskip-v0", {}, r"use ALE/Qbert-v5 or QbertNoFrameskip-v4"),
        ("SpaceInvader-v5", {}, r"no registered environment; did you mean .*SpaceInvaders-v"),
    ],
)
def test_what_is_wrong_is_named(env_id: str, kwargs: dict[str, EnvKwarg], message: str) -> None:
    with pytest.raises(UnsupportedEnvironment, match=message):
        make_environment(EnvironmentRef(env_id=env_id, env_kwargs=kwargs))


def test_the_description_holds_the_whole_chain() -> None:
    spec = describe(EnvironmentRef(env_id=GAME, env_kwargs={"frame_stack": 3, "noop_max": 0}))
    assert spec.observation.shape == (3, 84, 84)
    assert spec.observation.is_image
    assert spec.observation.frame_stack == 3
    assert spec.episodes_are_lives
    assert spec.max_episode_steps == 27_000
    assert spec.versions["ale-py"]
    chain = "\n".join(spec.preprocessing)
    assert "probability 0.25 per frame" in chain
    assert "frame skip: 4, in one place" in chain
    assert "no-op start: -" in chain
    assert "3 frames" in chain


@pytest.mark.parametrize(
    ("name", "kwargs", "frame_stack"),
    [
        ("RescaleObservation", {"min_obs": 0, "max_obs": 255}, None),
        ("StickyAction", {"repeat_action_probability": 0.5}, 4),
        ("ClipReward", {"min_reward": -1}, 4),
    ],
)
def test_wrappers_are_named_and_only_frames_as_they_are_count_as_stacked(
    name: str, kwargs: dict[str, EnvKwarg], frame_stack: int | None
) -> None:
    wrapper = WrapperRef(name=name, kwargs=kwargs)
    spec = describe(EnvironmentRef(env_id=GAME, wrappers=(wrapper,)))
    assert spec.observation.frame_stack == frame_stack
    assert spec.preprocessing[-1] == f"wrapper: {name} with {kwargs}"


def test_all_actions_of_the_joystick_can_be_asked_for() -> None:
    ref = EnvironmentRef(env_id="ALE/Breakout-v5", env_kwargs={"full_action_space": True})
    assert describe(ref).action == DiscreteActionSpec(n=18)


def test_other_environments_do_not_load_the_emulator() -> None:
    code = (
        "import sys; from shared.environments.building import make_environment;"
        "from shared.contracts.environment_ref import EnvironmentRef;"
        "make_environment(EnvironmentRef(env_id='CartPole-v1')).reset(seed=0);"
        "sys.exit('ale_py' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
