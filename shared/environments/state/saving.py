"""The state of a whole environment, layer by layer, as plain arrays.

It consists of the simulator's state, the wrappers' states, step counts and the generator. It does
not include values that a simulator derives from its state while it steps, such as MuJoCo's body
positions; see `shared.environments.state.snapshot`, which resumes an episode without them.
"""

import functools
import inspect
import struct
from collections.abc import Iterator
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import NDArray

from shared.environments.state.bare import library_keeper
from shared.environments.state.keeper import Arrays, Keeper, KeepsState, StateError
from shared.environments.state.wrapping import WRAPPERS
from shared.environments.told_errors import error_text
from shared.trajectory import codec

Env = gymnasium.Env[Any, Any]  # the spaces determine observations and actions

_GENERATOR = "np_random"
_PCG64 = struct.Struct("<16s16s?I")
"""State, increment, and the unused half of a 64-bit draw."""


def save_state(env: Env) -> dict[str, NDArray[Any]]:
    """Return everything that the next step or reset depends on; the caller owns the arrays.

    Raises:
        NotNowError: The state cannot be saved at this moment.
        StateError: A layer's state is unknown, or of a type that cannot be saved, or `np_random`
            is not one of NumPy's default generators.
    """
    arrays = {}
    for name, layer in _layers(env):
        for key, value in _keeper(layer).get(layer).items():
            array = np.array(value)
            if array.dtype not in codec.DTYPES:
                raise StateError(f"{name}:{key} is of {array.dtype}, which is not kept")
            arrays[f"{name}:{key}"] = array
    arrays[_GENERATOR] = _generator_bytes(env.unwrapped._np_random)
    return arrays


def load_state(env: Env, arrays: Arrays) -> None:
    """Restore the state of another environment of the same kind; no reset is needed before.

    Raises:
        StateError: The arrays do not fit. If they name an unknown layer, the environment is
            unchanged. Otherwise it must be reset or given another state before it is used.
    """
    layers = dict(_layers(env))
    states: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in layers}
    for path, array in arrays.items():
        if path == _GENERATOR:
            continue
        name, _, key = path.partition(":")
        if name not in states:
            raise StateError(f"it holds {path!r:.80}, but the layers are {', '.join(layers)}")
        states[name][key] = array.copy()
    for name, layer in layers.items():
        keeper = _keeper(layer)
        try:
            keeper.set(layer, states[name])
        except (LookupError, TypeError, ValueError) as error:
            raise StateError(f"the state of {name} does not fit: {error_text(error)}") from error
    _set_generator(env.unwrapped, arrays.get(_GENERATOR))


def _layers(env: Env) -> Iterator[tuple[str, Env]]:
    """Yield every layer under a unique name, outermost first."""
    depth = 0
    while isinstance(env, gymnasium.Wrapper):
        yield f"{depth}.{type(env).__name__}", env
        env, depth = env.env, depth + 1
    yield f"{depth}.{type(env).__name__}", env


def _keeper(layer: Env) -> Keeper:
    kind: type = type(layer)
    keeper = WRAPPERS.get(kind) or library_keeper(kind) or _own_keeper(kind)
    if keeper is None:
        raise StateError(
            f"the state of {kind.__qualname__} ({kind.__module__}) is not known, and it does not "
            "have both get_state() and set_state(state)"
        )
    return keeper


@functools.cache
def _own_keeper(kind: type) -> Keeper | None:
    """Return the two methods of a type, or None if it lacks one.

    A third-party MuJoCo environment has a `set_state` with two arguments, which does not count.
    """
    methods = (getattr(kind, "get_state", None), getattr(kind, "set_state", None))
    for method, num_arguments in zip(methods, (1, 2), strict=True):
        if not callable(method):
            return None
        try:
            inspect.signature(method).bind(*range(num_arguments))
        except TypeError:
            return None
    own = cast("type[KeepsState]", kind)
    return Keeper(own.get_state, own.set_state)


def _generator_bytes(generator: np.random.Generator | None) -> NDArray[np.uint8]:
    """Return a generator's state; all zeros, which no generator has, if there is none yet."""
    if generator is None:
        return np.zeros(_PCG64.size, np.uint8)
    state = generator.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise StateError(f"np_random is a {state['bit_generator']}, only PCG64 is kept")
    words = (int(state["state"][name]).to_bytes(16, "little") for name in ("state", "inc"))
    packed = _PCG64.pack(*words, bool(state["has_uint32"]), state["uinteger"])
    return np.frombuffer(packed, np.uint8)


def _set_generator(bare: Env, saved: NDArray[Any] | None) -> None:
    if saved is None or saved.dtype != np.uint8 or saved.shape != (_PCG64.size,):
        raise StateError("it holds no state of np_random")
    if not saved.any():
        bare._np_random = bare._np_random_seed = None
        return
    state, increment, has_uint32, uinteger = _PCG64.unpack(saved.tobytes())
    generator = bare._np_random  # reused: a new one takes as long as the rest of a small state
    if generator is None or not isinstance(generator.bit_generator, np.random.PCG64):
        generator = np.random.Generator(np.random.PCG64(0))
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {
            "state": int.from_bytes(state, "little"),
            "inc": int.from_bytes(increment, "little"),
        },
        "has_uint32": int(has_uint32),
        "uinteger": uinteger,
    }
    bare.np_random = generator
