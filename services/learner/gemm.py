"""Matrix products of dense layers, each by the library that is fastest at it.

Arrays are NumPy's (OpenBLAS) and tensors torch's (MKL) to begin with. On Intel's processors MKL is
ahead of the others (of [128, 256] by [256, 256] it does 160 to 170 billion operations a second,
OpenBLAS 120 to 145, oneDNN 115 to 150, on a core of a Xeon), and large products of arrays go there,
too. On other processors MKL stays with 256-bit instructions: there large products of tensors go to
oneDNN, which uses 512 bits where there are any and applies a layer's tanh while the result is still
in registers (not those of weight gradients, whose result would have to be copied). A tanh that
oneDNN does not apply is NumPy's, in the tensor's own memory: several times faster than torch's.

What is chosen depends on the processor and on shapes, never on a measurement, so equal machines
give equal bits. Every function falls back to plain torch or NumPy where the others are missing or
do not apply (GPU, float64), with the same result up to rounding.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from services.learner.arrays import Array, Floats

MIN_MULTIPLICATIONS = 1 << 20
"""Products below this many scalar multiplications are done before another library has started."""


def prefers_mkl(cpu_info: Path) -> bool:
    """Return whether MKL is there, and on the processors it is made for.

    Args:
        cpu_info: Linux's description of the processors; elsewhere there is none.
    """
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    try:
        return "GenuineIntel" in cpu_info.read_text("utf-8", errors="replace")
    except OSError:
        return False


def has_onednn() -> bool:
    """Return whether oneDNN is there."""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


_MKL = prefers_mkl(Path("/proc/cpuinfo"))
_ONEDNN = has_onednn() and not _MKL


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Return `x weight^T + bias`.

    Args:
        x: # [N, in]
        weight: # [out, in]
        bias: # [out]
    """
    if isinstance(x, np.ndarray):
        result: Array = array_matmul(x, weight.T)
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
        product: Array = array_matmul(a, b)
        return product
    if _worthwhile(a, b, b.shape[1]):
        return _onednn(a, b.t(), None, "none")
    return torch.mm(a, b)


def write_matmul(a: Array, b: Array, *, out: Array) -> None:
    """Write `a b`, shapes as in `matmul`, into `out` # [m, n]."""
    if isinstance(a, np.ndarray):
        array_matmul(a, b, out=out)
    else:
        torch.mm(a, b, out=out)


def array_matmul(a: Floats, b: Floats, out: Floats | None = None) -> Floats:
    """Return `a b`.

    Args:
        a: Writable, as torch has no other arrays, and without negative strides. # [m, k]
        b: Likewise. # [k, n]
        out: Where to write the product; None makes an array. # [m, n]
    """
    large = a.size * b.shape[1] >= MIN_MULTIPLICATIONS
    if not (_MKL and large and a.dtype == b.dtype == np.float32):
        return np.matmul(a, b, out=out)
    if out is None:
        out = np.empty((len(a), b.shape[1]), np.float32)
    torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))
    return out


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
