"""From a policy's actions to an environment's own."""

from collections.abc import Callable, Iterable

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from functions.actor.errors import RolloutError
from shared.environments.building import Env
from shared.policy.action_mapping import action_map
from shared.policy.distributions import Action
from shared.policy.numpy_policy import NumpyPolicy

Translator = Callable[[Action], Iterable[object]]
"""Takes sampled actions # [B, *act]; returns one action per environment."""


def translator(env_id: str, env: Env, policy: NumpyPolicy, *, num_envs: int) -> Translator:
    """Return a function from sampled actions [B, *act] to one action per environment.

    Raises:
        RolloutError: The policy does not fit the environment.
    """
    observation, action = env.observation_space, env.action_space
    num_choices = policy.distribution.num_choices
    fits = observation.shape == policy.observation_shape
    if fits and isinstance(action, Discrete) and num_choices == action.n:
        start = int(action.start)
        return lambda sampled: sampled + start  # items are NumPy scalars, as in a sampled action
    if fits and isinstance(action, MultiDiscrete) and num_choices == tuple(action.nvec.tolist()):
        starts = action.start
        return lambda sampled: sampled + starts
    if fits and isinstance(action, Box) and policy.action_shape == action.shape:
        # Bounds of one row per environment: with equal shapes NumPy need not broadcast.
        bounds = (np.tile(bound, (num_envs, 1)) for bound in (action.low, action.high))
        return action_map(policy.action_mapping, *bounds)
    raise RolloutError(
        f"{env_id} has observations {observation} and actions {action}, but the policy takes "
        f"observations of shape {policy.observation_shape} and returns actions of shape "
        f"{policy.action_shape} (choices: {num_choices})"
    )
