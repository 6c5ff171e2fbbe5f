"""A policy's network in the texts of its metadata, and back into blocks."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from shared.policy.blocks import (
    CONV_NETWORKS,
    Activation,
    Block,
    Dense,
    Graph,
    ImageNetworkName,
    Parts,
    Pixels,
    dense_blocks,
    image_blocks,
    layers_of,
    parts_block,
    recurrent_blocks,
)
from shared.policy.head import PolicyError, expect
from shared.policy.recurrent import CELLS, GATES, Recurrent
from shared.policy.registry import NETWORKS

GRAPH = "policy.graph"
"""Array name of a third-party network's graph."""

LayersName = ImageNetworkName | Literal["mlp"]
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


def network_metadata(
    network: str, blocks: Sequence[Block], observation_shape: tuple[int, ...], outputs: int
) -> dict[str, str]:
    """Return the metadata of a published policy's network."""
    if network not in ACTIVATIONS:
        return sized_metadata(network, observation_shape, outputs)
    hidden = [block for block in blocks[:-1] if isinstance(block, Dense)]
    first = blocks[0]
    said = {"network": network, "activation": "relu"}
    if isinstance(first, Pixels):
        said["image_shape"] = _listed(first.image_shape)
    elif hidden:
        said["activation"] = hidden[-1].activation or "tanh"
        said |= {"layer_norm": "yes"} if hidden[-1].layer_norm else {}
    if isinstance(first, Parts):
        said["image_shapes"] = ";".join(map(_listed, first.image_shapes))
        said["numbers"] = str(first.numbers)
    for block in blocks:
        if isinstance(block, Recurrent):
            said["recurrent"] = block.cell
    return said


def sized_metadata(network: str, shape: tuple[int, ...], outputs: int) -> dict[str, str]:
    """Return a published policy's metadata for a network defined by its sizes or by a graph."""
    said = {"network": network, "observation_shape": _listed(shape)}
    return {**said, "num_outputs": str(outputs)}


def _listed(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


def read_network(metadata: Mapping[str, str], shapes: Shapes) -> tuple[str, tuple[Block, ...], int]:
    """Return the name, the blocks and the number of outputs of a published policy's network.

    Raises:
        PolicyError: The metadata and the arrays' shapes do not describe one.
    """
    network = expect(metadata, "network", (*ACTIVATIONS, "onnx", *NETWORKS))
    if network not in ACTIVATIONS:
        graph = _graph(metadata, shapes)
        own = NETWORKS.get(network)
        blocks = (graph,) if own is None else own(graph.observation_shape, graph.outputs)
        return network, blocks, graph.outputs
    weights = [shapes[f"policy.{i}.weight"] for i in range(_num_layers(shapes))]
    if not weights or not all(all(shape) and shape for shape in weights):
        raise PolicyError(f"holds arrays {sorted(shapes)!r:.300}, which make no network")
    return network, _blocks(network, metadata, weights), weights[-1][0]


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
