"""Arrays as bytes: the safetensors layout inside one zstd frame, and nothing that can execute.

The layout (https://github.com/huggingface/safetensors#format) is an 8-byte little-endian header
length, a JSON header with each array's dtype, shape and offsets, and the contiguous raw
little-endian buffers. The safetensors library reads the output of `encode_raw`, and `decode_raw`
reads the library's files.

Invariant: decoding trusts nothing. Sizes are checked before memory is allocated, so that any
message costs at most about `max_bytes`. Anything but an exact encoding of allowed arrays raises
`CodecError`.
"""

import json
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import zstandard
from numpy.typing import NDArray

Array = NDArray[np.generic]

DEFAULT_MAX_BYTES = 256 * 2**20
"""Default for the largest encoding accepted, decompressed and including the header."""
MAX_HEADER_BYTES = 2**20
MAX_ARRAYS = 4096
MAX_DIMS = 8

_LEVEL = 1
"""Zstd's compression level."""
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}
# Explicitly little-endian: a big-endian machine's native arrays would be refused, not garbled.
_DTYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
_ALLOWED = ", ".join(map(str, _DTYPES.values()))
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
DTYPES = frozenset(_NAMES)
"""Array types that can be encoded."""


class CodecError(ValueError):
    """Bytes that are not a valid encoding, or arrays that cannot be encoded."""


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """The contents of one encoding."""

    arrays: dict[str, Array]
    """Read-only views of the decoded bytes, which live as long as any of them."""
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One array's entry in the header."""

    name: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    begin: int
    end: int


class _Contexts(threading.local):
    """One thread's contexts: creating them takes as long as compressing a trajectory of vectors."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(
            level=_LEVEL, write_checksum=True, write_content_size=True, threads=0
        )
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return arrays and metadata as one zstd frame with its size and a checksum.

    Equal arguments give equal bytes. Arrays have at most `MAX_DIMS` dimensions.

    Raises:
        CodecError: A dtype is not one of float16, float32, float64, int32, int64, uint8 and bool,
            a name is invalid, or a limit is exceeded.
    """
    return _contexts.compressor.compress(encode_raw(arrays, metadata))


def decode(data: bytes, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Payload:
    """Return the input of `encode`, from untrusted bytes of at most `max_bytes` decompressed.

    Raises:
        CodecError: The bytes are damaged, too large or not an output of `encode`.
    """
    _check_frame(data, max_bytes=max_bytes)
    try:
        # zstd trusts the frame's declared size, so only the check above bounds memory.
        raw = _contexts.decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"damaged zstd frame: {error}") from error
    return decode_raw(raw, max_bytes=max_bytes)


def encode_raw(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return arrays and metadata uncompressed: a plain safetensors file.

    Raises:
        CodecError: As for `encode`.
    """
    if len(arrays) > MAX_ARRAYS:
        raise CodecError(f"{len(arrays)} arrays, at most {MAX_ARRAYS} fit one encoding")
    header: dict[str, object] = {}
    if metadata:
        header[_METADATA] = dict(metadata)
    buffers: list[bytes] = []
    offset = 0
    # Wide types first, so that every array starts at a multiple of its item size.
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize):
        header[name] = _header_entry(name, array, offset)
        buffers.append(array.tobytes())
        offset += array.nbytes
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise CodecError(f"names and metadata must be valid Unicode text: {error}") from error
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise CodecError(f"header of {len(text)} bytes, at most {MAX_HEADER_BYTES} are allowed")
    return b"".join([len(text).to_bytes(8, "little"), text, *buffers])


def decode_raw(data: bytes, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Payload:
    """Return the input of `encode_raw`; the arrays are read-only views of `data`.

    Raises:
        CodecError: The bytes are damaged, too large or not a safetensors file of allowed arrays.
    """
    if not 8 <= len(data) <= max_bytes:
        raise CodecError(f"{len(data)} bytes, expected 8 to {max_bytes}")
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > min(MAX_HEADER_BYTES, len(data) - 8):
        raise CodecError(f"header length {header_bytes} exceeds the data or {MAX_HEADER_BYTES}")
    header = _parse_header(data[8 : 8 + header_bytes])
    metadata = _parse_metadata(header.pop(_METADATA, {}))
    if len(header) > MAX_ARRAYS:
        raise CodecError(f"{len(header)} arrays, at most {MAX_ARRAYS} are allowed")
    entries = [_parse_entry(name, fields) for name, fields in header.items()]
    start = 8 + header_bytes
    _check_layout(entries, size=len(data) - start)
    return Payload({e.name: _view(data, start, e) for e in entries}, metadata)


def _check_frame(data: bytes, *, max_bytes: int) -> None:
    """Refuse a frame before decompressing it: zstd would allocate any declared size."""
    try:
        frame = zstandard.get_frame_parameters(data)
    except zstandard.ZstdError as error:
        raise CodecError(f"not a zstd frame: {error}") from error
    if frame.content_size == zstandard.CONTENTSIZE_UNKNOWN:
        raise CodecError("the zstd frame does not state its content size")
    if frame.content_size > max_bytes:
        raise CodecError(f"decompresses to {frame.content_size} bytes, at most {max_bytes} allowed")
    # The window is also memory that a frame demands; 1 KiB is the format's minimum.
    if frame.window_size > max(max_bytes, 1024):
        raise CodecError(f"zstd window of {frame.window_size} bytes, at most {max_bytes} allowed")
    if not frame.has_checksum:
        raise CodecError("the zstd frame has no checksum")


def _header_entry(name: str, array: Array, offset: int) -> dict[str, object]:
    if name == _METADATA:
        raise CodecError(f"{_METADATA!r} is not allowed as an array's name")
    if array.dtype not in _NAMES:
        raise CodecError(f"array {name!r:.80} has dtype {array.dtype}, allowed are {_ALLOWED}")
    if array.ndim > MAX_DIMS:
        raise CodecError(f"array {name!r:.80} has {array.ndim} dimensions, at most {MAX_DIMS}")
    return {
        "dtype": _NAMES[array.dtype],
        "shape": list(array.shape),
        "data_offsets": [offset, offset + array.nbytes],
    }


def _parse_header(text: bytes) -> dict[str, object]:
    try:
        header = json.loads(
            text.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise CodecError(f"the header is not valid JSON: {error}") from error
    if not isinstance(header, dict):
        raise CodecError("the header is not a JSON object")
    return header


def _unique(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"it names {key!r:.80} twice")
        members[key] = value
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}")


def _parse_metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise CodecError(f"{_METADATA} is not a JSON object")
    for key, text in value.items():
        if not isinstance(text, str):
            raise CodecError(f"metadata {key!r:.80} is not text")
    return value


def _parse_entry(name: str, fields: object) -> _Entry:
    if not isinstance(fields, dict) or fields.keys() != _FIELDS:
        raise CodecError(f"array {name!r:.80} must give exactly dtype, shape and data_offsets")
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    dtype = _DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise CodecError(f"array {name!r:.80} has dtype {code!r:.80}, allowed are {_ALLOWED}")
    if not isinstance(shape, list) or not isinstance(offsets, list):
        raise CodecError(f"array {name!r:.80}: shape and data_offsets must be lists")
    if len(shape) > MAX_DIMS or len(offsets) != 2:
        raise CodecError(f"array {name!r:.80} needs at most {MAX_DIMS} dimensions and two offsets")
    for size in (*shape, *offsets):
        # 2^48 is far above any array and far below any overflow.
        if type(size) is not int or not 0 <= size < 2**48:
            raise CodecError(f"array {name!r:.80}: shape or data_offsets hold other than a size")
    begin, end = offsets
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise CodecError(f"array {name!r:.80}: offsets {begin}..{end} do not fit shape {shape}")
    return _Entry(name, dtype, tuple(shape), begin, end)


def _check_layout(entries: Iterable[_Entry], *, size: int) -> None:
    """Check that the buffers fill the data exactly, without gap or overlap."""
    expected = 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != expected:
            raise CodecError(
                f"array {entry.name!r:.80} begins at {entry.begin}, expected {expected}"
            )
        expected = entry.end
    if expected != size:
        raise CodecError(f"the arrays take {expected} bytes, but {size} follow the header")


def _view(data: bytes, start: int, entry: _Entry) -> Array:
    buffer = np.frombuffer(
        data, np.uint8, count=entry.end - entry.begin, offset=start + entry.begin
    )
    if entry.dtype == np.bool_ and buffer.size and buffer.max() > 1:
        raise CodecError(f"array {entry.name!r:.80} holds booleans other than 0 and 1")
    try:
        return buffer.view(entry.dtype).reshape(entry.shape)
    except ValueError as error:
        raise CodecError(f"array {entry.name!r:.80}: shape {entry.shape} is impossible") from error
