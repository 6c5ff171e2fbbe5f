"""A third-party network as an ONNX graph, run by onnxruntime.

A policy without Nitro's blocks travels as such a graph: `observation` [N, *obs] float32 in,
`outputs` [N, H] float32 out. A graph is data. It is refused unless it is self-contained and uses
only standard ONNX operators, without loops and branches.

Needs the packages onnx and onnxruntime, which only actors of such policies require.

Legend: `N` rows, `H` network outputs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.blocks import Graph
from shared.policy.head import PolicyError
from shared.policy.numpy_network import Float32, Forward

INPUT, OUTPUT = "observation", "outputs"
INSTALL = "pip install 'nitro-rl[export]'"
"""Remedy if onnx or onnxruntime is missing."""
_OWN_DOMAINS = ("", "ai.onnx")


class OnnxNetwork:
    """A single-threaded onnxruntime session."""

    def __init__(self, block: Graph, graph: bytes) -> None:
        """Load the graph and run it once.

        Raises:
            PolicyError: The graph does not map the block's observations to its outputs, or onnx or
                onnxruntime is not installed.
        """
        self.input_shape = block.observation_shape
        self.output_size = block.outputs
        try:
            _require_plain(graph)
            self._session = _session(graph)
        except ImportError as error:
            raise PolicyError(
                f"its network is an ONNX graph, and {error.name} is not installed where actors "
                f"run: {INSTALL}"
            ) from error
        except PolicyError:
            raise
        except Exception as error:  # of protobuf and of onnxruntime, which share no class
            raise PolicyError(f"its ONNX graph cannot be loaded: {error!s:.300}") from error
        for num_rows in (1, 2):
            zeros = np.zeros((num_rows, *self.input_shape), np.float32)
            self.forward_pass(num_rows)(zeros, np.empty((num_rows, self.output_size), np.float32))

    def forward_pass(
        self,
        num_rows: int,
        state: Float32 | None = None,  # noqa: ARG002 - seam: a graph has none
    ) -> Forward:
        """Return a function that computes outputs [N, H] for `num_rows` inputs.

        Inputs are [N, *obs], images as numbers from 0 to 255. The function writes into its second
        argument and returns it.
        """

        def forward(inputs: NDArray[Any], out: Float32) -> Float32:
            try:
                (found,) = self._session.run([OUTPUT], {INPUT: inputs.astype(np.float32)})
            except Exception as error:
                raise PolicyError(f"its ONNX graph cannot be run: {error!s:.300}") from error
            if found.shape != out.shape:
                raise PolicyError(
                    f"its ONNX graph gives outputs {found.shape}, expected {out.shape}"
                )
            out[...] = found
            return out

        return forward


def _session(graph: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # an actor has one core
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    # Otherwise bytes that are also of onnxruntime's own format are read as such, unchecked.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _require_plain(graph: bytes) -> None:
    """Check that a graph is self-contained and uses only plain operators.

    Raises:
        PolicyError: It fails the check.
    """
    import onnx

    model = onnx.load_model_from_string(graph)
    tensors = [*model.graph.initializer]
    for node in model.graph.node:
        if node.domain not in _OWN_DOMAINS:
            raise PolicyError(f"operator {node.domain}.{node.op_type:.80} is none of ONNX's own")
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            raise PolicyError(f"operator {node.op_type:.80} branches or loops")
        if any(each.HasField("sparse_tensor") or each.sparse_tensors for each in node.attribute):
            raise PolicyError(f"operator {node.op_type:.80} has sparse weights")
        tensors += [each.t for each in node.attribute if each.HasField("t")]
        tensors += [tensor for each in node.attribute for tensor in each.tensors]
    if model.functions or model.graph.sparse_initializer:
        raise PolicyError("its ONNX graph has functions or sparse weights")
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in tensors):
        raise PolicyError("its ONNX graph has weights outside of it")
