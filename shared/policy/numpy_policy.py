"""Policies in NumPy, loaded from the arrays and metadata that the learner exports.

Actors do without torch: for the small networks of continuous control a forward pass in NumPy is
faster, and the actor's image stays small.

The metadata's `network` names the network. `shared.policy.spec` reads it.

- `mlp`: layers over vectors. `activation` is `tanh`, `relu` or `elu`; with `layer_norm` `yes` a
  layer norm precedes each activation. With `recurrent` `lstm` or `gru` the second-last layer
  consists of recurrent cells (`shared.policy.recurrent`).
- A network of `shared.policy.blocks`: for images of shape `image_shape`. With `image_shapes`
  (`3,84,84;1,64,48`) and `numbers`, observations are flat, `image | image | ... | numbers`. Each
  image has such a network. Layers like those of `mlp` take the networks' outputs and the numbers.
- `onnx`: a graph for observations of shape `observation_shape`, with `num_outputs` outputs
  (`shared.policy.onnx_network`).

Arrays of layers i = 0..L, in torch's layout: `policy.{i}.weight` [out, in], or [filters, channels,
height, width] of a convolution, and `policy.{i}.bias` [out]. They are float32, or rounded to
float16 on their way to actors. An `onnx` network has one array `policy.graph` [bytes] uint8.

The metadata's `distribution` and `log_std` determine the outputs:

- `gaussian`, `state_dependent`: `mean | log_std` (2A).
- `gaussian`, `free`: `mean` (A), with an additional array `log_std` [A].
- `squashed_gaussian`, `state_dependent`: `mean | raw` (2A), see `shared.policy.squashed_gaussian`.
  With `sampling` `uniform`, actions are drawn from [-1, 1] regardless of the network.
- `categorical`, `none`: logits (n).
- `multi_categorical`, `none`: the logits of several choices, concatenated. `num_choices` has the
  size of each: `3,2`.

With `mask` `yes`, an observation ends with a mask of allowed choices (`shared.policy.action_mask`).

With the arrays `observation_mean` [F] and `observation_scale` [F] float32, and `observation_clip`
in the metadata, the network sees the last F numbers of an observation normalised. `action_mapping`
(by default `rescale`) maps continuous actions to the environment's bounds, `action_low` and
`action_high`: `-2.0,-1.0`. `action_start` is the environment's number of the first action, or of
the first value of each choice: `5` or `0,3`. `observation_parts` has the parts of observations, for
messages. Actors know the last four from their environment, so only exported policies have them.

To act: `load_policy(arrays, metadata).act(observation)`.

Legend: `T` steps, `B` environments side by side, `F` observation size, `A` action size, `H` network
outputs, `S` numbers of a recurrent state.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
)
from shared.policy.action_mapping import action_map
from shared.policy.action_mask import MaskedNetwork, Network
from shared.policy.blocks import Graph
from shared.policy.distributions import Action, Float32, distribution_of
from shared.policy.head import Head, PolicyError
from shared.policy.network_metadata import GRAPH
from shared.policy.numpy_network import NumpyNetwork
from shared.policy.observation_parts import OBSERVATION_PARTS, as_array
from shared.policy.observation_scale import ObservationScale
from shared.policy.onnx_network import OnnxNetwork
from shared.policy.spec import PolicySpec

_LAYERS = "policy."

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Lowest and highest action # [A] each."""


class NumpyPolicy:
    """A network, the normalisation of its observations, and the distribution of actions."""

    def __init__(
        self,
        spec: PolicySpec,
        arrays: Mapping[str, Float32],
        *,
        graph: bytes = b"",
        bounds: Bounds | None = None,
        start: NDArray[np.int64] | None = None,
        parts: str = "",
    ) -> None:
        self.spec = spec
        self.arrays = arrays
        self._graph = graph
        first = spec.blocks[0]
        network: Network = (
            OnnxNetwork(first, graph) if isinstance(first, Graph) else NumpyNetwork(spec, arrays)
        )
        self.network = MaskedNetwork(network) if spec.head.masked else network
        self.distribution = distribution_of(spec.head, arrays.get("log_std"))
        self.observation_scale: ObservationScale | None = None
        """None without normalisation."""
        if spec.observation_clip is not None:
            self.observation_scale = ObservationScale(
                arrays["observation_mean"],
                arrays["observation_scale"],
                bound=spec.observation_clip,
                size=math.prod(spec.observation_shape),
            )
            if spec.head.masked:
                _require_raw_mask(arrays, spec)
        self.action_mapping = spec.action_mapping
        """Mapping of continuous actions to the environment's bounds; see `action_map`."""
        self.observation_shape = spec.observation_shape
        """Shape of one observation: (F,), or (channels, height, width) of an image."""
        self.action_shape = self.distribution.action_shape
        """Shape of one action: (A,) if continuous, () if discrete."""
        self._to_bounds = None if bounds is None else action_map(spec.action_mapping, *bounds)
        self._start = start
        self._parts = parts
        self._state: Float32 | None = None
        """Recurrent state of the episodes in `act` [N, S]; None at their beginning."""

    def new_state(self, num_rows: int) -> Float32:
        """Return the initial recurrent state [N, S] of episodes; S is 0 without one."""
        return np.zeros((num_rows, self.spec.state_size), np.float32)

    def reset(self) -> None:
        """Start new episodes in `act`: clear the recurrent state."""
        self._state = None

    def with_weights(self, weights: Mapping[str, Float32]) -> "NumpyPolicy":
        """Return this policy with other weights and biases, by name."""
        return NumpyPolicy(self.spec, {**self.arrays, **weights}, graph=self._graph)

    def outputs(self, observation: NDArray[np.generic], state: Float32 | None = None) -> Float32:
        """Return the network's outputs [..., H] for observations [..., F] or images.

        Args:
            observation: The observations.
            state: Recurrent state of each # [N, S], advanced in place; required if recurrent.

        Raises:
            PolicyError: The observations' last axes are not an observation's, their number differs
                from that of the states, or a recurrent policy got no state.
        """
        shape = self.observation_shape
        leading = self._array(observation).shape[: observation.ndim - len(shape)]
        rows = np.ascontiguousarray(observation, np.float32).reshape(-1, *shape)
        if self.observation_scale is not None:
            rows = self.observation_scale.apply(rows, out=np.empty_like(rows))
        out = np.empty((len(rows), self.network.output_size), np.float32)
        if state is None and self.spec.recurrent:
            raise PolicyError(
                "is recurrent, so its outputs follow from its state, too: give one of new_state(n) "
                "where episodes begin, or call act, which remembers"
            )
        if state is not None and len(state) != len(rows):
            raise PolicyError(
                f"remembers {len(state)} episodes and got {len(rows)} observations: call reset() "
                "where others begin"
            )
        self.network.forward_pass(len(rows), state)(rows, out)
        return out.reshape(*leading, self.network.output_size)

    def sample(
        self,
        observation: NDArray[np.generic],
        rng: np.random.Generator,
        state: Float32 | None = None,
    ) -> tuple[Action, Float32]:
        """Return random actions [..., *act] and their log-probabilities [...].

        A recurrent state is as in `outputs`.
        """
        outputs = self.outputs(observation, state)
        leading = outputs.shape[:-1]
        action = self.distribution.new_actions(leading)
        self.distribution.sample(outputs, noise=self.distribution.noise(rng, leading), out=action)
        return action, self.distribution.log_prob(outputs, action)

    def act(self, observation: ArrayLike, state: Float32 | None = None) -> Action:
        """Return the deterministic policy's actions [..., *act] for observations [..., *obs].

        They are ready for `env.step`, as from the exported ONNX file: within the bounds of the
        environment's action space, with choices numbered as there. A recurrent policy keeps its
        state until `reset`, which must be called when an episode begins; several observations
        belong to separate episodes. Alternatively pass a `state` [N, S] from `new_state`, which is
        advanced in place.

        Raises:
            PolicyError: The observations' last axes are not an observation's, or the bounds of
                continuous actions are unknown.
        """
        seen = self._array(observation)
        if state is None and self.spec.recurrent:
            if self._state is None:
                leading = seen.shape[: seen.ndim - len(self.observation_shape)]
                self._state = self.new_state(math.prod(leading))
            state = self._state
        action = self.mode(seen, state)
        if self.distribution.num_choices is not None:
            return action if self._start is None else action + self._start
        if self._to_bounds is None:
            raise PolicyError(
                "holds no action_low and action_high, so the environment's bounds are not known: "
                "load what `nitro export` wrote, or give load_policy what `with_actions` returns"
            )
        return self._to_bounds(action).astype(np.float32)

    def _array(self, observation: object) -> NDArray[Any]:
        return as_array(observation, self.observation_shape, self._parts)

    def mode(self, observation: NDArray[np.generic], state: Float32 | None = None) -> Action:
        """Return the most likely actions [..., *act], choices from 0, before any mapping to bounds.

        Use `act` for actions in an environment. A recurrent state is as in `outputs`.
        """
        return self.distribution.mode(self.outputs(observation, state))

    def modes(self, num_rows: int, state: Float32) -> Callable[[Float32], Action]:
        """Return a faster `mode` for observations [N, *obs] float32 with a fixed N.

        Args:
            num_rows: N.
            state: Recurrent states # [N, S], advanced in place by each call.
        """
        forward, scale = self.network.forward_pass(num_rows, state), self.observation_scale
        out = np.empty((num_rows, self.network.output_size), np.float32)
        scaled = np.empty((num_rows, *self.observation_shape), np.float32)

        def mode(rows: Float32) -> Action:
            seen = rows if scale is None else scale.apply(rows, out=scaled)
            return self.distribution.mode(forward(seen, out))

        return mode

    def log_prob(
        self, observation: NDArray[np.generic], action: Action, state: Float32 | None = None
    ) -> Float32:
        """Return the log-probabilities [...] of actions [..., *act].

        A recurrent state is as in `outputs`.
        """
        return self.distribution.log_prob(self.outputs(observation, state), action)


def load_policy(
    arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]
) -> NumpyPolicy:
    """Return the policy in the arrays (see the module's description), which are copied.

    Raises:
        PolicyError: An array is missing, unknown, of the wrong type or shape or not finite, or the
            metadata has an unknown value.
    """
    numbers = {name: _finite(name, array) for name, array in arrays.items() if name != GRAPH}
    spec = PolicySpec.read(metadata, {name: array.shape for name, array in arrays.items()})
    graph = arrays.get(GRAPH, np.zeros(0, np.uint8))
    if graph.dtype != np.uint8:
        raise PolicyError(f"array {GRAPH!r} has dtype {graph.dtype}, expected uint8")
    try:
        return NumpyPolicy(
            spec,
            numbers,
            graph=graph.tobytes(),
            bounds=_bounds(metadata, spec.head),
            start=_start(metadata, spec.head),
            parts=metadata.get(OBSERVATION_PARTS, ""),
        )
    except ValueError as error:
        raise PolicyError(str(error)) from error


def with_actions(metadata: Mapping[str, str], action: ActionSpec) -> dict[str, str]:
    """Return a policy's metadata with the environment's action bounds or first action numbers."""
    found: dict[str, tuple[float, ...]] = {}
    if isinstance(action, ContinuousActionSpec):
        found = {"action_low": action.low, "action_high": action.high}
    elif isinstance(action, DiscreteActionSpec):
        found = {"action_start": (action.start,)} if action.start else {}
    elif action.starts:
        found = {"action_start": action.starts}
    return {**metadata, **{name: ",".join(map(repr, values)) for name, values in found.items()}}


def _require_raw_mask(arrays: Mapping[str, Float32], spec: PolicySpec) -> None:
    """Check that normalisation leaves the mask at the end of observations unchanged.

    Raises:
        PolicyError: It changes the mask.
    """
    mask = slice(-spec.head.num_outputs, None)
    moved = arrays["observation_mean"][mask].any()
    scaled = (arrays["observation_scale"][mask] != 1).any()
    if moved or scaled or (spec.observation_clip or 1.0) < 1:
        raise PolicyError(
            "observation_mean, observation_scale and observation_clip must leave the mask at the "
            "end of observations as it is: 0, 1, and at least 1"
        )


def _bounds(metadata: Mapping[str, str], head: Head) -> Bounds | None:
    shape = (head.size,)
    if head.num_choices:
        return None
    texts = {name: metadata[name] for name in ("action_low", "action_high") if name in metadata}
    if not texts:
        return None
    try:
        low, high = (np.array([float(x) for x in text.split(",")]) for text in texts.values())
    except ValueError as error:
        raise PolicyError(f"action_low and action_high are no two lists: {error}") from error
    if low.shape != shape or high.shape != shape or not (low <= high).all():
        raise PolicyError(f"action_low {low} and action_high {high} are no bounds of {shape}")
    return low, high


def _start(metadata: Mapping[str, str], head: Head) -> NDArray[np.int64] | None:
    text = metadata.get("action_start")
    if text is None:
        return None
    shape = () if head.distribution == "categorical" else (len(head.num_choices),)
    try:
        start = np.array([int(part) for part in text.split(",")], np.int64)
        if not head.num_choices:
            raise ValueError("continuous actions have none")
        return start.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise PolicyError(
            f"action_start is {text!r:.80}, expected whole numbers of shape {shape}: {error}"
        ) from error


def halved(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Return a policy's arrays with its layers in float16; statistics of observations stay."""
    return {
        name: array.astype(np.float16) if name.startswith(_LAYERS) and name != GRAPH else array
        for name, array in arrays.items()
    }


def _finite(name: str, array: NDArray[np.generic]) -> Float32:
    if array.dtype != np.float32 and not (array.dtype == np.float16 and name.startswith(_LAYERS)):
        raise PolicyError(f"array {name!r:.80} has dtype {array.dtype}, expected float32")
    values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise PolicyError(f"array {name!r:.80} is not finite")
    return values
