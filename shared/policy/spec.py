"""A policy as data: its blocks, and the meaning of the last block's outputs.

It follows from a job's hyper-parameters and environment, or is read from a published policy: its
metadata (text by name) and the shapes of its arrays. The learner and actors build their networks
from it, `nitro export` builds a graph, and admission counts its weights. This module does not need
NumPy.

Arrays: `policy.{i}.weight` and `policy.{i}.bias` of the layers i = 0, 1, ...; `log_std` [A] where
the deviations are free; `observation_mean` [F] and `observation_scale` [F] where the last F numbers
of observations are normalised, then clipped to +- the metadata's `observation_clip`. A third-party
network has one array `policy.graph` in place of layers: the bytes of an ONNX graph.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

from shared.contracts.environment_spec import (
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters.common import ActionMapping, CommonHyperparameters, Hyperparameters
from shared.hyperparameters.search import SearchHyperparameters
from shared.policy.blocks import (
    CONV_NETWORKS,
    Activation,
    Block,
    Dense,
    Graph,
    ImageNetworkName,
    Layer,
    Parts,
    Pixels,
    dense_blocks,
    image_blocks,
    layers_of,
    network_for,
    parts_block,
    recurrent_blocks,
)
from shared.policy.head import Head, PolicyError, expect
from shared.policy.recurrent import CELLS, GATES, Recurrent
from shared.policy.registry import NETWORKS

POLICY_FORMAT = "nitro-policy/1"

GRAPH = "policy.graph"
"""Array name of a third-party network's graph."""

LayersName = ImageNetworkName | Literal["mlp"]
ACTION_MAPPINGS: tuple[ActionMapping, ...] = get_args(ActionMapping)
ACTIVATIONS: dict[LayersName, tuple[Activation, ...]] = {
    "mlp": get_args(Activation),
    **dict.fromkeys((*CONV_NETWORKS, "small_cnn"), ("relu",)),
}
_SIZE = "[1-9][0-9]{0,6}"
_IMAGE = "[1-9][0-9]{0,3}(,[1-9][0-9]{0,3}){2}"
_IMAGE_SHAPE = re.compile(_IMAGE)
_IMAGE_SHAPES = re.compile(f"{_IMAGE}(;{_IMAGE}){{0,99}}")
_NUMBERS = re.compile(f"0|{_SIZE}")
_SHAPE = re.compile(rf"{_SIZE}(,{_SIZE}){{0,2}}")
_MAX_NUMBERS = 2**22
"""Largest size of an observation or of outputs: actors allocate them before they load the graph."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """A policy without its weights."""

    network: str
    """A name in `ACTIVATIONS` or `NETWORKS`, or `onnx`."""
    blocks: tuple[Block, ...]
    head: Head
    observation_clip: float | None = None
    """Bound of normalised observations; None without normalisation."""
    num_normalised: int = 0
    """How many of an observation's last numbers are normalised; the others are pixels."""
    action_mapping: ActionMapping = "rescale"
    """Mapping of continuous actions to the environment's bounds."""

    @classmethod
    def of(cls, environment: EnvironmentSpec, rule: Hyperparameters) -> Self:
        """Return the spec of a job's policy.

        Raises:
            ValueError: The network cannot take the images in the observations.
        """
        observation = environment.observation
        head = replace(Head.of(environment.action, rule), masked=environment.mask_size > 0)
        network, blocks = _chosen(observation, rule, head.num_outputs)
        clip = None
        if (
            isinstance(rule, CommonHyperparameters | SearchHyperparameters)
            and rule.observation_normalisation
        ):
            clip = rule.observation_clip if observation.num_numbers else None
            if environment.mask_size and rule.observation_clip < 1:
                raise ValueError(
                    "observation_clip: must be at least 1 where observations end with a mask"
                )
        return cls(
            network=network,
            blocks=blocks,
            head=head,
            observation_clip=clip,
            num_normalised=observation.num_numbers if clip else 0,
            action_mapping=getattr(rule, "action_mapping", "rescale"),
        )

    @classmethod
    def read(cls, metadata: Mapping[str, str], shapes: Shapes) -> Self:
        """Return the spec of a published policy, checked against the shapes of its arrays.

        Raises:
            PolicyError: The metadata has an unknown value, or an array is missing, unknown or of
                the wrong shape.
        """
        expect(metadata, "format", (POLICY_FORMAT,))
        network = expect(metadata, "network", (*ACTIVATIONS, "onnx", *NETWORKS))
        blocks: tuple[Block, ...]
        if network not in ACTIVATIONS:
            graph = _graph(metadata, shapes)
            blocks, num_outputs = (graph,), graph.outputs
            if network in NETWORKS:
                blocks = NETWORKS[network](graph.observation_shape, num_outputs)
        else:
            weights = [shapes[f"policy.{i}.weight"] for i in range(_num_layers(shapes))]
            if not weights or not all(all(shape) and shape for shape in weights):
                raise PolicyError(f"holds arrays {sorted(shapes)!r:.300}, which make no network")
            blocks, num_outputs = _blocks(network, metadata, weights), weights[-1][0]
        clip, normalised = None, 0
        if "observation_mean" in shapes or "observation_scale" in shapes:
            clip = _bound(metadata.get("observation_clip", ""))
            normalised = math.prod(shapes.get("observation_mean", ()))
            if network in ACTIVATIONS:
                normalised = _num_numbers(blocks[0])
        spec = cls(
            network=network,
            blocks=blocks,
            head=Head.read(metadata, num_outputs),
            observation_clip=clip,
            num_normalised=normalised,
            action_mapping=expect(
                {"action_mapping": "rescale", **metadata}, "action_mapping", ACTION_MAPPINGS
            ),
        )
        spec.require(shapes)
        return spec

    @property
    def layers(self) -> list[Layer]:
        """Blocks with parameters."""
        return layers_of(self.blocks)

    @property
    def recurrent(self) -> Recurrent | None:
        """The recurrent block; None if outputs depend on the observation alone."""
        return next((block for block in self.blocks if isinstance(block, Recurrent)), None)

    @property
    def state_size(self) -> int:
        """Size of the recurrent state; 0 without one."""
        return self.recurrent.state_size if self.recurrent else 0

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation: (F,), or (channels, height, width) of an image."""
        first = self.blocks[0]
        if isinstance(first, Graph):
            return first.observation_shape
        if isinstance(first, Pixels):
            return first.image_shape
        if isinstance(first, Parts):
            return (sum(first.sizes),)
        assert isinstance(first, Dense), "what takes no images takes vectors"
        return (first.inputs,)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all arrays, by name."""
        found: dict[str, tuple[int, ...]] = {}
        for i, layer in enumerate(self.layers):
            found[f"policy.{i}.weight"] = layer.weight_shape
            found[f"policy.{i}.bias"] = layer.weight_shape[:1]
        if isinstance(self.blocks[0], Graph):
            found[GRAPH] = (self.blocks[0].size,)
        if self.head.log_std == "free":
            found["log_std"] = (self.head.size,)
        if self.observation_clip is not None:
            names = ("observation_mean", "observation_scale")
            found |= dict.fromkeys(names, (self.num_normalised,))
        return found

    @property
    def num_weights(self) -> int:
        """Number of trainable weights."""
        return sum(
            math.prod(shape)
            for name, shape in self.shapes.items()
            if not name.startswith("observation")
        )

    def require(self, shapes: Shapes) -> None:
        """Check the shapes of arrays.

        Raises:
            PolicyError: A shape is not the spec's.
        """
        expected = self.shapes
        if shapes.keys() != expected.keys():
            raise PolicyError(f"holds arrays {sorted(shapes)!r:.300}, expected {sorted(expected)}")
        for name, shape in expected.items():
            if shapes[name] != shape:
                raise PolicyError(f"{name} has shape {shapes[name]}, expected {shape}")
        seen, outputs = self.observation_shape, self.head.num_outputs
        if self.num_normalised > seen[0] or (self.num_normalised and len(seen) > 1):
            raise PolicyError(
                f"observation_mean has shape ({self.num_normalised},), observations have {seen}"
            )
        if self.head.masked and not (len(seen) == 1 and seen[0] >= outputs):
            raise PolicyError(f"observations of shape {seen} end with no mask of {outputs} choices")

    def metadata(self) -> dict[str, str]:
        """Return the metadata of a published policy."""
        hidden = [block for block in self.blocks[:-1] if isinstance(block, Dense)]
        first = self.blocks[0]
        said = {"format": POLICY_FORMAT, "network": self.network, "activation": "relu"}
        if self.network not in ACTIVATIONS:
            its = sized_metadata(self.network, self.observation_shape, self.head.num_outputs)
            return {"format": POLICY_FORMAT, **its, **self.head.metadata()}
        if isinstance(first, Pixels):
            said["image_shape"] = _listed(first.image_shape)
        elif hidden:
            said["activation"] = hidden[-1].activation or "tanh"
            said |= {"layer_norm": "yes"} if hidden[-1].layer_norm else {}
        if isinstance(first, Parts):
            said["image_shapes"] = ";".join(map(_listed, first.image_shapes))
            said["numbers"] = str(first.numbers)
        if self.recurrent:
            said["recurrent"] = self.recurrent.cell
        return said | self.head.metadata()


def _chosen(
    observation: ObservationSpec, rule: Hyperparameters, outputs: int
) -> tuple[str, tuple[Block, ...]]:
    """Return the name and the blocks of a job's network.

    Raises:
        ValueError: The network cannot take an image in the observations.
    """
    numbers = math.prod(observation.shape)
    if isinstance(rule, CommonHyperparameters) and rule.network:
        shape = observation.shape if observation.is_image else (numbers,)
        if rule.network in NETWORKS:
            return rule.network, NETWORKS[rule.network](shape, outputs)
        return "onnx", (Graph(observation_shape=shape, outputs=outputs, size=0),)
    if isinstance(rule, CommonHyperparameters) and rule.recurrent != "none":
        if observation.has_images:
            raise ValueError(
                "its observations have images, and recurrent cells are for vectors: set "
                "hyperparameters.recurrent to none"
            )
        return "mlp", recurrent_blocks(
            (numbers, *rule.hidden_sizes),
            rule.recurrent,
            units=rule.recurrent_units,
            outputs=outputs,
            activation=rule.activation,
            layer_norm=rule.layer_norm,
        )
    if observation.is_image and isinstance(rule, CommonHyperparameters):
        network = network_for(rule.image_network, observation.shape)
        return network, image_blocks(network, observation.shape, outputs=outputs)
    name, inputs = "mlp", numbers
    first: tuple[Block, ...] = ()
    if observation.images and isinstance(rule, CommonHyperparameters):
        parts = parts_block(rule.image_network, observation.images, observation.num_numbers)
        name, first, inputs = rule.image_network, (parts,), parts.outputs
    sizes = (inputs, *rule.hidden_sizes, outputs)
    dense = dense_blocks(sizes, activation=rule.activation, layer_norm=rule.layer_norm)
    return name, (*first, *dense)


def sized_metadata(network: str, shape: tuple[int, ...], outputs: int) -> dict[str, str]:
    """Return a published policy's metadata for a network defined by its sizes or by a graph."""
    said = {"network": network, "observation_shape": _listed(shape)}
    return {**said, "num_outputs": str(outputs)}


def _listed(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


def _graph(metadata: Mapping[str, str], shapes: Shapes) -> Graph:
    """Return the block of a published third-party network.

    Raises:
        PolicyError: The metadata or the arrays do not describe one.
    """
    shape, outputs = (metadata.get(name, "") for name in ("observation_shape", "num_outputs"))
    if not _SHAPE.fullmatch(shape):
        raise PolicyError(f"observation_shape is {shape!r:.80}, expected numbers with commas")
    if not re.fullmatch(_SIZE, outputs):
        raise PolicyError(f"num_outputs is {outputs!r:.80}, expected a number from 1")
    graph = Graph(
        observation_shape=_sizes(shape),
        outputs=int(outputs),
        size=math.prod(shapes.get(GRAPH, ())),
    )
    if max(math.prod(graph.observation_shape), graph.outputs) > _MAX_NUMBERS:
        raise PolicyError(f"{shape} observations or {outputs} outputs are too many numbers")
    return graph


def _num_numbers(first: Block) -> int:
    """Return how many numbers of an observation are not pixels."""
    if isinstance(first, Dense):
        return first.inputs
    return first.numbers if isinstance(first, Parts) else 0


def _num_layers(shapes: Shapes) -> int:
    count = 0
    while f"policy.{count}.weight" in shapes:
        count += 1
    return count


def _blocks(
    network: LayersName, metadata: Mapping[str, str], weights: list[tuple[int, ...]]
) -> tuple[Block, ...]:
    """Return the blocks of a published network, given its layers' shapes.

    Raises:
        PolicyError: The metadata does not describe a network.
    """
    shapes = metadata.get("image_shapes")
    has_dense = network == "mlp" or shapes is not None
    activation = expect(metadata, "activation", ACTIVATIONS["mlp" if has_dense else network])
    norms = ("no", "yes") if has_dense else ("no",)
    layer_norm = expect({"layer_norm": "no", **metadata}, "layer_norm", norms) == "yes"
    cell = expect({"recurrent": "none", **metadata}, "recurrent", CELLS)
    if cell != "none":
        if network != "mlp" or len(weights) < 3:
            raise PolicyError(f"recurrent is {cell!r}, but there is no layer for its cells")
        *hidden, core, last = weights
        return recurrent_blocks(
            (hidden[0][-1], *(shape[0] for shape in hidden)),
            cell,
            units=max(1, core[0] // GATES[cell]),
            outputs=last[0],
            activation=activation,
            layer_norm=layer_norm,
        )
    if network == "mlp":
        sizes = (weights[0][-1], *(shape[0] for shape in weights))
        return dense_blocks(sizes, activation=activation, layer_norm=layer_norm)
    try:
        if shapes is not None:
            seen = _parts(network, shapes, metadata.get("numbers", ""))
            behind = weights[len(layers_of((seen,))) :]
            if not behind:
                raise PolicyError(f"has {len(weights)} layers, too few for images {shapes!r:.80}")
            sizes = (seen.outputs, *(shape[0] for shape in behind))
            return (seen, *dense_blocks(sizes, activation=activation, layer_norm=layer_norm))
        text = metadata.get("image_shape", "")
        if not _IMAGE_SHAPE.fullmatch(text):
            raise PolicyError(f"image_shape is {text!r:.80}, expected channels,height,width")
        return image_blocks(network, _sizes(text), outputs=weights[-1][0])
    except ValueError as error:
        raise PolicyError(str(error)) from error


def _parts(network: LayersName, shapes: str, numbers: str) -> Parts:
    """Return the block of several images and plain numbers.

    Raises:
        ValueError: The texts do not describe one.
    """
    if network not in CONV_NETWORKS or not _IMAGE_SHAPES.fullmatch(shapes):
        raise PolicyError(
            f"image_shapes is {shapes!r:.80} of {network}, expected channels,height,width with "
            f"semicolons between images, of one of {CONV_NETWORKS}"
        )
    if not _NUMBERS.fullmatch(numbers):
        raise PolicyError(f"numbers is {numbers!r:.80}, expected a number from 0")
    return parts_block(network, [_sizes(text) for text in shapes.split(";")], int(numbers))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(","))


def _bound(text: str) -> float:
    try:
        bound = float(text)
        if not (math.isfinite(bound) and bound > 0):
            raise ValueError("expected a number above 0")
    except ValueError as error:
        raise PolicyError(f"observation_clip {text!r:.80}: {error}") from error
    return bound
