"""Matrix products of dense layers: of arrays by NumPy, of tensors by the faster of two libraries.

Torch sends products to MKL, which on AMD processors stays with 256-bit instructions; oneDNN uses
512 bits where there are any and applies a layer's tanh while the result is still in registers. Its
call costs some 10 us more, so only large products go there (not those of weight
gradients, whose result would have to be copied). The tanh of the others is NumPy's, in
the tensor's own memory: several times faster than torch's. Every function falls back to plain torch
where the others are missing or do not apply (GPU, float64), with the same result up to rounding.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from services.learner.arrays import Array

MIN_MULTIPLICATIONS = 1 << 20
"""Products below this many scalar multiplications are done before oneDNN has started."""


def _has_onednn() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


_ONEDNN = _has_onednn()


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Return `x weight^T + bias`.

    Args:
        x: # [N, in]
        weight: # [out, in]
        bias: # [out]
    """
    if isinstance(x, np.ndarray):
        result: Array = x @ weight.T
        result += bias
        return result
    if _worthwhile(x, weight, weight.shape[0]):
        return _onednn(x, weight, bias, "none")
    return functional.linear(x, weight, bias)


def linear_tanh(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return `tanh(x weight^T + bias)`; shapes as in `linear`."""
    if _worthwhile(x, weight, weight.shape[0]):
        return _onednn(x, weight, bias, "tanh")
    result = functional.linear(x, weight, bias)
    if not _eligible(result):
        return result.tanh_()
    memory = result.numpy()
    np.tanh(memory, out=memory)
    return result


def matmul(a: Array, b: Array) -> Array:
    """Return `a b`.

    Args:
        a: # [m, k]
        b: # [k, n]
    """
    if isinstance(a, np.ndarray):
        product: Array = a @ b
        return product
    if _worthwhile(a, b, b.shape[1]):
        return _onednn(a, b.t(), None, "none")
    return torch.mm(a, b)


def _worthwhile(a: Tensor, b: Tensor, columns: int) -> bool:
    large = a.numel() * columns >= MIN_MULTIPLICATIONS
    return large and _ONEDNN and _eligible(a) and _eligible(b)


def _eligible(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu"


def _onednn(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: Literal["none", "tanh"]
) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, activation, [], "")
    return result
