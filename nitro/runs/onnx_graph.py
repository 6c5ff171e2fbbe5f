"""A policy as an ONNX graph, from an observation to the environment's action.

It contains an actor's whole computation: normalisation, network, the most likely action, and its
mapping to the environment's bounds. The blocks are those of `shared.policy.blocks`. `torch.onnx`
would need torch, onnxscript and a second definition of the policy as a torch module.

Legend: `N` observations at a time; `S` numbers of a recurrent state.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx.compose
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.policy.action_mask import FORBIDDEN
from shared.policy.blocks import (
    LAYER_NORM_EPSILON,
    MAX_PIXEL,
    Activation,
    Block,
    Conv,
    Dense,
    Flatten,
    Graph,
    Parts,
    Pixels,
)
from shared.policy.formulas import FormulaBlock
from shared.policy.network_metadata import GRAPH
from shared.policy.onnx_network import INPUT as NETWORK_INPUT
from shared.policy.onnx_network import OUTPUT as NETWORK_OUTPUT
from shared.policy.recurrent import Recurrent
from shared.policy.spec import PolicySpec

INPUT, OUTPUT = "observation", "action"
STATE, NEXT_STATE = "state", "next_state"
"""State of recurrent policies before and after the observation."""
_OPSET = 17
_ACTIVATIONS: dict[Activation, str] = {"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}
_IR_VERSION = 9
"""IR version of that operator set, which runtimes since 2023 support."""

Arrays = Mapping[str, NDArray[np.generic]]
_Parameters = tuple[NDArray[np.generic], NDArray[np.generic]]
"""A weight and a bias."""


def policy_graph(
    arrays: Arrays,
    metadata: Mapping[str, str],
    *,
    observation: ObservationSpec,
    action: ActionSpec,
) -> onnx.ModelProto:
    """Return the graph of a policy.

    Its input `observation` is [N, *obs] with the type of the environment's observations. Its output
    `action` fits `env.step`: [N, A] float32 within the bounds, [N] int64 for a discrete action, or
    [N, A] int64 for several. The model's metadata has the actual shapes. A recurrent policy also
    has an input `state` and an output `next_state`, both [N, S] float32: zeros at the start of an
    episode, then the last call's output.

    Args:
        arrays: The published policy's arrays, accepted by `load_policy`.
        metadata: Its metadata.
        observation: Form of the environment's observations.
        action: Form of its actions.
    """
    spec = PolicySpec.read(metadata, {name: array.shape for name, array in arrays.items()})
    graph = _Graph()
    outputs = graph.network(graph.seen(arrays, spec), arrays, spec)
    if spec.head.masked:
        outputs = graph.with_mask(outputs, spec)
    graph.act(outputs, spec, action)
    is_continuous = isinstance(action, ContinuousActionSpec)
    input_type = TensorProto.UINT8 if observation.dtype == "uint8" else TensorProto.FLOAT
    size = [] if isinstance(action, DiscreteActionSpec) else [_action_size(action)]
    result = helper.make_tensor_value_info(
        OUTPUT, TensorProto.FLOAT if is_continuous else TensorProto.INT64, ["N", *size]
    )
    given = helper.make_tensor_value_info(INPUT, input_type, ["N", *observation.shape])
    inputs, results = [given], [result]
    if spec.recurrent:
        for name, infos in ((STATE, inputs), (NEXT_STATE, results)):
            shape: list[str | int | None] = ["N", spec.state_size]
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", inputs, results, graph.constants),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="nitro",
    )
    helper.set_model_props(model, {"action": _taken(action)})
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """The nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def seen(self, arrays: Arrays, spec: PolicySpec) -> str:
        """Add the preprocessing of observations; return the name of its output."""
        if spec.observation_clip is None:
            return INPUT
        bound = np.float32(spec.observation_clip)
        numbers, pixels = INPUT, spec.observation_shape[0] - spec.num_normalised
        if pixels:
            given = self._node("Cast", INPUT, to=TensorProto.FLOAT)
            images, numbers = self._split(given, (pixels, spec.num_normalised))
        centred = self._node("Sub", numbers, self._constant(arrays["observation_mean"]))
        scaled = self._node("Mul", centred, self._constant(arrays["observation_scale"]))
        seen = self._node("Clip", scaled, self._constant(-bound), self._constant(bound))
        return self._node("Concat", images, seen, axis=1) if pixels else seen

    def network(self, seen: str, arrays: Arrays, spec: PolicySpec) -> str:
        """Add the network; return the name of its outputs."""
        if isinstance(spec.blocks[0], Graph):
            return self._inserted(seen, arrays[GRAPH].tobytes())
        parameters = (
            (arrays[f"policy.{i}.weight"], arrays[f"policy.{i}.bias"])
            for i in range(len(spec.layers))
        )
        return self._blocks(seen, spec.blocks, parameters)

    def _blocks(self, seen: str, blocks: Sequence[Block], parameters: Iterator[_Parameters]) -> str:
        """Add blocks in order; return the name of the last one's output."""
        values = seen
        for block in blocks:
            if isinstance(block, Pixels):
                pixels = self._node("Cast", values, to=TensorProto.FLOAT)
                values = self._node("Div", pixels, self._constant(np.float32(MAX_PIXEL)))
            elif isinstance(block, Flatten):
                values = self._node("Flatten", values, axis=1)
            elif isinstance(block, Parts):
                values = self._parts(values, block, parameters)
            elif isinstance(block, Recurrent):
                values = self._recurrent(values, *next(parameters), block)
            elif not isinstance(block, Graph):
                weight, bias = map(self._constant, next(parameters))
                values = self._layer(values, (weight, bias), block)
        return values

    def _layer(
        self, values: str, parameters: tuple[str, str], block: Conv | Dense | FormulaBlock
    ) -> str:
        if isinstance(block, Conv):
            return self._convolution(values, parameters, block)
        if isinstance(block, Dense):
            return self._dense(values, parameters, block)
        return block.nodes(self._node, *parameters, values)

    def _parts(self, values: str, block: Parts, parameters: Iterator[_Parameters]) -> str:
        """Add the networks of images; return the name of their outputs joined with the numbers."""
        present = [size for size in block.sizes if size]
        parts = self._split(values, present)
        features = []
        for part, shape, network in zip(parts, block.image_shapes, block.networks, strict=False):
            size = self._constant(np.array((-1, *shape), np.int64))
            features.append(self._blocks(self._node("Reshape", part, size), network, parameters))
        numbers = [self._node("Cast", parts[-1], to=TensorProto.FLOAT)] if block.numbers else []
        return self._node("Concat", *features, *numbers, axis=1)

    def with_mask(self, outputs: str, spec: PolicySpec) -> str:
        """Lower the logits of actions that the mask at the observation's end forbids."""
        size = spec.observation_shape[0]
        ends = (np.array([n], np.int64) for n in (size - spec.head.num_outputs, size, 1))
        mask = self._node("Slice", INPUT, *map(self._constant, ends))
        mask = self._node("Cast", mask, to=TensorProto.FLOAT)
        below = self._node("Sub", mask, self._constant(np.float32(1)))
        lowered = self._node("Mul", below, self._constant(np.float32(FORBIDDEN)))
        return self._node("Add", outputs, lowered)

    def _recurrent(
        self,
        values: str,
        weight: NDArray[np.generic],
        bias: NDArray[np.generic],
        block: Recurrent,
    ) -> str:
        """Add recurrent cells, as in `Recurrent.following`; return the name of their outputs."""
        of_input, of_state = np.split(weight, (block.inputs,), axis=1)
        given = self._node("Gemm", values, self._constant(of_input), self._constant(bias), transB=1)
        before, cells = STATE, ""
        if block.cell == "lstm":
            before, cells = self._split(STATE, [block.units] * 2)
        recalled = self._node("Gemm", before, self._constant(of_state), transB=1)
        if block.cell == "lstm":
            parts = self._split(self._node("Add", given, recalled), [block.units] * 4)
            enters, keeps, shows = (self._node("Sigmoid", parts[i]) for i in (0, 1, 3))
            kept = self._node("Mul", keeps, cells)
            new = self._node("Mul", enters, self._node("Tanh", parts[2]))
            left = self._node("Add", kept, new)
            outputs = self._node("Mul", shows, self._node("Tanh", left))
            self._node("Concat", outputs, left, axis=1, name=NEXT_STATE)
            return outputs
        gates = (self._split(each, [block.units] * 3) for each in (given, recalled))
        pairs = zip(*gates, strict=True)
        resetting, keeping, (given_new, recalled_new) = pairs
        reset, keep = (self._node("Sigmoid", self._node("Add", *p)) for p in (resetting, keeping))
        shown = self._node("Mul", reset, recalled_new)
        new = self._node("Tanh", self._node("Add", given_new, shown))
        moved = self._node("Mul", keep, self._node("Sub", before, new))
        return self._node("Add", new, moved, name=NEXT_STATE)

    def _split(self, values: str, sizes: Sequence[int]) -> list[str]:
        """Add a split of values into parts of these widths; return the parts' names."""
        parts = [f"part{len(self.nodes)}_{i}" for i in range(len(sizes))]
        given = [values, self._constant(np.array(sizes, np.int64))]
        self.nodes.append(helper.make_node("Split", given, parts, axis=1))
        return parts

    def _inserted(self, values: str, graph: bytes) -> str:
        """Add a custom network's graph."""
        model = onnx.compose.add_prefix(onnx.load_model_from_string(graph), "own/")
        cast = helper.make_node("Cast", [values], [f"own/{NETWORK_INPUT}"], to=TensorProto.FLOAT)
        self.nodes += [cast, *model.graph.node]
        self.constants += model.graph.initializer
        return f"own/{NETWORK_OUTPUT}"

    def _dense(self, values: str, parameters: tuple[str, str], block: Dense) -> str:
        values = self._node("Gemm", values, *parameters, transB=1)
        if block.layer_norm:
            values = self._normalised(values)
        if block.activation is None:
            return values
        return self._node(_ACTIVATIONS[block.activation], values)

    def _normalised(self, values: str) -> str:
        """Add a layer norm without gain and bias."""
        centred = self._node("Sub", values, self._node("ReduceMean", values, axes=[1]))
        variance = self._node("ReduceMean", self._node("Mul", centred, centred), axes=[1])
        epsilon = self._constant(np.float32(LAYER_NORM_EPSILON))
        deviation = self._node("Sqrt", self._node("Add", variance, epsilon))
        return self._node("Div", centred, deviation)

    def act(self, outputs: str, spec: PolicySpec, action: ActionSpec) -> None:
        """Add the mapping from outputs to the environment's action."""
        if isinstance(action, ContinuousActionSpec):
            self._act_within_bounds(outputs, spec, action)
        elif isinstance(action, DiscreteActionSpec):
            chosen = self._node("ArgMax", outputs, axis=1, keepdims=0)
            self._node("Add", chosen, self._constant(np.int64(action.start)), name=OUTPUT)
        else:
            sizes = np.array(action.num_choices, np.int64)
            parts = [f"choice{i}" for i in range(len(sizes))]
            inputs = [outputs, self._constant(sizes)]
            self.nodes.append(helper.make_node("Split", inputs, parts, axis=1))
            each = [self._node("ArgMax", part, axis=1, keepdims=1) for part in parts]
            chosen = self._node("Concat", *each, axis=1)
            self._node("Add", chosen, self._constant(_starts(action)), name=OUTPUT)

    def _act_within_bounds(
        self, outputs: str, spec: PolicySpec, action: ContinuousActionSpec
    ) -> None:
        values = outputs
        if spec.head.log_std == "state_dependent":
            begin, end, axis = (np.array([n], np.int64) for n in (0, len(action.low), 1))
            values = self._node("Slice", values, *map(self._constant, (begin, end, axis)))
        if spec.head.distribution == "squashed_gaussian":
            values = self._node("Tanh", values)
        low, high = np.array(action.low), np.array(action.high)
        if spec.action_mapping == "rescale":
            # Halved before they are subtracted, as in `shared.policy.action_mapping`.
            values = self._node("Mul", values, self._constant(np.float32(high / 2 - low / 2)))
            values = self._node("Add", values, self._constant(np.float32(high / 2 + low / 2)))
        values = self._node("Max", values, self._constant(low.astype(np.float32)))
        self._node("Min", values, self._constant(high.astype(np.float32)), name=OUTPUT)

    def _convolution(self, values: str, parameters: tuple[str, str], layer: Conv) -> str:
        (top, bottom), (left, right) = layer.padding
        filtered = self._node(
            "Conv",
            values,
            *parameters,
            kernel_shape=list(layer.kernel),
            strides=[layer.stride, layer.stride],
            pads=[top, left, bottom, right],
        )
        return self._node("Relu", filtered)

    def _node(
        self, operator: str, *inputs: str, name: str | None = None, **attributes: int | list[int]
    ) -> str:
        output = name or f"{operator.lower()}{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [output])
        node.attribute.extend(helper.make_attribute(*item) for item in sorted(attributes.items()))
        self.nodes.append(node)
        return output

    def _constant(self, value: NDArray[np.generic] | np.generic) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def _action_size(action: ContinuousActionSpec | MultiDiscreteActionSpec) -> int:
    return len(action.low if isinstance(action, ContinuousActionSpec) else action.num_choices)


def _starts(action: MultiDiscreteActionSpec) -> NDArray[np.int64]:
    return np.array(action.starts or (0,) * len(action.num_choices), np.int64)


def _taken(action: ActionSpec) -> str:
    """Describe the graph's output, for users with only the file."""
    if isinstance(action, ContinuousActionSpec):
        low, high = list(action.low), list(action.high)
        return f"what env.step takes: float32 [N, {len(low)}], from {low} to {high}"
    if isinstance(action, DiscreteActionSpec):
        end = action.start + action.n - 1
        return f"what env.step takes: int64 [N], from {action.start} to {end}"
    first = _starts(action)
    last = (first + action.num_choices - 1).tolist()
    return f"what env.step takes: int64 [N, {len(first)}], from {first.tolist()} to {last}"
