"""Weights, slices and gradients as bytes: arrays in the codec, and text that says what they are.

Nothing in them is executed, and whatever is not exactly a message of its kind and version is
refused with a `GradientMessageError`.

Legend: P parameters; S stats; n samples.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from shared.contracts.gradients import MAX_MESSAGE_BYTES
from shared.trajectory import codec
from shared.trajectory.columns import Column, Columns, ColumnsError, checked

VERSION = "2"
"""Of all three kinds; another one is refused."""

Floats = NDArray[Any]


class GradientMessageError(ValueError):
    """Bytes that are no message of the kind that was expected."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weights:
    """One version of a learner's parameters, and how gradients at it are computed."""

    version: int
    flat: Floats  # [P] float32
    network: str
    """Where policy and value function lie in them, as JSON; see
    `learning.aggregation.described.NetworkLayout`."""
    loss: str
    """Algorithm, hyper-parameters and the rules of the functions, as JSON."""

    def encode(self) -> bytes:
        """Return it as bytes."""
        header = {"version": str(self.version), "network": self.network, "loss": self.loss}
        return _encoded("weights", {"flat": self.flat}, header)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what was encoded.

        Raises:
            GradientMessageError: These are no weights.
        """
        arrays, header = _decoded("weights", data, {"version", "network", "loss"})
        flat = _floats(arrays, "flat")
        version = _number(header, "version")
        return cls(version=version, flat=flat, network=header["network"], loss=header["loss"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientMessage:
    """One function's answer."""

    job_id: str
    round: int
    call: int
    base: int
    """Version of the weights it was computed at."""
    num_samples: int
    flat: Floats  # [P] float32
    stats: Floats  # [S] float64
    started_at: float
    """When the function began, in Unix seconds."""
    fetch_s: float
    compute_s: float

    def encode(self) -> bytes:
        """Return it as bytes."""
        header = {
            "job": self.job_id,
            "round": str(self.round),
            "call": str(self.call),
            "base": str(self.base),
            "samples": str(self.num_samples),
            "started_at": repr(self.started_at),
            "fetch_s": repr(self.fetch_s),
            "compute_s": repr(self.compute_s),
        }
        return _encoded(
            "gradient", {"flat": self.flat, "stats": self.stats.astype(np.float64)}, header
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what was encoded.

        Raises:
            GradientMessageError: This is no gradient.
        """
        names = {"job", "round", "call", "base", "samples", "started_at", "fetch_s", "compute_s"}
        arrays, header = _decoded("gradient", data, names)
        numbers = {name: _number(header, name) for name in ("round", "call", "base", "samples")}
        times = {name: _seconds(header, name) for name in ("started_at", "fetch_s", "compute_s")}
        return cls(
            job_id=header["job"],
            round=numbers["round"],
            call=numbers["call"],
            base=numbers["base"],
            num_samples=numbers["samples"],
            flat=_floats(arrays, "flat"),
            stats=_floats(arrays, "stats", np.float64),
            **times,
        )


def encode_slice(samples: Columns[Floats]) -> bytes:
    """Return the samples of one gradient as bytes."""
    return _encoded("slice", samples.arrays, {})


def decode_slice(data: bytes, *, names: Iterable[str]) -> Columns[Floats]:
    """Return the samples that were encoded, with columns # [n, ...] float32 of exactly these names.

    Raises:
        GradientMessageError: These are no samples.
    """
    arrays, _ = _decoded("slice", data, set())
    try:
        checked(arrays, dict.fromkeys(names, Column(item=None)), axes=lambda _name: ("n",))
    except ColumnsError as error:
        raise GradientMessageError(f"a slice: {error}") from error
    if max(array.ndim for array in arrays.values()) > 2:
        raise GradientMessageError("a slice: holds samples that are no vectors")
    return Columns(**arrays)


def _encoded(kind: str, arrays: Mapping[str, Floats], header: Mapping[str, str]) -> bytes:
    return codec.encode(arrays, {"kind": kind, "format": VERSION, **header})


def _decoded(kind: str, data: bytes, names: set[str]) -> tuple[dict[str, Floats], dict[str, str]]:
    try:
        payload = codec.decode(data, max_bytes=MAX_MESSAGE_BYTES)
    except codec.CodecError as error:
        raise GradientMessageError(f"no {kind}: {error}") from error
    header = payload.metadata
    if header.get("kind") != kind or header.get("format") != VERSION:
        said = json.dumps({name: header.get(name) for name in ("kind", "format")})
        raise GradientMessageError(f"no {kind} of format {VERSION}, but {said:.120}")
    if header.keys() != {"kind", "format", *names}:
        raise GradientMessageError(f"the header of a {kind} has other fields than it should")
    # Copies: what is decoded lies at addresses that products are slower with.
    return {name: array.copy() for name, array in payload.arrays.items()}, header


def _floats(
    arrays: Mapping[str, Floats], name: str, dtype: type[np.floating] = np.float32
) -> Floats:
    array = arrays.get(name)
    if array is None or array.dtype != dtype or array.ndim != 1:
        raise GradientMessageError(f"{name} is not there, or no vector of {dtype.__name__}")
    return array


def _number(header: Mapping[str, str], name: str) -> int:
    text = header[name]
    if not text.isdecimal() or len(text) > 15:
        raise GradientMessageError(f"{name} is no number: {text:.40}")
    return int(text)


def _seconds(header: Mapping[str, str], name: str) -> float:
    try:
        seconds = float(header[name])
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0:
        raise GradientMessageError(f"{name} is no time: {header[name]:.40}")
    return seconds
