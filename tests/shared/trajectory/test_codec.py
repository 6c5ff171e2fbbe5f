"""The codec against hypothesis, the safetensors library, and bytes nobody should trust."""

import json
import random
import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import safetensors.numpy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from shared.trajectory import codec
from shared.trajectory.codec import CodecError, Payload

DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")

ARRAYS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
        lambda name: name != "__metadata__"
    ),
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=codec.MAX_DIMS, min_side=0, max_side=3)
        )
    ),
    max_size=6,
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def _assert_same(
    payload: Payload, arrays: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]
) -> None:
    assert payload.metadata == dict(metadata)
    assert payload.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        decoded = payload.arrays[name]
        assert (decoded.dtype, decoded.shape) == (array.dtype, array.shape)
        assert decoded.tobytes() == array.tobytes()  # bit for bit, NaN included


def _raw(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def _entry(**changes: object) -> dict[str, object]:
    return {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} | changes


@given(arrays=ARRAYS, metadata=st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_what_is_encoded_is_decoded_bit_for_bit(
    arrays: dict[str, NDArray[np.generic]], metadata: dict[str, str]
) -> None:
    data = codec.encode(arrays, metadata)
    _assert_same(codec.decode(data), arrays, metadata)
    assert codec.encode(arrays, metadata) == data
    _assert_same(codec.decode_raw(codec.encode_raw(arrays, metadata)), arrays, metadata)


@given(arrays=ARRAYS)
def test_the_safetensors_library_reads_our_bytes_and_we_read_its(
    arrays: dict[str, NDArray[np.generic]],
) -> None:
    theirs = safetensors.numpy.load(codec.encode_raw(arrays, {"a": "b"}))
    _assert_same(Payload(theirs, {}), arrays, {})
    contiguous = {name: np.array(array, order="C") for name, array in arrays.items()}
    ours = codec.decode_raw(safetensors.numpy.save(contiguous, {"format": "x"}))
    _assert_same(ours, arrays, {"format": "x"})


def test_decoded_arrays_are_read_only_aligned_and_in_c_order() -> None:
    arrays: dict[str, NDArray[np.generic]] = {
        "a": np.zeros(3, np.uint8),
        "b": np.arange(12, dtype=np.float64).reshape(3, 4).T[::-1],
        "c": np.zeros(1, np.int32),
    }
    decoded = codec.decode(codec.encode(arrays, {}))
    _assert_same(decoded, arrays, {})
    for array in decoded.arrays.values():
        assert not array.flags.writeable
        assert array.flags.aligned
        assert array.flags.c_contiguous


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({"a": np.zeros(1, np.complex64)}, {}, "dtype complex64"),
        ({"a": np.zeros(1, ">f4")}, {}, "dtype >f4"),
        ({"a": np.array([object()])}, {}, "dtype object"),
        ({"__metadata__": np.zeros(1)}, {}, "not allowed as an array's name"),
        ({"a": np.zeros((1,) * 9)}, {}, "9 dimensions"),
        ({"\ud800": np.zeros(1)}, {}, "valid Unicode"),
        ({}, {"k": "x" * codec.MAX_HEADER_BYTES}, "header of"),
        ({str(i): np.zeros(0) for i in range(codec.MAX_ARRAYS + 1)}, {}, "arrays, at most"),
    ],
)
def test_what_cannot_be_encoded_is_refused(
    arrays: dict[str, NDArray[np.generic]], metadata: dict[str, str], message: str
) -> None:
    with pytest.raises(CodecError, match=message):
        codec.encode(arrays, metadata)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (b"\xff" * 8, "header length"),
        (_raw(b" " * (codec.MAX_HEADER_BYTES + 1)), "header length"),
        (_raw(b"\xff\xfe"), "not valid JSON"),
        (_raw(b"{"), "not valid JSON"),
        (_raw(b"[" * 100_000), "not valid JSON"),
        (_raw(b'{"a":' + b"9" * 5000 + b"}"), "not valid JSON"),
        (_raw(b'{"a":NaN}'), "NaN"),
        (_raw([]), "not a JSON object"),
        (_raw({"__metadata__": []}), "not a JSON object"),
        (_raw({"__metadata__": {"k": 1}}), "metadata 'k' is not text"),
        (_raw(b'{"a":1,"a":1}'), "names 'a' twice"),
        (_raw({"a": 3}), "exactly dtype, shape"),
        (_raw({"a": _entry(extra=1)}, b"1234"), "exactly dtype, shape"),
        (_raw({"a": _entry(dtype="BF16")}, b"1234"), "dtype 'BF16'"),
        (_raw({"a": _entry(dtype=["U8"])}, b"1234"), "dtype"),
        (_raw({"a": _entry(shape=4)}, b"1234"), "must be lists"),
        (_raw({"a": _entry(shape=[4.0])}, b"1234"), "other than a size"),
        (_raw({"a": _entry(shape=[True])}, b"1234"), "other than a size"),
        (_raw({"a": _entry(shape=[-4])}, b"1234"), "other than a size"),
        (_raw({"a": _entry(shape=[2**63])}, b"1234"), "other than a size"),
        (_raw({"a": _entry(shape=[1] * 9)}, b"1234"), "at most 8 dimensions"),
        (_raw({"a": _entry(shape=[5])}, b"1234"), "do not fit shape"),
        (_raw({"a": _entry(shape=[0] + [2**47] * 3, data_offsets=[0, 0])}), "impossible"),
        (_raw({"a": _entry(data_offsets=[0])}, b"1234"), "two offsets"),
        (_raw({"a": _entry(data_offsets=[4, 0])}, b"1234"), "do not fit shape"),
        (_raw({"a": _entry(data_offsets=[1, 5])}, b"12345"), "begins at 1"),
        (_raw({"a": _entry(), "b": _entry()}, b"1234"), "begins at 0, expected 4"),
        (_raw({"a": _entry(), "b": _entry(data_offsets=[2, 6])}, b"123456"), "expected 4"),
        (_raw({"a": _entry()}, b"123"), "take 4 bytes, but 3"),
        (_raw({"a": _entry()}, b"12345"), "take 4 bytes, but 5"),
        (_raw({"a": _entry(dtype="BOOL")}, b"\x00\x01\x02\x01"), "booleans other than"),
        (
            _raw({str(i): _entry(shape=[0], data_offsets=[0, 0]) for i in range(4097)}),
            "4097 arrays, at most 4096",
        ),
    ],
)
def test_a_wrong_layout_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        codec.decode_raw(data)


@pytest.mark.parametrize("place", [[0, 0], [4, 4]])
@pytest.mark.parametrize("empty_first", [False, True])
def test_an_empty_array_may_stand_anywhere(place: list[int], empty_first: bool) -> None:
    entries = {"full": _entry(), "empty": _entry(shape=[0], data_offsets=place)}
    header = dict(sorted(entries.items(), reverse=not empty_first))
    arrays = codec.decode_raw(_raw(header, b"1234")).arrays
    assert (arrays["full"].tobytes(), arrays["empty"].size) == (b"1234", 0)


def _bomb(size: int, *, stated: bool = True) -> bytes:
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=stated)
    return compressor.compress(bytes(size))


def _wide_window(size: int) -> bytes:
    """The head of a frame of `size` bytes that asks for a window of 128 MiB (RFC 8878, 3.1.1.1)."""
    descriptor, window = 0b10_0_0_0_1_00, (27 - 10) << 3  # size in 4 bytes, checksum; 2^27 bytes
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor, window]) + size.to_bytes(4, "little")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"", "not a zstd frame"),
        (lambda: _wide_window(99), "zstd window of 134217728 bytes, at most 1048576 allowed"),
        (lambda: b"PK\x03\x04 not ours at all", "not a zstd frame"),
        (lambda: _bomb(2**27), "decompresses to"),
        (lambda: _bomb(2**27, stated=False), "does not state its content size"),
        (lambda: zstandard.ZstdCompressor().compress(bytes(99)), "no checksum"),
        (lambda: codec.encode({}, {}) + b"tail", "damaged zstd frame"),
        (lambda: codec.encode({}, {}) * 2, "damaged zstd frame"),
    ],
)
def test_a_wrong_frame_is_refused_within_bounded_memory(
    make: Callable[[], bytes], message: str
) -> None:
    data = make()
    tracemalloc.start()
    with pytest.raises(CodecError, match=message):
        codec.decode(data, max_bytes=2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_what_is_just_as_large_as_allowed_is_read() -> None:
    arrays = {"a": np.arange(5000, dtype=np.float32)}
    raw, frame = codec.encode_raw(arrays, {}), codec.encode(arrays, {})
    size = len(raw)
    _assert_same(codec.decode_raw(raw, max_bytes=size), arrays, {})
    _assert_same(codec.decode(frame, max_bytes=size), arrays, {})
    with pytest.raises(CodecError, match=f"{size} bytes, expected 8 to {size - 1}"):
        codec.decode_raw(raw, max_bytes=size - 1)
    with pytest.raises(CodecError, match=f"decompresses to {size} bytes, at most {size - 1}"):
        codec.decode(frame, max_bytes=size - 1)


def test_a_frame_is_read_as_ever_after_one_that_was_damaged() -> None:
    arrays = {"a": np.arange(5000, dtype=np.float32)}
    data = codec.encode(arrays, {"b": "c"})
    for cut in range(0, len(data), 97):
        with pytest.raises(CodecError):
            codec.decode(data[:cut])
        np.testing.assert_array_equal(codec.decode(data).arrays["a"], arrays["a"])
    assert codec.encode(arrays, {"b": "c"}) == data


def test_threads_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    inputs = [{"a": rng.integers(0, 9, 20_000)} for _ in range(8)]
    expected = [codec.encode(arrays, {}) for arrays in inputs]

    def again(place: int) -> bool:
        rounds = (codec.encode(inputs[place], {}) for _ in range(30))
        return all(
            data == expected[place]
            and np.array_equal(codec.decode(data).arrays["a"], inputs[place]["a"])
            for data in rounds
        )

    with ThreadPoolExecutor(len(inputs)) as pool:
        assert all(pool.map(again, range(len(inputs))))


def _damage(data: bytes, rng: random.Random) -> bytes:
    """Flip a bit, cut, insert, delete or overwrite somewhere, up to three times."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(damaged) or 1)
        match rng.randrange(5):
            case 0 if damaged:
                damaged[at] ^= 1 << rng.randrange(8)
            case 1:
                del damaged[at:]
            case 2:
                damaged[at:at] = rng.randbytes(rng.randint(1, 16))
            case 3:
                del damaged[at : at + rng.randint(1, 16)]
            case _:
                damaged[at : at + 4] = rng.choice([b"\xff" * 4, b"\0" * 4, b"9999", b"[[[["])
    return bytes(damaged)


ARRAYS_TO_DAMAGE: dict[str, NDArray[np.generic]] = {
    "observation": np.linspace(0, 1, 600, dtype=np.float32).reshape(50, 1, 12),
    "terminated": np.zeros((50, 1), np.bool_),
    "lengths": np.arange(5, dtype=np.int32),
}


@pytest.mark.parametrize("framed", [True, False])
def test_damage_is_refused_or_harmless_within_bounded_memory(framed: bool) -> None:
    """Behind a frame, whose checksum tells, what is read is what was sent."""
    encode, decode = (
        (codec.encode, codec.decode) if framed else (codec.encode_raw, codec.decode_raw)
    )
    data = encode(ARRAYS_TO_DAMAGE, {"job_id": "a"})
    limit = 2**20
    rng = random.Random(0)
    tracemalloc.start()
    for _ in range(3000):
        try:
            payload = decode(_damage(data, rng), max_bytes=limit)
        except CodecError:
            continue
        if framed:
            _assert_same(payload, ARRAYS_TO_DAMAGE, {"job_id": "a"})
        assert sum(array.nbytes for array in payload.arrays.values()) < limit
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (3 * limit if framed else limit)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        codec.decode(data)
