"""Recurrent cells over sequences, with the derivatives of backpropagation through time.

Autograd would record some ten operations a step, and add up the weights' gradient step by step.
Here the slopes of all steps are computed at once, a step back is a few products with them, and the
weights' gradient is one product at the end. On a CPU NumPy takes the steps, because it starts a
small operation faster than torch.

Legend: n sequences of L steps; U units; G gates times units; S numbers of a state.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from learning.arrays import namespace
from shared.policy.recurrent import Cell, Recurrent, sigmoid

Back = Callable[[int, Any], tuple[Any, Any, Any]]
"""Takes step t back: from the derivative by the state that it left # [n, S] to those by the
arguments of `Recurrent.following`: `given` # [n, G], `recalled` # [n, G] and `state` # [n, S].
Products of weights and states are not followed."""


def unrolled(
    cells: Recurrent, given: Tensor, of_state: Tensor, *, fresh: Tensor, own: Tensor
) -> Tensor:
    """Return the state that each row leaves # [n, L, S].

    Args:
        cells: The layer.
        given: Product of the input and its weight columns, plus the bias # [n, L, G]
        of_state: The other weight columns # [G, U]
        fresh: Not 0 where a row begins with its own state # [n, L, 1]. The first row always does.
        own: The rows' own states # [n, L, S]; they have no derivative.
    """
    by_time = [each.transpose(0, 1) for each in (given, fresh != 0, own)]
    left: Tensor = _Unrolled.apply(cells, of_state, *by_time)  # type: ignore[no-untyped-call]
    return left.transpose(0, 1)


class _Rows(NamedTuple):
    """The arguments of `unrolled`, with steps first, as arrays of one library."""

    given: Any  # [L, n, G]
    fresh: Any  # [L, n, 1] bool
    own: Any  # [L, n, S]
    begins: list[bool]  # whether a row of step t is fresh: a check at each step would cost as much


class _Unrolled(torch.autograd.Function):
    """`unrolled`, with steps first."""

    @staticmethod
    def forward(
        ctx: Any, cells: Recurrent, of_state: Tensor, given: Tensor, fresh: Tensor, own: Tensor
    ) -> Tensor:
        """Take the steps."""
        rows = _Rows(
            given=_array(given),
            fresh=_array(fresh),
            own=_array(own),
            begins=fresh.flatten(1).any(1).tolist(),
        )
        before, left = _states(cells, _array(of_state.t()), rows)
        ctx.saved = cells, _array(of_state), rows, before
        return _tensor(left)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_left: Tensor) -> tuple[Tensor | None, ...]:
        """Take them back."""
        cells, of_state, rows, before = ctx.saved
        d_of_state, d_given = _derivatives(cells, of_state, rows, before, _array(d_left))
        return None, _tensor(d_of_state), _tensor(d_given), None, None


def _states(cells: Recurrent, of_state: Any, rows: _Rows) -> tuple[Any, Any]:
    """Return the states before and after each row # [L, n, S], for weights # [U, G]."""
    xp, state = namespace(of_state), rows.own[0]
    before, left = [], []
    for t, given in enumerate(rows.given):
        if rows.begins[t]:
            state = xp.where(rows.fresh[t], rows.own[t], state)
        before.append(state)
        state = cells.following(xp, given, state[:, : cells.units] @ of_state, state)
        left.append(state)
    return xp.stack(before), xp.stack(left)


def _derivatives(
    cells: Recurrent, of_state: Any, rows: _Rows, before: Any, d_left: Any
) -> tuple[Any, Any]:
    """Return the derivatives by the weights # [G, U] and by `given` # [L, n, G]."""
    xp, units = namespace(of_state), cells.units
    outputs = before.reshape(-1, before.shape[2])[:, :units]
    recalled = (outputs @ of_state.T).reshape(rows.given.shape)
    back = _BACK[cells.cell](xp, rows.given, recalled, before)
    d_given, d_recalled, d_state = [], [], xp.zeros_like(before[0])
    for t in reversed(range(len(before))):
        by_given, by_recalled, d_state = back(t, d_left[t] + d_state)
        d_state[:, :units] += by_recalled @ of_state
        if rows.begins[t]:
            d_state = xp.where(rows.fresh[t], 0.0, d_state)
        d_given.append(by_given)
        d_recalled.append(by_recalled)
    return xp.concatenate(d_recalled[::-1]).T @ outputs, xp.stack(d_given[::-1])


def _lstm_back(xp: Any, given: Any, recalled: Any, before: Any) -> Back:
    gates = given + recalled
    units = gates.shape[2] // 4
    let_in, kept, _, shown = _by_gate(sigmoid(xp, gates), units)
    new, cells = xp.tanh(gates[..., 2 * units : 3 * units]), before[..., units:]
    seen = xp.tanh(kept * cells + let_in * new)
    of_kept, of_let_in = cells * kept * (1 - kept), new * let_in * (1 - let_in)
    of_new, of_shown = let_in * (1 - new * new), seen * shown * (1 - shown)
    by_gates = xp.concatenate((of_let_in, of_kept, of_new, of_shown), 2)
    by_cells = shown * (1 - seen * seen)

    def back(t: int, d_state: Any) -> tuple[Any, Any, Any]:
        d_outputs = d_state[:, :units]
        d_cells = d_state[:, units:] + by_cells[t] * d_outputs
        d_gates = by_gates[t] * xp.concatenate((d_cells, d_cells, d_cells, d_outputs), 1)
        return d_gates, d_gates, xp.concatenate((xp.zeros_like(d_cells), kept[t] * d_cells), 1)

    return back


def _gru_back(xp: Any, given: Any, recalled: Any, before: Any) -> Back:
    units = before.shape[2]
    opened = sigmoid(xp, given[..., : 2 * units] + recalled[..., : 2 * units])
    (reset, kept), of_state = _by_gate(opened, units), recalled[..., 2 * units :]
    new = xp.tanh(given[..., 2 * units :] + reset * of_state)
    of_new = (1 - kept) * (1 - new * new)
    of_reset, of_kept = of_new * of_state * reset * (1 - reset), (before - new) * kept * (1 - kept)
    by_given = xp.concatenate((of_reset, of_kept, of_new), 2)
    by_recalled = xp.concatenate((of_reset, of_kept, of_new * reset), 2)

    def back(t: int, d_state: Any) -> tuple[Any, Any, Any]:
        each = xp.concatenate((d_state, d_state, d_state), 1)
        return by_given[t] * each, by_recalled[t] * each, kept[t] * d_state

    return back


def _by_gate(gates: Any, units: int) -> list[Any]:
    return [gates[..., i : i + units] for i in range(0, gates.shape[2], units)]


_BACK: Mapping[Cell, Callable[[Any, Any, Any, Any], Back]] = {"lstm": _lstm_back, "gru": _gru_back}
"""Of `given` and `recalled` # [L, n, G], and of the states before # [L, n, S]."""


def _array(tensor: Tensor) -> Any:
    """Return a tensor as one block of memory: on a CPU as NumPy's."""
    tensor = tensor.detach().contiguous()
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def _tensor(array: Any) -> Tensor:
    """Return an array of either library as a tensor."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array
