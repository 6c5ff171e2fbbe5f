"""The actions of one fragment, sampled step by step.

Legend: `T` steps, `B` environments side by side, `F` observation size, `H` network outputs, `S`
numbers of a recurrent state.
"""

import numpy as np

from shared.policy.distributions import Action, Float32
from shared.policy.numpy_policy import NumpyPolicy


class FragmentSampler:
    """Samples the actions of one fragment, in order, into preallocated arrays.

    The fragment's noise is drawn at once, so that its actions depend only on the generator's state
    and the observations.
    """

    def __init__(
        self, policy: NumpyPolicy, *, num_steps: int, num_envs: int, rng: np.random.Generator
    ) -> None:
        self._network = policy.network
        self._distribution = policy.distribution
        self.state = policy.new_state(num_envs)
        """[B, S], before the next step; the caller clears a row when its episode begins."""
        self._forward = policy.network.forward_pass(num_envs, self.state)
        self._scale = policy.observation_scale
        self._seen = np.empty((num_envs, *policy.observation_shape), np.float32)  # [B, *obs]
        self._noise = policy.distribution.noise(rng, (num_steps, num_envs))
        shape = (num_steps, num_envs, policy.network.output_size)
        self._outputs = np.empty(shape, np.float32)  # [T, B, H]
        self.action: Action = policy.distribution.new_actions((num_steps, num_envs))
        """[T, B, *act], filled up to the last sampled step."""

    def act(self, step: int, observation: Float32) -> None:
        """Sample `action[step]` for observations [B, F] float32."""
        outputs = self._outputs[step]
        if self._scale is not None:
            observation = self._scale.apply(observation, out=self._seen)
        self._forward(observation, outputs)
        self._distribution.sample(outputs, noise=self._noise[step], out=self.action[step, ...])

    def redraw(self, steps: slice, env_index: int, rng: np.random.Generator) -> None:
        """Redraw the noise of some steps of one environment."""
        noise = self._noise[steps, env_index]
        noise[...] = self._distribution.noise(rng, noise.shape[:1])

    def act_again(self, step: int, env_index: int, observation: Float32) -> None:
        """Resample one environment's `action[step]` for its observation [1, F] float32."""
        row = slice(env_index, env_index + 1)
        outputs, action = self._outputs[step, row], self.action[step, row, ...]
        if self._scale is not None:
            observation = self._scale.apply(observation, out=self._seen[:1])
        self._network.forward_pass(1, self.state[row])(observation, outputs)
        self._distribution.sample(outputs, noise=self._noise[step, row], out=action)

    def log_prob(self) -> Float32:
        """Return the log-probabilities [T, B] of all actions, after the last step."""
        return self._distribution.log_prob(self._outputs, self.action)
