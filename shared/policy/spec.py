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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self, get_args

from shared.contracts.environment_spec import (
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters.common import ActionMapping, CommonHyperparameters, Hyperparameters
from shared.hyperparameters.search import SearchHyperparameters
from shared.policy.blocks import (
    Block,
    Dense,
    Graph,
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
from shared.policy.network_metadata import (
    ACTIVATIONS,
    GRAPH,
    Shapes,
    network_metadata,
    read_network,
)
from shared.policy.recurrent import Recurrent
from shared.policy.registry import NETWORKS

POLICY_FORMAT = "nitro-policy/1"

ACTION_MAPPINGS: tuple[ActionMapping, ...] = get_args(ActionMapping)


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
        network, blocks, num_outputs = read_network(metadata, shapes)
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
        network = network_metadata(
            self.network, self.blocks, self.observation_shape, self.head.num_outputs
        )
        return {"format": POLICY_FORMAT, **network, **self.head.metadata()}


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


def _num_numbers(first: Block) -> int:
    """Return how many numbers of an observation are not pixels."""
    if isinstance(first, Dense):
        return first.inputs
    return first.numbers if isinstance(first, Parts) else 0


def _bound(text: str) -> float:
    try:
        bound = float(text)
        if not (math.isfinite(bound) and bound > 0):
            raise ValueError("expected a number above 0")
    except ValueError as error:
        raise PolicyError(f"observation_clip {text!r:.80}: {error}") from error
    return bound
