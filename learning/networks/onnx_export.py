"""A user's torch module as the ONNX graph that actors run.

The module is traced in evaluation mode, on a copy on the CPU: neither its mode, nor its gradients,
nor any random state of the caller changes. `onnx_graph` then runs the graph beside the module, so
that a module that branches by its input, or draws random numbers, is refused. `traced` skips this
check: a checked module is traced again after each update.

Legend: N observations, H outputs.
"""

import copy
import io
import math
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shared.contracts.rollouts import MAX_POLICY_BYTES, POLICY_HEADER_BYTES
from shared.policy.blocks import Graph
from shared.policy.head import PolicyError
from shared.policy.onnx_network import INPUT, OUTPUT, OnnxNetwork

_OPSET = 17
_TOLERANCE = 1e-4
"""Largest difference, relative to 1 or to the observation's largest output: float32 sums differ in
order, and an output near zero may be the difference of two large ones."""
_NUM_CHECKED = 16
"""Observations that both act on: the module on one after the other, the graph on all at once."""


def onnx_graph(
    module: nn.Module, observation_shape: tuple[int, ...], *, is_image: bool
) -> tuple[Graph, bytes]:
    """Return a module from observations # [N, *obs] float32 to outputs # [N, H] as a graph.

    Args:
        module: Images reach it as numbers from 0 to 255.
        observation_shape: Of one observation.
        is_image: Whether observations are such.

    Raises:
        PolicyError: It is no such module, the graph acts otherwise than it does or is larger than
            actors load, or the package onnx or onnxruntime is missing.
    """
    still = _still(module)
    seen = _observations(observation_shape, is_image=is_image)
    outputs = torch.cat([_outputs_of(still, row) for row in torch.split(seen, 1)])
    graph = _traced(still, seen)
    needed = len(graph) + 8 * math.prod(observation_shape) + POLICY_HEADER_BYTES
    if needed > MAX_POLICY_BYTES:
        raise PolicyError(
            f"{type(module).__name__} takes {needed / 2**20:.1f} MB as a policy, actors load "
            f"{MAX_POLICY_BYTES / 2**20:.0f} MB; give it fewer weights"
        )
    block = Graph(observation_shape=observation_shape, outputs=outputs.shape[1], size=len(graph))
    theirs = outputs.numpy()
    if not np.isfinite(theirs).all():
        raise PolicyError(f"{type(module).__name__} has outputs that are not finite")
    ours = np.empty_like(theirs)
    OnnxNetwork(block, graph).forward_pass(len(seen))(seen.numpy(), ours)
    difference = np.abs(ours - theirs)
    scale = np.maximum(1.0, np.abs(theirs).max(axis=1, keepdims=True))
    if not (difference <= _TOLERANCE * scale).all():
        raise PolicyError(
            f"{type(module).__name__} and its ONNX graph differ by up to {difference.max():g}: it "
            "must compute the same outputs each time, and may not branch by what it observes"
        )
    return block, graph


def traced(module: nn.Module, observation_shape: tuple[int, ...]) -> bytes:
    """Return the graph of a module that `onnx_graph` has checked, with its weights as they are now.

    Raises:
        PolicyError: It has no graph any more.
    """
    return _traced(_still(module), torch.zeros(2, *observation_shape))


def _still(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module).cpu().eval().requires_grad_(False)


def _observations(shape: tuple[int, ...], *, is_image: bool) -> Tensor:
    """Return random observations # [N, *obs] float32."""
    rng = np.random.default_rng(0)
    if is_image:
        return torch.from_numpy(rng.integers(0, 256, (_NUM_CHECKED, *shape)).astype(np.float32))
    return torch.from_numpy(rng.standard_normal((_NUM_CHECKED, *shape)).astype(np.float32))


def _outputs_of(module: nn.Module, seen: Tensor) -> Tensor:
    """Return what a module gives for observations, # [N, H] float32."""
    try:
        with torch.no_grad():
            outputs = module(seen)
    except Exception as error:  # it is the user's code
        raise PolicyError(
            f"{type(module).__name__} failed on observations {tuple(seen.shape)}: {error!s:.300}"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(seen):
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise PolicyError(
            f"{type(module).__name__} returns {found} for observations {tuple(seen.shape)}, "
            f"expected one tensor of outputs, [{len(seen)}, H]"
        )
    return outputs.float()


def _traced(module: nn.Module, seen: Tensor) -> bytes:
    written: Any = io.BytesIO()  # which its type does not name
    rows = {INPUT: {0: "N"}, OUTPUT: {0: "N"}}
    try:
        # The exporter that torch has by itself is deprecated; the other one takes seconds for each
        # version of a policy, and a package more. Tracing warns of what is compared afterwards.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (seen[:2],),
                written,
                dynamo=False,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes=rows,
                opset_version=_OPSET,
            )
    except ImportError as error:
        raise PolicyError(f"{error}") from error
    except Exception as error:  # torch raises many kinds, of operators without an ONNX form
        raise PolicyError(f"{type(module).__name__} has no ONNX form: {error!s:.300}") from error
    graph: bytes = written.getvalue()
    return graph
