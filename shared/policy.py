"""Policies in NumPy: what an actor needs to act, from the arrays the learner exports.

Actors carry no torch: for the small networks of continuous control a forward pass in NumPy is
faster than one in torch, and the actor's image stays small.

Arrays: `policy.{i}.weight` [out, in] and `policy.{i}.bias` [out] float32 for layers i = 0..L, as
torch's `nn.Linear` lays them out. What the last layer's outputs are, the metadata's `distribution`
and `log_std` say: `mean | log_std` (2A; `gaussian`, `state_dependent`), `mean` (A; `gaussian`,
`free`, with an array `log_std` [A] beside the layers) or logits (n; `categorical`, `none`).

Legend: `T` steps, `B` environments side by side, `F` observation size, `A` action size, `H` network
outputs.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from shared.distributions import Action, Categorical, Distribution, Float32, Gaussian
from shared.mlp import Mlp

POLICY_FORMAT = "nitro-policy/1"

_KINDS = ("gaussian/state_dependent", "gaussian/free", "categorical/none")
_EXPECTED_METADATA = {"format": POLICY_FORMAT, "network": "mlp", "activation": "tanh"}


class PolicyError(ValueError):
    """Arrays and metadata that make no policy; the message names the offending one."""


class NumpyPolicy:
    """A network and the distribution over its outputs."""

    def __init__(self, network: Mlp, distribution: Distribution) -> None:
        self.network = network
        self.distribution = distribution

    @property
    def observation_size(self) -> int:
        """Length of an observation, F."""
        return self.network.input_size

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one action: (A,) if continuous, () if discrete."""
        return self.distribution.action_shape

    def outputs(self, observation: NDArray[np.generic]) -> Float32:
        """Return the network's outputs [..., H] for observations [..., F].

        Raises:
            PolicyError: The observations' last axis is not F long.
        """
        if observation.ndim == 0 or observation.shape[-1] != self.observation_size:
            raise PolicyError(
                f"observation has shape {observation.shape}, "
                f"expected (..., {self.observation_size})"
            )
        leading = observation.shape[:-1]
        rows = np.ascontiguousarray(observation, np.float32).reshape(-1, self.observation_size)
        out = np.empty((len(rows), self.network.output_size), np.float32)
        self.network.forward(rows, out=out, buffers=self.network.buffers(len(rows)))
        return out.reshape(*leading, self.network.output_size)

    def sample(
        self, observation: NDArray[np.generic], rng: np.random.Generator
    ) -> tuple[Action, Float32]:
        """Return random actions [..., *act] and their log-probabilities [...]."""
        outputs = self.outputs(observation)
        leading = outputs.shape[:-1]
        rows = outputs.reshape(-1, outputs.shape[-1])
        action = self.distribution.new_actions((len(rows),))
        noise = self.distribution.noise(rng, (len(rows),))
        self.distribution.sample(rows, noise=noise, out=action)
        action = action.reshape((*leading, *self.action_shape))
        return action, self.distribution.log_prob(outputs, action)

    def mode(self, observation: NDArray[np.generic]) -> Action:
        """Return the most likely actions [..., *act]: the deterministic policy."""
        return self.distribution.mode(self.outputs(observation))

    def log_prob(self, observation: NDArray[np.generic], action: Action) -> Float32:
        """Return the log-probabilities [...] of actions [..., *act]."""
        return self.distribution.log_prob(self.outputs(observation), action)

    def sampler(
        self, *, num_steps: int, num_envs: int, rng: np.random.Generator
    ) -> "FragmentSampler":
        """Return a sampler of one fragment that allocates nothing per step."""
        return FragmentSampler(self, num_steps=num_steps, num_envs=num_envs, rng=rng)


class FragmentSampler:
    """Samples the actions of one fragment, in order, into arrays made beforehand.

    The fragment's noise is drawn at once, so that its actions depend on the generator's state and
    the observations alone.
    """

    def __init__(
        self, policy: NumpyPolicy, *, num_steps: int, num_envs: int, rng: np.random.Generator
    ) -> None:
        self._network = policy.network
        self._distribution = policy.distribution
        self._buffers = policy.network.buffers(num_envs)
        self._noise = policy.distribution.noise(rng, (num_steps, num_envs))
        shape = (num_steps, num_envs, policy.network.output_size)
        self._outputs = np.empty(shape, np.float32)  # [T, B, H]
        self.action: Action = policy.distribution.new_actions((num_steps, num_envs))
        """[T, B, *act], filled up to the last step sampled."""

    def act(self, step: int, observation: Float32) -> None:
        """Sample `action[step]` for observations [B, F] float32."""
        outputs = self._outputs[step]
        self._network.forward(observation, out=outputs, buffers=self._buffers)
        self._distribution.sample(outputs, noise=self._noise[step], out=self.action[step, ...])

    def log_prob(self) -> Float32:
        """Return the log-probabilities [T, B] of all actions, after the last step."""
        return self._distribution.log_prob(self._outputs, self.action)


class ActionScale:
    """Maps actions from [-1, 1] onto a box, then clips to it: un-squash, then clip, as RLlib does.

    The learner learns from the action before this; only the environment sees the result.
    """

    def __init__(self, low: NDArray[np.floating], high: NDArray[np.floating]) -> None:
        # Halved before they are subtracted: the bounds may be as far apart as float32 goes.
        half, centre = high / 2 - low / 2, high / 2 + low / 2
        self._half = half.astype(np.float32)
        # None where it adds nothing: an addition less per step.
        self._centre = centre.astype(np.float32) if centre.any() else None
        self._low = low.astype(np.float32)
        self._high = high.astype(np.float32)
        self._is_identity = bool(np.all(low == -1) and np.all(high == 1))

    def apply(self, action: Action) -> Float32:
        """Return new actions for the environment; fastest where shapes equal the bounds'."""
        scaled = action if self._is_identity else action * self._half
        if self._centre is not None:
            scaled = scaled + self._centre
        clipped: Float32 = np.minimum(np.maximum(scaled, self._low), self._high)
        return clipped


def rescale_action(
    action: Float32, low: NDArray[np.floating], high: NDArray[np.floating]
) -> Float32:
    """Return actions [..., A] in the box [low, high] for sampled actions, whose box is [-1, 1].

    >>> rescale_action(np.float32([-1, 0, 3]), np.zeros(3), np.full(3, 4.0)).tolist()
    [0.0, 2.0, 4.0]
    """
    return ActionScale(low, high).apply(action)


def load_policy(
    arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]
) -> NumpyPolicy:
    """Return the policy that the arrays hold (see the module's description); they are copied.

    Raises:
        PolicyError: An array is missing, unknown, of the wrong type or shape or not finite, or the
            metadata names something this module does not know.
    """
    for field, expected in _EXPECTED_METADATA.items():
        if metadata.get(field) != expected:
            raise PolicyError(f"{field} is {metadata.get(field)!r:.80}, expected {expected!r}")
    kind = f"{metadata.get('distribution')}/{metadata.get('log_std')}"
    if kind not in _KINDS:
        raise PolicyError(f"distribution/log_std is {kind!r:.80}, expected one of {_KINDS}")
    layers = {name: _finite(name, array) for name, array in arrays.items()}
    log_std = layers.pop("log_std", None) if kind == "gaussian/free" else None
    network = _network(layers)
    return NumpyPolicy(network, _distribution(kind, network.output_size, log_std))


def _finite(name: str, array: NDArray[np.generic]) -> Float32:
    if array.dtype != np.float32:
        raise PolicyError(f"array {name!r:.80} has dtype {array.dtype}, expected float32")
    values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise PolicyError(f"array {name!r:.80} is not finite")
    return values


def _network(arrays: Mapping[str, Float32]) -> Mlp:
    layers = range(len(arrays) // 2)
    expected = {f"policy.{i}.{part}" for i in layers for part in ("weight", "bias")}
    if not expected or arrays.keys() != expected:
        raise PolicyError(
            f"holds arrays {sorted(arrays)!r:.300}, expected policy.{{i}}.weight and "
            "policy.{i}.bias for layers i = 0, 1, ... (and log_std if it is free)"
        )
    try:
        return Mlp(
            [arrays[f"policy.{i}.weight"] for i in layers],
            [arrays[f"policy.{i}.bias"] for i in layers],
        )
    except ValueError as error:
        raise PolicyError(str(error)) from error


def _distribution(kind: str, num_outputs: int, log_std: Float32 | None) -> Distribution:
    if kind == "categorical/none":
        return Categorical(num_outputs)
    if kind == "gaussian/state_dependent":
        if num_outputs % 2:
            raise PolicyError(f"{num_outputs} outputs cannot be split into mean and log_std")
        return Gaussian(num_outputs // 2, log_std=None)
    if log_std is None or log_std.shape != (num_outputs,):
        shape = None if log_std is None else log_std.shape
        raise PolicyError(f"log_std has shape {shape}, expected ({num_outputs},)")
    return Gaussian(num_outputs, log_std=log_std)
