"""Policies in NumPy: what an actor needs to act, from the arrays the learner exports.

Actors carry no torch: for the small networks of continuous control a forward pass in NumPy is
faster than one in torch, and the actor's image stays small.

Networks (the metadata's `network`): `mlp`, layers over vectors with the metadata's `activation`
between them, `tanh`, `relu` or `elu`, and a layer norm before each if its `layer_norm` is `yes`;
or a network for images out of `shared.policy.conv_layers`, by its
name, for images of the metadata's `image_shape`.

Arrays: `policy.{i}.weight` [out, in], or [filters, channels, height, width] of a convolution, and
`policy.{i}.bias` [out] float32, or rounded to float16 on their way to actors, for layers i = 0..L,
as torch lays them out. What the last layer's outputs are, the metadata's `distribution` and
`log_std` say: `mean | log_std` (2A; `gaussian`, `state_dependent`), `mean` (A; `gaussian`, `free`,
with an array `log_std` [A] beside the layers) or logits (n; `categorical`, `none`).
`multi_categorical`, `none` has the logits of several choices side by side; the metadata's
`num_choices` says how many each has: `3,2`. `squashed_gaussian`, `state_dependent` has
`mean | raw` (2A), as `shared.policy.squashed_gaussian` reads them; with the metadata's `sampling`
`uniform` actions are drawn from [-1, 1] instead, whatever the network says.

With `observation_mean` [F] and `observation_scale` [F] float32 and the metadata's
`observation_clip` the network sees normalised observations; the metadata's `action_mapping`
(`rescale` where there is none) says how continuous actions reach the environment's bounds, and
`action_low` and `action_high` what those are: `-2.0,-1.0`. `action_start` is the environment's own
number of the first action, or of each choice's first: `5` or `0,3`. Actors know all three from
their environment, so only exported policies have them.

To act: `load_policy(arrays, metadata).act(observation)`.

Legend: `T` steps, `B` environments side by side, `F` observation size, `A` action size, `H` network
outputs.
"""

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
)
from shared.hyperparameters.common import ActionMapping, Activation
from shared.policy.action_mapping import ACTION_MAPPINGS, action_map
from shared.policy.conv import ConvNetwork
from shared.policy.conv_layers import CONV_NETWORKS, conv_layers
from shared.policy.distributions import (
    MAX_CHOICES,
    Action,
    Categorical,
    Distribution,
    Float32,
    Gaussian,
    MultiCategorical,
)
from shared.policy.mlp import Mlp
from shared.policy.observation_scale import ObservationScale
from shared.policy.squashed_gaussian import SquashedGaussian

POLICY_FORMAT = "nitro-policy/1"
_LAYERS = "policy."

KINDS = (
    "gaussian/state_dependent",
    "gaussian/free",
    "squashed_gaussian/state_dependent",
    "categorical/none",
    "multi_categorical/none",
)
ACTIVATIONS: dict[str, tuple[Activation, ...]] = {
    "mlp": ("tanh", "relu", "elu"),
    **dict.fromkeys(CONV_NETWORKS, ("relu",)),
}
_IMAGE_SHAPE = re.compile(r"[1-9][0-9]{0,3}(,[1-9][0-9]{0,3}){2}")
_CHOICES = re.compile(rf"[1-9][0-9]{{0,5}}(,[1-9][0-9]{{0,5}}){{0,{MAX_CHOICES - 1}}}")


Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Lowest and highest action # [A] each."""


class PolicyError(ValueError):
    """Arrays and metadata that make no policy; the message names the offending one."""


class NumpyPolicy:
    """A network, what it sees of an observation, and the distribution over its outputs."""

    def __init__(
        self,
        network: Mlp | ConvNetwork,
        distribution: Distribution,
        *,
        observation_scale: ObservationScale | None = None,
        action_mapping: ActionMapping = "rescale",
        bounds: Bounds | None = None,
        start: NDArray[np.int64] | None = None,
    ) -> None:
        self.network = network
        self.distribution = distribution
        self.observation_scale = observation_scale
        """None where the network sees observations as they are."""
        self.action_mapping = action_mapping
        """How continuous actions reach the environment's bounds; `action_map` does it."""
        self.observation_shape = network.input_shape
        """Of one observation: (F,), or (channels, height, width) of an image."""
        self.action_shape = distribution.action_shape
        """Of one action: (A,) if continuous, () if discrete."""
        self._to_bounds = None if bounds is None else action_map(action_mapping, *bounds)
        self._start = start

    def outputs(self, observation: NDArray[np.generic]) -> Float32:
        """Return the network's outputs [..., H] for observations [..., F] or images.

        Raises:
            PolicyError: The observations' last axes are not an observation's.
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
        self.network.forward_pass(len(rows))(rows, out)
        return out.reshape(*leading, self.network.output_size)

    def sample(
        self, observation: NDArray[np.generic], rng: np.random.Generator
    ) -> tuple[Action, Float32]:
        """Return random actions [..., *act] and their log-probabilities [...]."""
        outputs = self.outputs(observation)
        leading = outputs.shape[:-1]
        action = self.distribution.new_actions(leading)
        self.distribution.sample(outputs, noise=self.distribution.noise(rng, leading), out=action)
        return action, self.distribution.log_prob(outputs, action)

    def act(self, observation: ArrayLike) -> Action:
        """Return what the deterministic policy does, [..., *act] for observations [..., *obs].

        It is what `env.step` takes, as from the exported ONNX file: within the bounds of the
        environment's action space, choices numbered as they are there.

        Raises:
            PolicyError: The observations' last axes are not an observation's, or the bounds of
                continuous actions are not known.
        """
        action = self.mode(np.asarray(observation))
        if self.distribution.num_choices is not None:
            return action if self._start is None else action + self._start
        if self._to_bounds is None:
            raise PolicyError(
                "holds no action_low and action_high, so the environment's bounds are not known: "
                "load what `nitro export` wrote, or give load_policy what `with_actions` returns"
            )
        return self._to_bounds(action).astype(np.float32)

    def mode(self, observation: NDArray[np.generic]) -> Action:
        """Return the most likely actions [..., *act], choices from 0, before any mapping to bounds.

        What to do in an environment is what `act` returns.
        """
        return self.distribution.mode(self.outputs(observation))

    def log_prob(self, observation: NDArray[np.generic], action: Action) -> Float32:
        """Return the log-probabilities [...] of actions [..., *act]."""
        return self.distribution.log_prob(self.outputs(observation), action)


def load_policy(
    arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]
) -> NumpyPolicy:
    """Return the policy that the arrays hold (see the module's description); they are copied.

    Raises:
        PolicyError: An array is missing, unknown, of the wrong type or shape or not finite, or the
            metadata names something this module does not know.
    """
    _expect(metadata, "format", (POLICY_FORMAT,))
    name = _expect(metadata, "network", tuple(ACTIVATIONS))
    _expect(metadata, "activation", ACTIVATIONS[name])
    _expect({"layer_norm": "no", **metadata}, "layer_norm", ("no", "yes"))
    kind = f"{metadata.get('distribution')}/{metadata.get('log_std')}"
    if kind not in KINDS:
        raise PolicyError(f"distribution/log_std is {kind!r:.80}, expected one of {KINDS}")
    action_mapping = metadata.get("action_mapping", "rescale")
    if action_mapping not in ACTION_MAPPINGS:
        raise PolicyError(
            f"action_mapping is {action_mapping!r:.80}, expected one of {ACTION_MAPPINGS}"
        )
    layers = {name: _finite(name, array) for name, array in arrays.items()}
    scale = _observation_scale(
        layers.pop("observation_mean", None), layers.pop("observation_scale", None), metadata
    )
    log_std = layers.pop("log_std", None) if kind == "gaussian/free" else None
    network = _network(layers, metadata)
    if scale is not None and (scale.size,) != network.input_shape:
        raise PolicyError(
            f"observation_mean has {scale.size} numbers, the network takes {network.input_shape}"
        )
    distribution = _distribution(kind, network.output_size, log_std, metadata)
    return NumpyPolicy(
        network,
        distribution,
        observation_scale=scale,
        action_mapping=action_mapping,
        bounds=_bounds(metadata, distribution),
        start=_start(metadata, distribution),
    )


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


def _bounds(metadata: Mapping[str, str], distribution: Distribution) -> Bounds | None:
    if distribution.num_choices is not None:
        return None
    shape = distribution.action_shape
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


def _start(metadata: Mapping[str, str], distribution: Distribution) -> NDArray[np.int64] | None:
    text = metadata.get("action_start")
    if text is None:
        return None
    shape = distribution.action_shape
    try:
        start = np.array([int(part) for part in text.split(",")], np.int64)
        if distribution.num_choices is None:
            raise ValueError("continuous actions have none")
        return start.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise PolicyError(
            f"action_start is {text!r:.80}, expected whole numbers of shape {shape}: {error}"
        ) from error


def _observation_scale(
    mean: Float32 | None, scale: Float32 | None, metadata: Mapping[str, str]
) -> ObservationScale | None:
    if mean is None and scale is None:
        return None
    if mean is None or scale is None:
        raise PolicyError("holds one of observation_mean and observation_scale, expected both")
    text = metadata.get("observation_clip", "")
    try:
        return ObservationScale(mean, scale, bound=float(text))
    except ValueError as error:
        raise PolicyError(f"observation_clip {text!r:.80}: {error}") from error


def halved(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[np.generic]]:
    """Return a policy's arrays with its layers in float16; what scales observations stays."""
    return {
        name: array.astype(np.float16) if name.startswith(_LAYERS) else array
        for name, array in arrays.items()
    }


def _finite(name: str, array: NDArray[np.generic]) -> Float32:
    if array.dtype != np.float32 and not (array.dtype == np.float16 and name.startswith(_LAYERS)):
        raise PolicyError(f"array {name!r:.80} has dtype {array.dtype}, expected float32")
    values = array.astype(np.float32)
    if not np.isfinite(values).all():
        raise PolicyError(f"array {name!r:.80} is not finite")
    return values


def _expect(metadata: Mapping[str, str], field: str, allowed: tuple[str, ...]) -> str:
    value = metadata.get(field)
    if value not in allowed:
        wanted = repr(allowed[0]) if len(allowed) == 1 else f"one of {allowed}"
        raise PolicyError(f"{field} is {value!r:.80}, expected {wanted}")
    return value


def _network(arrays: Mapping[str, Float32], metadata: Mapping[str, str]) -> Mlp | ConvNetwork:
    layers = range(len(arrays) // 2)
    expected = {f"policy.{i}.{part}" for i in layers for part in ("weight", "bias")}
    if not expected or arrays.keys() != expected:
        raise PolicyError(
            f"holds arrays {sorted(arrays)!r:.300}, expected policy.{{i}}.weight and "
            "policy.{i}.bias for layers i = 0, 1, ... (and log_std if it is free)"
        )
    weights = [arrays[f"policy.{i}.weight"] for i in layers]
    biases = [arrays[f"policy.{i}.bias"] for i in layers]
    try:
        for name in CONV_NETWORKS:
            if metadata["network"] == name:
                shape = _image_shape(metadata.get("image_shape", ""))
                return ConvNetwork(conv_layers(name, shape), weights, biases)
        for activation in ACTIVATIONS["mlp"]:
            if metadata["activation"] == activation:
                norm = metadata.get("layer_norm", "no") == "yes"
                return Mlp(weights, biases, activation=activation, layer_norm=norm)
        raise PolicyError(f"activation is {metadata['activation']!r:.80}")
    except ValueError as error:
        raise PolicyError(str(error)) from error


def _image_shape(text: str) -> tuple[int, ...]:
    if not _IMAGE_SHAPE.fullmatch(text):
        raise PolicyError(f"image_shape is {text!r:.80}, expected channels,height,width")
    return tuple(int(size) for size in text.split(","))


def _multi_categorical(text: str, num_outputs: int) -> MultiCategorical:
    num_choices = [int(part) for part in text.split(",")] if _CHOICES.fullmatch(text) else []
    if not num_choices or sum(num_choices) != num_outputs:
        raise PolicyError(
            f"num_choices is {text!r:.80}, expected whole numbers from 1 with commas between them "
            f"that add up to the {num_outputs} outputs"
        )
    return MultiCategorical(num_choices)


def _distribution(
    kind: str, num_outputs: int, log_std: Float32 | None, metadata: Mapping[str, str]
) -> Distribution:
    if kind == "categorical/none":
        return Categorical(num_outputs)
    if kind == "multi_categorical/none":
        return _multi_categorical(metadata.get("num_choices", ""), num_outputs)
    if kind.endswith("/state_dependent") and num_outputs % 2:
        raise PolicyError(f"{num_outputs} outputs cannot be split into mean and log_std")
    if kind == "squashed_gaussian/state_dependent":
        uniform = _expect({"sampling": "policy", **metadata}, "sampling", ("policy", "uniform"))
        return SquashedGaussian(num_outputs // 2, uniform=uniform == "uniform")
    if kind == "gaussian/state_dependent":
        return Gaussian(num_outputs // 2, log_std=None)
    if log_std is None or log_std.shape != (num_outputs,):
        shape = None if log_std is None else log_std.shape
        raise PolicyError(f"log_std has shape {shape}, expected ({num_outputs},)")
    return Gaussian(num_outputs, log_std=log_std)
