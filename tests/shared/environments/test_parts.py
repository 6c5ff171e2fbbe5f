"""Observations of several parts: images first, then the vector that Gymnasium makes of the rest."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Sequence,
    Space,
    Tuple,
    flatten,
    flatten_space,
)

from shared.contracts.environment_ref import EnvironmentRef, WrapperRef
from shared.environments.adapters import what_is_seen
from shared.environments.building import make_environment
from shared.environments.describing import describe
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

    action_space: Space[Any] = Discrete(2)

    def __init__(self, observation: Space[Any]) -> None:
        self.observation_space = observation

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.given(), {}

    def given(self) -> Any:
        return self.observation_space.sample()

    def step(self, action: object) -> Any:
        return self.given(), 1.0, True, False, {}


class Broken(Parts):
    """Gives something else than its space says."""

    def __init__(self, observation: Space[Any], gives: Any) -> None:
        super().__init__(observation)
        self._gives = gives

    def given(self) -> Any:
        return self._gives


def refusal(space: Space[Any]) -> str:
    """Return how observations of a space are refused."""
    with pytest.raises(UnsupportedEnvironment) as refused:
        described(space)
    return str(refused.value)


@contextmanager
def registered(make: Callable[[], Parts]) -> Iterator[None]:
    gymnasium.register(_NAME, entry_point=lambda **_: make())
    try:
        yield
    finally:
        del gymnasium.registry[_NAME]


def described(space: Space[Any], *wrappers: WrapperRef) -> Any:
    with registered(lambda: Parts(space)):
        return describe(EnvironmentRef(env_id=_NAME, wrappers=wrappers))


def leave_out(names: str) -> WrapperRef:
    return WrapperRef(name="LeaveOut", kwargs={"parts": names})


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (Discrete(3, start=5), [""]),
        (MultiDiscrete([2, 3]), [""]),
        (MultiBinary(4), [""]),
        (Dict(z=VECTOR, b=Dict(c=Discrete(3), a=Box(0, 9, (2, 2), np.int64))), ["z", "b.c", "b.a"]),
        (Tuple((VECTOR, Dict(a=MultiBinary(2)), VECTOR)), ["0", "1.a", "2"]),
        (Dict(a=VECTOR, empty=Box(-1, 1, (0,), np.float32)), ["a", "empty"]),
        (
            Dict(image=Box(0, 255, (7, 7, 3), np.uint8), direction=Discrete(4)),
            ["image", "direction"],
        ),
    ],
    ids=str,
)
def test_parts_become_the_vector_that_gymnasium_makes_of_them(
    space: Space[Any], names: list[str]
) -> None:
    with registered(lambda: Parts(space)):
        env = make_environment(EnvironmentRef(env_id=_NAME))
        spec = describe(EnvironmentRef(env_id=_NAME)).observation
    assert (spec.shape, spec.dtype) == (flatten_space(space).shape, "float32")
    assert [name for name, _ in spec.parts] == names
    assert (sum(size for _, size in spec.parts),) == spec.shape
    space.seed(7)
    expected = flatten(space, space.sample())
    seen, _ = env.reset(seed=7)
    np.testing.assert_array_equal(seen, expected)
    assert seen.dtype == env.observation_space.dtype


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        ({"a": np.zeros(3, np.float32)}, "no part b.c"),
        ({"a": np.zeros(2, np.float32), "b": {"c": 0}}, r"part a: .*shape \(2,\)"),
        ({"a": np.zeros(3, np.float32), "b": {"c": 3}}, r"part b.c: 3 is not in Discrete\(3\)"),
        ({"a": np.zeros(3, np.float32), "b": {"c": -1}}, "part b.c: -1 is not in"),
        ("none at all", "no part a"),
    ],
    ids=["missing", "shape", "too large", "negative", "no dictionary"],
)
def test_a_part_that_is_not_what_its_space_says_is_named(gives: Any, says: str) -> None:
    space = Dict(a=VECTOR, b=Dict(c=Discrete(3)))
    with (
        registered(lambda: Broken(space, gives)),
        pytest.raises(UnsupportedEnvironment, match=says),
    ):
        describe(EnvironmentRef(env_id=_NAME))


@pytest.mark.parametrize(
    ("space", "says", "size"),
    [
        (
            Dict(image=Box(0, 255, (7, 7, 3), np.uint8), mission=Words()),
            "part mission .*numbers",
            (147,),
        ),
        (Dict(see=VECTOR, others=Sequence(VECTOR)), "part others .*numbers", (3,)),
        (Dict(see=VECTOR, action_mask=MultiBinary(3)), r"mask of these .*MultiBinary\(2\)", (3,)),
        (Dict(see=VECTOR, action_mask=Discrete(2)), r"mask of these .*MultiBinary\(2\)", (3,)),
        (
            Dict(state=VECTOR, eyes=Box(0, 255, (2, 2, 64, 64, 3), np.uint8)),
            "part eyes has 5 axes",
            (3,),
        ),
    ],
    ids=["words", "a list", "mask of others", "a choice", "stacks of stacks"],
)
def test_what_is_no_vector_is_refused_with_the_wrapper_that_leaves_it_out(
    space: Space[Any], says: str, size: tuple[int, ...]
) -> None:
    text = refusal(space)
    assert re.search(says, text)
    advised = re.search(r'wrappers=\[\{"name": "LeaveOut", "kwargs": \{"parts": "(.*)"\}\}\]', text)
    assert advised is not None
    assert described(space, leave_out(advised[1])).observation.shape == size


WIDE = Box(0, 255, (2, 40, 48), np.uint8)
SMALL = Box(0, 255, (5, 6), np.uint8)


def turned(image: Any) -> Any:
    return np.moveaxis(image, -1, 0).reshape(-1)


@pytest.mark.parametrize(
    ("space", "wrappers", "images", "dtype", "row"),
    [
        (
            Dict(a=VECTOR, eye=CAMERA, far=WIDE, turn=Discrete(3, start=1)),
            (),
            ((3, 64, 64), (2, 40, 48)),
            "float32",
            lambda o: [turned(o["eye"]), o["far"].reshape(-1), o["a"], np.eye(3)[o["turn"] - 1]],
        ),
        (
            Tuple((MultiBinary(2), Dict(eye=CAMERA, near=SMALL))),
            (),
            ((3, 64, 64),),
            "uint8",
            lambda o: [turned(o[1]["eye"]), o[0], o[1]["near"].reshape(-1)],
        ),
        (
            Dict(near=SMALL, state=VECTOR),
            (WrapperRef(name="AsImage", kwargs={"parts": "near"}),),
            ((1, 5, 6),),
            "float32",
            lambda o: [o["near"].reshape(-1), o["state"]],
        ),
        (
            Dict(action_mask=MultiBinary(2), eye=WIDE),
            (),
            ((2, 40, 48),),
            "uint8",
            lambda o: [o["eye"].reshape(-1), o["action_mask"]],
        ),
    ],
    ids=["two images", "bytes and choices", "a small image", "a mask"],
)
def test_images_come_first_and_the_other_parts_follow_them(
    space: Space[Any], wrappers: Any, images: Any, dtype: str, row: Any
) -> None:
    ref = EnvironmentRef(env_id=_NAME, wrappers=wrappers)

    class Allowing(Parts):
        def given(self) -> Any:
            seen = super().given()
            if "action_mask" in self.observation_space.spaces:  # type: ignore[attr-defined]
                seen["action_mask"][0] = 1
            return seen

    with registered(lambda: Allowing(space)):
        spec = describe(ref).observation
        env = make_environment(ref)
    space.seed(7)
    given = space.sample()
    if isinstance(space, Dict) and "action_mask" in space.spaces:
        given["action_mask"][0] = 1
    expected = np.concatenate(row(given))
    assert (spec.images, spec.dtype, spec.shape) == (images, dtype, expected.shape)
    assert (spec.is_image, spec.has_images) == (False, True)
    seen, _ = env.reset(seed=7)
    np.testing.assert_array_equal(seen, expected)
    assert str(seen.dtype) == dtype
    assert env.observation_space.contains(seen)


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (
            Dict(eyes=Dict(left=CAMERA, right=WIDE), state=VECTOR, turn=Discrete(4)),
            "images through filters of their own: eyes.left 3x64x64, eyes.right 2x40x48; then "
            "7 numbers in a row: state 3, turn 4 (float32)",
        ),
        (Dict(eye=CAMERA), "images through filters of their own: eye 3x64x64 (bytes)"),
        (Dict(near=SMALL, turn=Discrete(2)), "32 numbers in a row: near 30, turn 2 (float32)"),
        (Discrete(3), "3 numbers in a row: 3 (float32)"),
        (VECTOR, "3 numbers in a row"),
        (CAMERA, "an image 3x64x64 (channels, height, width) of bytes, through filters"),
        (Box(0, 1, (1,), np.float32), "1 number in a row"),
    ],
    ids=str,
)
def test_what_a_policy_sees_is_told_part_by_part(space: Space[Any], said: str) -> None:
    with registered(lambda: Parts(space)):
        assert what_is_seen(make_environment(EnvironmentRef(env_id=_NAME))) == said


def test_a_small_image_alone_is_one_where_a_job_says_so() -> None:
    assert described(SMALL).observation.shape == (30,)
    spec = described(Box(0, 255, (5, 6, 3), np.uint8), WrapperRef(name="AsImage")).observation
    assert (spec.shape, spec.is_image, spec.images) == ((3, 5, 6), True, ())


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("eye", "observations have no part 'eye'; there are: near, state, tiny"),
        ("near,state", r"part state is Box\(-1.0, 1.0, \(3,\), float32\); images are uint8"),
        ("tiny", "part tiny is .*with sides from 4 pixels"),
    ],
)
def test_parts_that_are_no_images_are_named(names: str, says: str) -> None:
    space = Dict(near=SMALL, state=VECTOR, tiny=Box(0, 255, (3, 9), np.uint8))
    with pytest.raises(UnsupportedEnvironment, match=f"AsImage cannot be .*{says}"):
        described(space, WrapperRef(name="AsImage", kwargs={"parts": names}))


@pytest.mark.parametrize("eye", [np.zeros((64, 64), np.uint8), np.zeros((64, 64, 3), np.float32)])
def test_an_image_that_is_not_what_its_space_says_is_named(eye: Any) -> None:
    made = Broken(Dict(eye=CAMERA, state=VECTOR), {"eye": eye, "state": np.zeros(3, np.float32)})
    with registered(lambda: made), pytest.raises(UnsupportedEnvironment, match="part eye: .*shape"):
        describe(EnvironmentRef(env_id=_NAME))


def test_observations_that_are_too_large_are_refused() -> None:
    assert "keep fewer numbers" in refusal(Discrete(2**21))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("eye", "no part 'eye'; there are: state, eyes.left, eyes.right"),
        ("eyes, state", "no part of the observations would remain"),
    ],
)
def test_what_cannot_be_left_out_is_told(names: str, says: str) -> None:
    space = Dict(state=VECTOR, eyes=Dict(left=VECTOR, right=VECTOR))
    with pytest.raises(UnsupportedEnvironment, match=f"LeaveOut cannot be .*{says}"):
        described(space, leave_out(names))
    assert described(space, leave_out("eyes.left")).observation.shape == (6,)
    assert described(space, leave_out("eyes")).observation.shape == (3,)


class Masked(Parts):
    """Allows what it is told to; the mask is no part of what it shows."""

    action_space = MultiDiscrete([2, 3])

    def __init__(self, mask: Any, *, by_method: bool = False) -> None:
        super().__init__(VECTOR)
        self.mask = np.array(mask)
        if by_method:
            self.action_masks = lambda: self.mask

    def reset(self, **given: Any) -> Any:
        observation, _ = super().reset(**given)
        return observation, {"action_mask": (self.mask[:2], self.mask[2:])}

    def step(self, action: object) -> Any:
        *stepped, _ = super().step(action)
        return *stepped, {"action_mask": (self.mask[:2], self.mask[2:])}


MASK = WrapperRef(name="ActionMask")


@pytest.mark.parametrize("by_method", [True, False], ids=["action_masks()", "info"])
def test_a_mask_is_the_end_of_the_observation_wherever_the_environment_has_it(
    by_method: bool,
) -> None:
    ref = EnvironmentRef(env_id=_NAME, wrappers=(MASK,))
    with registered(lambda: Masked([1, 0, 0, 1, 1], by_method=by_method)):
        spec = describe(ref)
        env = make_environment(ref)
        seen, _ = env.reset(seed=1)
        stepped, *_ = env.step(np.array([0, 1]))
    assert (spec.observation.shape, spec.observation.action_mask, spec.mask_size) == ((8,), True, 5)
    for each in (seen, stepped):
        assert each[3:].tolist() == [1, 0, 0, 1, 1]
        assert np.abs(each[:3]).max() <= 1


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        ([0, 0, 1, 1, 1], "part action_mask: it allows no action"),
        ([1, 1, 0, 0, 0], "part action_mask: it allows no action"),
        ([1, 1, 1, 1, 2], "no mask of .* zeros and ones"),
        ([1, 1, 1, 1], "no mask of"),
    ],
)
def test_masks_that_are_none_are_refused(mask: Any, says: str) -> None:
    ref = EnvironmentRef(env_id=_NAME, wrappers=(MASK,))
    with registered(lambda: Masked(mask)), pytest.raises(UnsupportedEnvironment, match=says):
        describe(ref)


def test_a_mask_of_an_episode_that_ended_may_allow_nothing() -> None:
    ref = EnvironmentRef(env_id=_NAME, wrappers=(MASK,))
    made = Masked([1, 1, 1, 1, 1])
    with registered(lambda: made):
        env = make_environment(ref)
        env.reset(seed=1)
        made.mask = np.zeros(5)
        _, _, terminated, *_ = env.step(np.array([0, 1]))
    assert terminated


def test_an_environment_without_masks_is_refused_by_the_wrapper() -> None:
    ref = EnvironmentRef(env_id=_NAME, wrappers=(MASK,))
    with (
        registered(lambda: Parts(VECTOR)),
        pytest.raises(UnsupportedEnvironment, match=r"no action_masks\(\), and its info no"),
    ):
        describe(ref)


def test_a_mask_of_toy_text_is_taken() -> None:
    spec = describe(EnvironmentRef(env_id="Taxi-v4", wrappers=(MASK,)))
    assert (spec.observation.shape, spec.mask_size) == ((506,), 6)


class Strict(Masked):
    """Raises where an action is not allowed; shows its mask in a part of a part."""

    def __init__(self) -> None:
        super().__init__([1, 0, 0, 1, 0])
        self.observation_space = Dict(
            seen=Dict(a=VECTOR, b=VECTOR, action_mask=MultiBinary(5)), other=VECTOR
        )

    def given(self) -> Any:
        return {
            **self.observation_space.sample(),
            "seen": {"a": np.zeros(3, np.float32), "b": np.ones(3, np.float32)}
            | {"action_mask": self.mask},
        }

    def step(self, action: Any) -> Any:
        if action.tolist() != [0, 1]:
            raise RuntimeError(f"illegal {action}")
        return super().step(action)


@pytest.mark.parametrize("names", ["other", "seen.b", "seen.b,other"])
def test_a_mask_in_a_part_is_obeyed_by_what_tries_the_environment(names: str) -> None:
    spec_of = EnvironmentRef(env_id=_NAME, wrappers=(leave_out(names),))
    with registered(Strict):
        spec = describe(spec_of)
    assert (spec.mask_size, spec.repeats is not None) == (5, True)
    assert not any("illegal" in note for note in spec.notes)
