"""The ONNX graph of a custom network; only this module needs torch."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nitro.pool.policy import OwnGraph

if TYPE_CHECKING:
    from torch import nn


def graph_of(
    parts: "Sequence[nn.Module]", observation_shape: tuple[int, ...], *, is_image: bool
) -> OwnGraph:
    """Return the graph of modules in sequence, from observations to outputs.

    Raises:
        PolicyError: No equivalent graph can be exported, or a package is missing.
    """
    from torch import nn

    from learning.networks.onnx_export import onnx_graph

    module = copy.deepcopy(parts[0] if len(parts) == 1 else nn.Sequential(*parts)).cpu().eval()
    block, onnx = onnx_graph(module, observation_shape, is_image=is_image)
    return OwnGraph(block=block, onnx=onnx, module=module)
