"""Networks of one's own as ONNX graphs: run as they are, and refused unless they are plain."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper

from shared.policy.head import PolicyError
from shared.policy.network_metadata import GRAPH
from shared.policy.numpy_policy import halved, load_policy

WEIGHT = np.arange(6, dtype=np.float32).reshape(3, 2)
METADATA = {
    "format": "nitro-policy/1",
    "network": "onnx",
    "observation_shape": "3",
    "num_outputs": "2",
    "distribution": "categorical",
    "log_std": "none",
}


def model(
    *nodes: onnx.NodeProto, rows: int | str = "N", weight: NDArray[np.float32] = WEIGHT
) -> ModelProto:
    """Return a graph of observations times a weight, after other nodes from `observation`."""
    last = nodes[-1].output[0] if nodes else "observation"
    given = helper.make_tensor_value_info("observation", TensorProto.FLOAT, [rows, 3])
    result = helper.make_tensor_value_info("outputs", TensorProto.FLOAT, [rows, weight.shape[1]])
    return helper.make_model(
        helper.make_graph(
            [*nodes, helper.make_node("MatMul", [last, "weight"], ["outputs"])],
            "network",
            [given],
            [result],
            [numpy_helper.from_array(weight, "weight")],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=9,
    )


def arrays(graph: bytes) -> dict[str, NDArray[np.generic]]:
    return {GRAPH: np.frombuffer(graph, np.uint8)}


def test_a_graph_is_the_network() -> None:
    policy = load_policy(arrays(model().SerializeToString()), METADATA)
    seen = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.testing.assert_allclose(policy.outputs(seen), seen @ WEIGHT, rtol=1e-6)
    assert policy.act(seen[0]).shape == ()
    assert policy.spec.num_weights > WEIGHT.size


def test_its_observations_can_be_normalised_and_its_deviations_free() -> None:
    beside = {
        "log_std": np.array([0.5, 0.5], np.float32),
        "observation_mean": np.array([1, 1, 1], np.float32),
        "observation_scale": np.array([2, 2, 2], np.float32),
    }
    said = {**METADATA, "distribution": "gaussian", "log_std": "free", "observation_clip": "3.0"}
    policy = load_policy(arrays(model().SerializeToString()) | beside, said)
    expected = np.array([[2, -2, 3]], np.float32) @ WEIGHT
    np.testing.assert_allclose(policy.mode(np.array([[2, 0, 9]], np.float32)), expected, rtol=1e-6)
    halves = halved(arrays(model().SerializeToString()) | beside)
    assert halves[GRAPH].dtype == np.uint8


def elsewhere() -> ModelProto:
    found = model()
    weight = found.graph.initializer[0]
    weight.data_location = TensorProto.EXTERNAL
    weight.ClearField("raw_data")
    weight.external_data.add(key="location", value="secrets.bin")
    return found


def looping() -> ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go_on"], ["still"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, [])],
    )
    found = model()
    found.graph.node.insert(0, helper.make_node("Loop", ["", ""], [], body=body))
    return found


def constant_elsewhere() -> ModelProto:
    value = TensorProto(data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL, dims=[1])
    found = model()
    found.graph.node.insert(0, helper.make_node("Constant", [], ["unused"], value=value))
    return found


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (elsewhere, "weights outside"),
        (constant_elsewhere, "weights outside"),
        (looping, "Loop branches or loops"),
        (
            lambda: model(
                helper.make_node("Gelu", ["observation"], ["seen"], domain="com.microsoft")
            ),
            "com.microsoft.Gelu is none of ONNX's own",
        ),
        (lambda: model(rows=1), "cannot be run"),
        (lambda: model(weight=WEIGHT[:, :1]), r"gives outputs \(1, 1\), expected \(1, 2\)"),
        (lambda: model(weight=WEIGHT[:2]), "cannot be loaded|cannot be run"),
    ],
)
def test_what_is_no_plain_network_is_refused(made: Callable[[], ModelProto], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        load_policy(arrays(made().SerializeToString()), METADATA)


@pytest.mark.parametrize("graph", [b"", b"no graph", model().SerializeToString()[:-9]])
def test_damaged_bytes_are_refused(graph: bytes) -> None:
    with pytest.raises(PolicyError):
        load_policy(arrays(graph), METADATA)


def also_in_onnxruntimes_format(graph: bytes, folder: Path) -> bytes:
    """Return a model of onnxruntime's own format that is an empty ONNX message, too.

    The format begins with the place of the content and "ORTM". The content is moved, so that these
    bytes are fields of the message: numbers 1 and 2, and an unknown one of 84 bytes. Another
    unknown field has the rest.
    """
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    saved = (folder / "model.ort").read_bytes()
    place = bytes([0x08, 9, 0x12, 1])
    moved = int.from_bytes(place, "little") - int.from_bytes(saved[:4], "little")
    both = bytearray(place + saved[4:8] + bytes(moved) + saved[8:])
    start = len(place) + len("OR") + 1 + 84
    length = len(both) - start - 5
    both[start : start + 5] = [
        0x7A,
        *(length >> bits & 0x7F | 0x80 for bits in (0, 7, 14)),
        length >> 21,
    ]
    return bytes(both)


def test_what_is_checked_as_one_format_is_not_run_as_another(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gelu", ["observation"], ["seen"], domain="com.microsoft"),
        helper.make_node("Relu", ["seen"], ["positive"]),
    ]
    graph = also_in_onnxruntimes_format(model(*nodes).SerializeToString(), tmp_path)
    assert not onnx.load_model_from_string(graph).graph.node
    by_itself = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    assert [each.name for each in by_itself.get_outputs()] == ["outputs"]
    with pytest.raises(PolicyError, match="cannot be loaded"):
        load_policy(arrays(graph), METADATA)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"observation_shape": "0"}, "observation_shape is '0'"),
        ({"observation_shape": "9999,9999,1"}, "too many numbers"),
        ({"num_outputs": "many"}, "num_outputs is 'many'"),
        ({"num_outputs": "9999999"}, "too many numbers"),
    ],
)
def test_metadata_that_say_no_network_are_refused(changes: dict[str, str], told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        load_policy(arrays(model().SerializeToString()), METADATA | changes)


def test_a_graph_is_bytes_and_stands_alone() -> None:
    graph = arrays(model().SerializeToString())
    with pytest.raises(PolicyError, match="dtype float32, expected uint8"):
        load_policy({GRAPH: graph[GRAPH].astype(np.float32)}, METADATA)
    with pytest.raises(PolicyError, match="holds arrays"):
        load_policy(graph | {"policy.0.weight": WEIGHT}, METADATA)
    with pytest.raises(PolicyError, match="holds arrays"):
        load_policy({}, METADATA)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_the_command(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PolicyError, match=rf"{package} is not installed.*pip install 'nitro-rl"):
        load_policy(arrays(model().SerializeToString()), METADATA)
