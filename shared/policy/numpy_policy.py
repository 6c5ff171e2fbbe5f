"""Policies in NumPy: what an actor needs to act, from the arrays the learner exports.

Actors carry no torch: for the small networks of continuous control a forward pass in NumPy is
faster than one in torch, and the actor's image stays small.

Networks (the metadata's `network`): `mlp`, layers over vectors with the metadata's `activation`
between them, `tanh`, `relu` or `elu`, and a layer norm before each if its `layer_norm` is `yes`;
or a network for images out of `shared.policy.blocks`, by its name, for images of the metadata's
`image_shape`; or, with the metadata's `image_shapes` (`3,84,84;1,64,48`) and `numbers`, such a
network for each image of a flat observation `image | image | ... | numbers`, whose last layers give
what layers as those of `mlp` see beside the numbers; or `onnx`, a graph for observations of the
metadata's `observation_shape`, with `num_outputs` outputs, as `shared.policy.onnx_network` runs it.
`shared.policy.spec` reads them.

Arrays: `policy.{i}.weight` [out, in], or [filters, channels, height, width] of a convolution, and
`policy.{i}.bias` [out] float32, or rounded to float16 on their way to actors, for layers i = 0..L,
as torch lays them out; of `onnx` one array `policy.graph` [bytes] uint8. What the last layer's
outputs are, the metadata's `distribution` and `log_std` say: `mean | log_std` (2A; `gaussian`,
`state_dependent`), `mean` (A; `gaussian`, `free`, with an array `log_std` [A] beside the layers) or
logits (n; `categorical`, `none`).
`multi_categorical`, `none` has the logits of several choices side by side; the metadata's
`num_choices` says how many each has: `3,2`. With the metadata's `mask` `yes` the end of an
observation says which choices are allowed, see `shared.policy.action_mask`. With `recurrent` `lstm`
or `gru` of `mlp` the last layer but one is cells, see `shared.policy.recurrent`.
`squashed_gaussian`, `state_dependent` has `mean | raw` (2A), as `shared.policy.squashed_gaussian`
reads them; with the metadata's `sampling` `uniform` actions are drawn from [-1, 1] instead,
whatever the network says.

With `observation_mean` [F] and `observation_scale` [F] float32 and the metadata's
`observation_clip` the network sees the last F numbers of an observation normalised; the metadata's
`action_mapping` (`rescale` where there is none) says how continuous actions reach the environment's
bounds, and `action_low` and `action_high` what those are: `-2.0,-1.0`. `action_start` is the
environment's own number of the first action, or of each choice's first: `5` or `0,3`. Actors know
all three from their environment, so only exported policies have them.

To act: `load_policy(arrays, metadata).act(observation)`.

Legend: `T` steps, `B` environments side by side, `F` observation size, `A` action size, `H` network
outputs, `S` numbers of a recurrent state.
"""

import math
from collections.abc import Mapping

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
from shared.policy.numpy_network import NumpyNetwork
from shared.policy.observation_scale import ObservationScale
from shared.policy.onnx_network import OnnxNetwork
from shared.policy.spec import GRAPH, PolicySpec

_LAYERS = "policy."

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Lowest and highest action # [A] each."""


class NumpyPolicy:
    """A network, what it sees of an observation, and the distribution over its outputs."""

    def __init__(
        self,
        spec: PolicySpec,
        arrays: Mapping[str, Float32],
        *,
        graph: bytes = b"",
        bounds: Bounds | None = None,
        start: NDArray[np.int64] | None = None,
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
        """None where the network sees observations as they are."""
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
        """How continuous actions reach the environment's bounds; `action_map` does it."""
        self.observation_shape = spec.observation_shape
        """Of one observation: (F,), or (channels, height, width) of an image."""
        self.action_shape = self.distribution.action_shape
        """Of one action: (A,) if continuous, () if discrete."""
        self._to_bounds = None if bounds is None else action_map(spec.action_mapping, *bounds)
        self._start = start
        self._state: Float32 | None = None
        """Of the episodes that `act` goes on with [N, S]; None where they begin."""

    def new_state(self, num_rows: int) -> Float32:
        """Return the recurrent state [N, S] that episodes begin with; S is 0 without one."""
        return np.zeros((num_rows, self.spec.state_size), np.float32)

    def reset(self) -> None:
        """Have `act` begin new episodes: what a recurrent policy remembers is forgotten."""
        self._state = None

    def with_weights(self, weights: Mapping[str, Float32]) -> "NumpyPolicy":
        """Return this policy with other weights and biases, by name."""
        return NumpyPolicy(self.spec, {**self.arrays, **weights}, graph=self._graph)

    def outputs(self, observation: NDArray[np.generic], state: Float32 | None = None) -> Float32:
        """Return the network's outputs [..., H] for observations [..., F] or images.

        Args:
            observation: The observations.
            state: Recurrent state of each # [N, S], moved on in place; a recurrent policy needs it.

        Raises:
            PolicyError: The observations' last axes are not an observation's, or there are more or
                fewer of them than states, or no states of a recurrent policy.
        """
        shape = self.observation_shape
        num_leading = observation.ndim - len(shape)
        if num_leading < 0 or observation.shape[num_leading:] != shape:
            expected = ", ".join(map(str, shape))
            raise PolicyError(
                f"observation has shape {observation.shape}, expected (..., {expected})"
            )
        leading = observation.shape[:num_leading]
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
        """Return what the deterministic policy does, [..., *act] for observations [..., *obs].

        It is what `env.step` takes, as from the exported ONNX file: within the bounds of the
        environment's action space, choices numbered as they are there. A recurrent policy
        remembers what it saw since `reset`, which is to be called where an episode begins; of
        several observations each belongs to an episode of its own. Or give it a `state` [N, S] of
        `new_state`, which it moves on in place.

        Raises:
            PolicyError: The observations' last axes are not an observation's, or the bounds of
                continuous actions are not known.
        """
        seen = np.asarray(observation)
        if state is None and self.spec.recurrent:
            if self._state is None:
                leading = seen.shape[: max(0, seen.ndim - len(self.observation_shape))]
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

    def mode(self, observation: NDArray[np.generic], state: Float32 | None = None) -> Action:
        """Return the most likely actions [..., *act], choices from 0, before any mapping to bounds.

        What to do in an environment is what `act` returns. A recurrent state is as in `outputs`.
        """
        return self.distribution.mode(self.outputs(observation, state))

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
    """Return the policy that the arrays hold (see the module's description); they are copied.

    Raises:
        PolicyError: An array is missing, unknown, of the wrong type or shape or not finite, or the
            metadata names something this module does not know.
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
        )
    except ValueError as error:
        raise PolicyError(str(error)) from error


def with_actions(metadata: Mapping[str, str], action: ActionSpec) -> dict[str, str]:
    """Return a policy's metadata with its environment's bounds, or first numbers, of actions."""
    found: dict[str, tuple[float, ...]] = {}
    if isinstance(action, ContinuousActionSpec):
        found = {"action_low": action.low, "action_high": action.high}
    elif isinstance(action, DiscreteActionSpec):
        found = {"action_start": (action.start,)} if action.start else {}
    elif action.starts:
        found = {"action_start": action.starts}
    return {**metadata, **{name: ",".join(map(repr, values)) for name, values in found.items()}}


def _require_raw_mask(arrays: Mapping[str, Float32], spec: PolicySpec) -> None:
    """Do nothing if normalisation leaves the mask at the end of observations as it is.

    Raises:
        PolicyError: It does not.
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
    """Return a policy's arrays with its layers in float16; what scales observations stays."""
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
