"""The preprocessing chain on real games, step by step, against Gymnasium's and the published."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils import seeding
from gymnasium.wrappers import AtariPreprocessing
from numpy.typing import NDArray

from shared.environments import atari
from shared.environments.atari_game import AtariGame
from shared.environments.games import FinishedGame, whole_games
from shared.environments.state.keeper import NotNowError

PLAIN: dict[str, Any] = {"noop_max": 0, "fire_on_reset": False, "terminal_on_life_loss": False}
LIVES = {"SpaceInvaders": 3, "Qbert": 4, "Gravitar": 6, "Breakout": 5}


def new_game(name: str = "SpaceInvaders", *, v5: bool = False, **options: Any) -> AtariGame:
    atari.register_games()
    env_id = f"ALE/{name}-v5" if v5 else f"{name}NoFrameskip-v4"
    return atari.make_game(env_id, options)


@cache
def shared_game(name: str) -> AtariGame:
    """Loading a cartridge takes longer than most tests; a seeded reset is as good as a new one."""
    return new_game(name)


def actions(game: AtariGame, seed: int = 0) -> Iterator[int]:
    assert isinstance(game.action_space, Discrete)
    rng = np.random.default_rng(seed)
    while True:
        yield int(rng.integers(game.action_space.n))


def steps_to_the_end(game: AtariGame) -> int:
    """Steps without action until the episode ends."""
    for count in range(1, 30_000):
        _, _, terminated, truncated, _ = game.step(0)
        if terminated or truncated:
            return count
    raise AssertionError("the episode does not end")


@pytest.mark.parametrize("name", ["SpaceInvaders", "Qbert", "Gravitar"])
def test_frames_and_rewards_are_gymnasiums(name: str) -> None:
    game = new_game(name, sign_reward=False, **PLAIN)
    bare = gymnasium.make(f"{name}NoFrameskip-v4")
    oracle = AtariPreprocessing(bare, noop_max=0, frame_skip=4)
    stack, _ = game.reset(seed=0)
    frame, _ = oracle.reset(seed=0)
    np.testing.assert_array_equal(stack[-1], frame)
    for _, action in zip(range(150), actions(game), strict=False):
        stack, reward, terminated, truncated, _ = game.step(action)
        frame, *outcome, _ = oracle.step(action)
        assert [reward, terminated, truncated] == outcome
        if not terminated:
            np.testing.assert_array_equal(stack[-1], frame)
    oracle.close()


def test_both_ids_play_the_same_game() -> None:
    old, new = new_game(noop_max=5), new_game(v5=True, noop_max=5, sticky_actions=0.0)
    np.testing.assert_array_equal(old.reset(seed=3)[0], new.reset(seed=3)[0])
    for _, action in zip(range(50), actions(old), strict=False):
        np.testing.assert_array_equal(old.step(action)[0], new.step(action)[0])


@pytest.mark.parametrize("frame_skip", [1, 2, 4])
def test_every_action_is_held_for_the_frames_of_one_skip(frame_skip: int) -> None:
    game = new_game(frame_skip=frame_skip, max_episode_frames=80, **PLAIN)
    game.reset(seed=0)
    assert steps_to_the_end(game) == 80 // frame_skip


def test_a_game_starts_after_one_to_thirty_frames_without_action() -> None:
    game = new_game(frame_skip=1, max_episode_frames=40, fire_on_reset=False)
    waits, expected = [], []
    for seed in range(12):
        game.reset(seed=seed)
        waits.append(40 - steps_to_the_end(game))
        expected.append(int(seeding.np_random(seed)[0].integers(1, 31)))
    assert waits == expected  # which is uniform from 1 to 30


def test_stacks_begin_with_the_first_frame_and_shift() -> None:
    game = shared_game("SpaceInvaders")
    previous, _ = game.reset(seed=1)
    assert (previous == previous[0]).all()
    assert game.observation_space.contains(previous)
    for _, action in zip(range(20), actions(game), strict=False):
        stack, *_ = game.step(action)
        np.testing.assert_array_equal(stack[:-1], previous[1:])
        previous = stack


@pytest.mark.parametrize("name", LIVES)
def test_a_lost_life_ends_the_episode_and_not_the_game(name: str) -> None:
    game = shared_game(name)
    game.reset(seed=2)
    ends: list[list[FinishedGame]] = []
    rewards = length = 0.0
    for action in actions(game):
        _, reward, terminated, truncated, _ = game.step(action)
        assert reward in (-1.0, 0.0, 1.0)
        rewards, length = rewards + reward, length + 1
        if terminated:
            assert not truncated
            ends.append(game.take_finished())
            if ends[-1]:
                break
            game.reset()
    assert len(ends) == LIVES[name]
    assert not any(ends[:-1])
    (finished,) = ends[-1]
    assert finished.length == length
    assert finished.score >= rewards  # points come in fives and more, and only the sign is learnt


def test_the_score_is_the_sum_of_all_raw_rewards() -> None:
    game = new_game("SpaceInvaders", sign_reward=False, **PLAIN)
    game.reset(seed=0)
    total, ended = 0.0, False
    for action in actions(game):
        _, reward, ended, _, _ = game.step(action)
        total += reward
        if ended:
            break
    (finished,) = game.take_finished()
    assert finished.score == total > 0
    assert game.take_finished() == []


def test_a_whole_game_is_one_episode_for_those_who_play_it() -> None:
    game = shared_game("Gravitar")
    env = whole_games(game)
    env.reset(seed=2)
    by_lives = play(game, seed=2)
    total, length, ended = 0.0, 0, False
    env.reset(seed=2)
    for action in actions(game):
        _, reward, ended, _, _ = env.step(action)
        total, length = total + float(reward), length + 1
        if ended:
            break
    assert FinishedGame(score=total, length=length) == by_lives


@pytest.mark.parametrize("frames", [234, 238, 242])
def test_a_whole_game_ends_where_its_frames_do_also_between_two_lives(frames: int) -> None:
    game = new_game("Breakout", max_episode_frames=frames)
    env = whole_games(game)
    env.reset(seed=0)
    length = 0
    for action in actions(game):
        _, _, terminated, truncated, _ = env.step(action)
        length += 1
        if terminated or truncated:
            break
    assert (terminated, truncated) == (False, True)
    assert 4 * length <= frames


def play(game: AtariGame, *, seed: int) -> FinishedGame:
    game.reset(seed=seed)
    for action in actions(game):
        _, _, terminated, truncated, _ = game.step(action)
        if terminated or truncated:
            finished = game.take_finished()
            if finished:
                return finished[0]
            game.reset()
    raise AssertionError("the game does not end")


def test_fire_starts_a_game_that_waits_for_it() -> None:
    waiting = new_game("Breakout", fire_on_reset=False, noop_max=0)
    waiting.reset(seed=0)
    assert not any(waiting.step(0)[2] for _ in range(300))
    started = shared_game("Breakout")
    started.reset(seed=0)
    assert steps_to_the_end(started) < 300
    started.reset()  # the next life waits for it as well
    assert steps_to_the_end(started) < 300


def test_the_time_limit_truncates_and_reports_the_score() -> None:
    game = new_game("Qbert", max_episode_frames=200, noop_max=0, fire_on_reset=False)
    game.reset(seed=0)
    outcomes = [game.step(0)[2:4] for _ in range(50)]
    assert outcomes == [(False, False)] * 49 + [(False, True)]
    assert [finished.length for finished in game.take_finished()] == [50]
    assert not (game.reset()[0] == 0).all()
    assert game.step(0)[2:4] == (False, False)


@pytest.mark.parametrize(
    ("name", "sticky"),
    [("SpaceInvaders", 0.25), ("TimePilot", 0.0)],  # the latter is switched on at random
)
def test_everything_follows_from_the_seed_whatever_was_played_before(
    name: str, sticky: float
) -> None:
    def rollout(game: AtariGame) -> list[NDArray[np.uint8]]:
        seen = [game.reset(seed=11)[0]]
        for _, action in zip(range(120), actions(game, seed=5), strict=False):
            observation, _, terminated, _, _ = game.step(action)
            seen.append(game.reset()[0] if terminated else observation)
        return seen

    fresh, used = (new_game(name, sticky_actions=sticky) for _ in range(2))
    used.reset(seed=1)
    for _, action in zip(range(150), actions(used), strict=False):
        if used.step(action)[2]:
            used.reset()
    np.testing.assert_array_equal(rollout(fresh), rollout(used))


def play_into_a_frame(game: AtariGame) -> None:
    """Play until the console is busy with something else than its next frame."""
    for _, action in zip(range(200), actions(game), strict=False):
        game.step(action)
        try:
            game.get_state()
        except NotNowError:
            return
    raise AssertionError("the game is at a frame's end all the time")


def test_a_game_that_thinks_longer_than_a_frame_can_be_reset_and_take_up_another_then() -> None:
    fresh, used = (new_game("TicTacToe3D", v5=True, sticky_actions=0.0) for _ in range(2))
    start, _ = fresh.reset(seed=3)
    state = {name: array.copy() for name, array in fresh.get_state().items()}
    frames = [fresh.step(1)[0] for _ in range(30)]
    used.reset(seed=0)
    play_into_a_frame(used)
    used.set_state(state)
    np.testing.assert_array_equal([used.step(1)[0] for _ in range(30)], frames)
    play_into_a_frame(used)
    np.testing.assert_array_equal(used.reset(seed=3)[0], start)
    np.testing.assert_array_equal([used.step(1)[0] for _ in range(30)], frames)


def test_an_action_that_always_sticks_is_never_left() -> None:
    stuck, idle = new_game(sticky_actions=1.0, **PLAIN), new_game(**PLAIN)
    stuck.reset(seed=0)
    idle.reset(seed=0)
    for _, action in zip(range(40), actions(stuck), strict=False):
        np.testing.assert_array_equal(stuck.step(action)[0], idle.step(0)[0])


class RecordingConsole:
    """The emulator, and what it was told to do."""

    def __init__(self, ale: Any) -> None:
        self._ale = ale
        self.told: list[Any] = []

    def act(self, action: Any) -> int:
        self.told.append(action)
        return int(self._ale.act(action))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)


def test_an_action_sticks_with_its_probability_in_every_frame() -> None:
    game = new_game(v5=True, frame_skip=1, **PLAIN)
    game.reset(seed=0)
    meanings = [game._actions[2], game._actions[3]]
    console = RecordingConsole(game._ale)
    setattr(game, "_ale", console)  # noqa: B010 - of another type than the game's own
    for step in range(1500):
        game.step(2 + step % 2)
    wrong = [told != meanings[step % 2] for step, told in enumerate(console.told)]
    # Told wrongly: stuck (1/4) at an action that was right the frame before: w = (1 - w) / 4.
    assert np.mean(wrong) == pytest.approx(0.2, abs=0.03)
