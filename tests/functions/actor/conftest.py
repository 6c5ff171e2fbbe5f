"""A toy environment that follows a script, and policies to roll out."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.rollouts import RolloutTask
from shared.policy.numpy_policy import NumpyPolicy, load_policy
from shared.policy.spec import POLICY_FORMAT

Arrays = dict[str, NDArray[np.generic]]

ToEnv = Callable[[NDArray[np.generic]], object]
# Environment, observation size, action size or number of choices, discrete, what it is handed.
ENVIRONMENTS: list[tuple[str, int, int, bool, ToEnv]] = [
    ("CartPole-v1", 4, 2, True, int),
    ("Pendulum-v1", 3, 1, False, lambda action: np.clip(2 * action, -2, 2)),
    ("Hopper-v5", 11, 3, False, lambda action: np.clip(action, -1, 1)),
]


class ScriptedEnv(gymnasium.Env[NDArray[np.float64], np.int64]):
    """One character of the script per step since the last seeded reset.

    `.` goes on, `t` terminates, `u` truncates, `b` does both, `r` gives a NaN reward, `i` an
    infinite one, `o` a NaN observation, `x` terminates with a NaN reward, `y` truncates with a NaN
    observation, `!` raises, `s` gives an observation of another shape, `h` hangs. The script begins
    anew where it ends. Observations are (episode, step of the episode);
    the reward of a step is its number since the seeded reset, from 1.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, script: str = ".", first_action: int = 0) -> None:
        self.action_space = Discrete(2, start=np.int64(first_action))
        self.script, self.total, self.episode, self.step_number = script, 0, 0, 0
        self.actions: list[np.int64] = []
        self.num_resets = 0

    def _observation(self) -> NDArray[np.float64]:
        return np.array([self.episode, self.step_number], np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        self.num_resets += 1
        self.episode, self.step_number = self.episode + 1, 0
        if seed is not None:
            self.episode = self.total = 0
        return self._observation(), {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float64], SupportsFloat, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        assert self.action_space.contains(action), action
        event = self.script[self.total % len(self.script)]
        self.total, self.step_number = self.total + 1, self.step_number + 1
        if event == "!":
            raise OSError("the simulator fell over")
        if event == "h":
            threading.Event().wait()
        observation = self._observation() * (np.nan if event in "oy" else 1)
        if event == "s":
            observation = observation[:1]
        reward = {"r": np.nan, "x": np.nan, "i": np.inf}.get(event, float(self.total))
        return observation, reward, event in "tbx", event in "uby", {}


@pytest.fixture(autouse=True)
def _scripted_env() -> Iterator[None]:
    gymnasium.register("Scripted-v0", entry_point=lambda **kwargs: ScriptedEnv(**kwargs))
    yield
    del gymnasium.registry["Scripted-v0"]


def policy_arrays(num_inputs: int, num_outputs: int) -> Arrays:
    rng = np.random.default_rng(0)
    sizes = (num_inputs, 16, num_outputs)
    arrays = Arrays()
    for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:], strict=False)):
        weight = rng.standard_normal((n_out, n_in), dtype=np.float32)
        arrays[f"policy.{i}.weight"] = weight / np.float32(n_in)
        arrays[f"policy.{i}.bias"] = np.zeros(n_out, np.float32)
    return arrays


def policy_metadata(*, discrete: bool) -> dict[str, str]:
    return {
        "format": POLICY_FORMAT,
        "network": "mlp",
        "activation": "tanh",
        "distribution": "categorical" if discrete else "gaussian",
        "log_std": "none" if discrete else "state_dependent",
    }


MakePolicy = Callable[[int, int], tuple[Arrays, dict[str, str]]]
LoadPolicy = Callable[[int, int], NumpyPolicy]


@pytest.fixture
def discrete_policy() -> MakePolicy:
    """Arrays and metadata of a policy by observation size and number of actions."""
    return lambda size, n: (policy_arrays(size, n), policy_metadata(discrete=True))


@pytest.fixture
def continuous_policy() -> MakePolicy:
    """Arrays and metadata of a policy by observation size and action size."""
    return lambda size, n: (policy_arrays(size, 2 * n), policy_metadata(discrete=False))


@pytest.fixture
def load_discrete(discrete_policy: MakePolicy) -> LoadPolicy:
    return lambda size, n: load_policy(*discrete_policy(size, n))


@pytest.fixture
def load_continuous(continuous_policy: MakePolicy) -> LoadPolicy:
    return lambda size, n: load_policy(*continuous_policy(size, n))


MakeTask = Callable[..., RolloutTask]


@pytest.fixture
def make_task() -> MakeTask:
    """A sampling task on `env_id`; keyword arguments override single fields."""

    def make(env_id: str = "Scripted-v0", **fields: object) -> RolloutTask:
        env_kwargs = fields.pop("env_kwargs", {})
        task = {
            "mode": "sample",
            "job_id": "job-1",
            "round": 3,
            "attempt": 0,
            "actor_index": 5,
            "policy_version": 2,
            "env": EnvironmentRef(env_id=env_id, env_kwargs=env_kwargs),
            "steps": 8,
            "seed": 11,
        }
        return RolloutTask.model_validate(task | fields)

    return make
