"""Exported policies: read by other libraries, acting as ours do."""

import ast
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray
from safetensors.numpy import load_file

from nitro.errors import CommandError
from nitro.runs.checkpoints import read_policy
from nitro.runs.export import ExportReport, export_run
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.policy.head import KINDS, PolicyError
from shared.policy.network_metadata import ACTIVATIONS
from shared.policy.numpy_policy import load_policy, with_actions
from shared.policy.spec import POLICY_FORMAT
from shared.trajectory import codec
from tests.nitro.checkpoints import RIGHT, stubborn_policy, write_checkpoint

CONTINUOUS = ContinuousActionSpec(low=(-2.0, 0.0), high=(2.0, 10.0))
SEVERAL = MultiDiscreteActionSpec(num_choices=(2, 3))


def layers(*shapes: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    arrays = {}
    for i, shape in enumerate(shapes):
        fan_in = np.prod(shape[1:])
        weight = rng.standard_normal(shape) / np.sqrt(fan_in)
        arrays[f"policy.{i}.weight"] = weight.astype(np.float32)
        arrays[f"policy.{i}.bias"] = rng.standard_normal(shape[0], np.float32) / 10
    return arrays


def metadata(distribution: str, log_std: str, **more: str) -> dict[str, str]:
    return {
        "format": POLICY_FORMAT,
        "network": "mlp",
        "activation": "tanh",
        "distribution": distribution,
        "log_std": log_std,
        **more,
    }


NORMALISED = {
    "observation_mean": np.linspace(-5, 5, 4, dtype=np.float32),
    "observation_scale": np.linspace(0.2, 3, 4, dtype=np.float32),
}
MASKED = {
    "observation_mean": np.r_[NORMALISED["observation_mean"], np.zeros(5, np.float32)],
    "observation_scale": np.r_[NORMALISED["observation_scale"], np.ones(5, np.float32)],
}
"""What an observation that ends with a mask of five actions is normalised by."""
NATURE = {"network": "nature_cnn", "activation": "relu", "image_shape": "3,40,44"}
NATURE_SHAPES = ((32, 3, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 128), (5, 512))
PAPER = {"network": "paper_cnn", "activation": "relu", "image_shape": "4,42,50"}
PAPER_SHAPES = ((16, 4, 8, 8), (32, 16, 4, 4), (256, 32, 6, 7), (5, 256))
SMALL_SHAPES = ((16, 1, 2, 2), (32, 16, 2, 2), (64, 32, 2, 2), (128, 1536))
CASES: dict[str, tuple[dict[str, Any], dict[str, str], tuple[int, ...], ActionSpec]] = {
    "state-dependent, rescaled": (
        layers((8, 4), (8, 8), (4, 8)),
        metadata("gaussian", "state_dependent", action_mapping="rescale"),
        (4,),
        CONTINUOUS,
    ),
    "free, normalised, clipped": (
        {**layers((8, 4), (2, 8)), **NORMALISED, "log_std": np.zeros(2, np.float32)},
        metadata("gaussian", "free", action_mapping="clip", observation_clip="1.5"),
        (4,),
        CONTINUOUS,
    ),
    "discrete": (
        layers((8, 4), (5, 8)),
        metadata("categorical", "none"),
        (4,),
        DiscreteActionSpec(n=5),
    ),
    "discrete, ReLU, three layers": (
        layers((8, 4), (8, 8), (5, 8)),
        metadata("categorical", "none") | {"activation": "relu"},
        (4,),
        DiscreteActionSpec(n=5),
    ),
    "continuous, ReLU, normalised, rescaled": (
        {**layers((8, 4), (2, 8)), **NORMALISED, "log_std": np.zeros(2, np.float32)},
        metadata("gaussian", "free", observation_clip="5.0") | {"activation": "relu"},
        (4,),
        CONTINUOUS,
    ),
    "discrete, ELU, layer norm": (
        layers((8, 4), (8, 8), (5, 8)),
        metadata("categorical", "none", layer_norm="yes") | {"activation": "elu"},
        (4,),
        DiscreteActionSpec(n=5),
    ),
    "continuous, ReLU, layer norm": (
        layers((8, 4), (4, 8)),
        metadata("gaussian", "state_dependent", layer_norm="yes") | {"activation": "relu"},
        (4,),
        CONTINUOUS,
    ),
    "squashed, ReLU": (
        layers((8, 4), (8, 8), (4, 8)),
        metadata("squashed_gaussian", "state_dependent") | {"activation": "relu"},
        (4,),
        CONTINUOUS,
    ),
    "several": (
        layers((8, 4), (5, 8)),
        metadata("multi_categorical", "none", num_choices="2,3"),
        (4,),
        SEVERAL,
    ),
    "discrete, masked, normalised": (
        {**layers((8, 9), (5, 8)), **MASKED},
        metadata("categorical", "none", observation_clip="5.0", mask="yes"),
        (9,),
        DiscreteActionSpec(n=5),
    ),
    "several, masked": (
        layers((8, 9), (5, 8)),
        metadata("multi_categorical", "none", num_choices="2,3", mask="yes"),
        (9,),
        SEVERAL,
    ),
    "discrete, not from 0": (
        layers((8, 4), (5, 8)),
        metadata("categorical", "none"),
        (4,),
        DiscreteActionSpec(n=5, start=-3),
    ),
    "several, not from 0": (
        layers((8, 4), (5, 8)),
        metadata("multi_categorical", "none", num_choices="2,3"),
        (4,),
        MultiDiscreteActionSpec(num_choices=(2, 3), starts=(7, -1)),
    ),
    "discrete, GRU, normalised": (
        {**layers((8, 4), (18, 14), (5, 6)), **NORMALISED},
        metadata("categorical", "none", observation_clip="5.0", recurrent="gru"),
        (4,),
        DiscreteActionSpec(n=5),
    ),
    "continuous, LSTM, two layers before": (
        layers((8, 4), (7, 8), (24, 13), (4, 6)),
        metadata("gaussian", "state_dependent", recurrent="lstm"),
        (4,),
        CONTINUOUS,
    ),
    "Nature's images": (
        layers(*NATURE_SHAPES),
        metadata("categorical", "none") | NATURE,
        (3, 40, 44),
        DiscreteActionSpec(n=5),
    ),
    "the paper's images": (
        layers(*PAPER_SHAPES),
        metadata("categorical", "none") | PAPER,
        (4, 42, 50),
        DiscreteActionSpec(n=5),
    ),
    "a small image": (
        layers((16, 3, 2, 2), *SMALL_SHAPES[1:3], (128, 1024), (5, 128)),
        metadata("categorical", "none")
        | {"network": "small_cnn", "activation": "relu", "image_shape": "3,7,7"},
        (3, 7, 7),
        DiscreteActionSpec(n=5),
    ),
    "two images and numbers, normalised": (
        {
            **layers(*NATURE_SHAPES[:-1], *SMALL_SHAPES, (8, 644), (2, 8)),
            **NORMALISED,
            "log_std": np.zeros(2, np.float32),
        },
        metadata("gaussian", "free", action_mapping="clip", observation_clip="5.0")
        | {"network": "nature_cnn", "image_shapes": "3,40,44;1,7,9", "numbers": "4"},
        (5347,),
        CONTINUOUS,
    ),
    "an image of bytes, masked": (
        layers(*PAPER_SHAPES[:-1], (6, 265), (5, 6)),
        metadata("categorical", "none", mask="yes", layer_norm="yes")
        | {"network": "paper_cnn", "image_shapes": "4,42,50", "numbers": "9"},
        (8409,),
        DiscreteActionSpec(n=5),
    ),
    "images alone": (
        layers(*SMALL_SHAPES, *SMALL_SHAPES, (5, 256)),
        metadata("categorical", "none")
        | {"network": "paper_cnn", "image_shapes": "1,7,9;1,7,9", "numbers": "0"},
        (126,),
        DiscreteActionSpec(n=5),
    ),
}
BYTES = {name for name, case in CASES.items() if len(case[2]) > 1} | {"an image of bytes, masked"}


def environment_of(observation: ObservationSpec, action: ActionSpec) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="CartPole-v1",
        observation=observation,
        action=action,
        max_episode_steps=500,
        versions={},
    )


def exported(tmp_path: Path, name: str) -> tuple[Path, ExportReport]:
    arrays, meta, shape, action = CASES[name]
    spec = ObservationSpec.model_validate(
        {
            "shape": shape,
            "dtype": "uint8" if name in BYTES else "float32",
            "images": images_of(meta),
            "action_mask": "mask" in meta,
        }
    )
    environment = environment_of(spec, action)
    folder = write_checkpoint(
        tmp_path, next_round=4, policy=codec.encode(arrays, meta), environment=environment
    )
    return folder, export_run(folder, tmp_path / "out")


def images_of(meta: dict[str, str]) -> list[list[int]]:
    images = meta.get("image_shapes", "").split(";")
    return [[int(size) for size in image.split(",")] for image in images if image]


def observations(name: str, rng: np.random.Generator, count: int) -> NDArray[Any]:
    """Random ones; masks at their ends each forbid one of five actions."""
    _, meta, shape, _ = CASES[name]
    if name in BYTES:
        rows: NDArray[Any] = rng.integers(0, 256, (count, *shape), np.uint8)
    else:
        rows = rng.standard_normal((count, *shape), np.float32) * 4
        pixels = sum(int(np.prod(image)) for image in images_of(meta))
        rows[:, :pixels] = rng.integers(0, 256, (count, pixels))
    if "masked" in name:
        rows[:, -5:] = 1
        rows[np.arange(count), -5 + np.arange(count) % 5] = 0
    return rows


@pytest.mark.parametrize("name", CASES)
def test_the_graph_acts_as_the_policy_of_the_run_and_as_the_exported_one(
    name: str, tmp_path: Path
) -> None:
    folder, report = exported(tmp_path, name)
    action = CASES[name][3]
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    rng = np.random.default_rng(9)
    observation = observations(name, rng, 40)
    # As docs/environments.md shows it.
    payload = codec.decode_raw((tmp_path / "out" / "policy.safetensors").read_bytes())
    exported_policy = load_policy(payload.arrays, payload.metadata)
    for policy in (read_policy(folder)[1], exported_policy):
        for rows in (observation, observation[:1]):
            state = rng.uniform(-1, 1, policy.new_state(len(rows)).shape).astype(np.float32)
            given = {"state": state.copy()} if state.size else {}
            taken, *left = session.run(None, {"observation": rows, **given})
            ours: NDArray[Any] = policy.act(rows, state)
            for each in left:
                np.testing.assert_allclose(each, state, atol=1e-5, strict=True)
            if isinstance(action, ContinuousActionSpec):
                low, high = np.array([action.low, action.high], np.float32)
                np.testing.assert_allclose(taken, ours, atol=1e-4, strict=True)
                assert (taken >= low).all()
                assert (taken <= high).all()
            else:
                np.testing.assert_array_equal(taken, ours, strict=True)
        if not state.size:
            np.testing.assert_allclose(policy.act(observation[0]), taken[0], atol=1e-4)
    assert report.largest_difference is not None
    assert report.largest_difference <= 1e-4


def test_every_block_of_a_policy_is_among_these_cases() -> None:
    heads = {
        (meta["network"], meta["activation"])
        for _, meta, _, _ in CASES.values()
        if "image_shapes" not in meta  # whose other layers are those of an mlp
    }
    assert heads == {(network, each) for network, known in ACTIVATIONS.items() for each in known}
    kinds = {f"{meta['distribution']}/{meta['log_std']}" for _, meta, _, _ in CASES.values()}
    assert kinds == set(KINDS)


@pytest.mark.parametrize("name", CASES)
def test_the_other_files_hold_the_same_policy(name: str, tmp_path: Path) -> None:
    _, report = exported(tmp_path, name)
    arrays, meta, _, action = CASES[name]
    out = tmp_path / "out"
    read = load_file(out / "policy.safetensors")
    assert read.keys() == arrays.keys()
    for field, array in arrays.items():
        np.testing.assert_array_equal(read[field], array, strict=True)
    described = json.loads((out / "policy.json").read_text())
    assert described["policy"] == with_actions(meta, action)
    assert described["policy_version"] == 4
    assert described["env"]["env_id"] == "CartPole-v1"
    assert ExportReport.model_validate(described) == report
    assert {path.name for path in out.iterdir()} == set(report.files)
    onnx.checker.check_model(onnx.load(out / "policy.onnx"), full_check=True)


@pytest.mark.parametrize(
    ("name", "space", "told"),
    [
        ("discrete, not from 0", Discrete(5, start=-3), "int64 [N], from -3 to 1"),
        (
            "several, not from 0",
            MultiDiscrete([2, 3], start=[7, -1]),
            "int64 [N, 2], from [7, -1] to [8, 1]",
        ),
        (
            "free, normalised, clipped",
            Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32)),
            "float32 [N, 2], from [-2.0, 0.0] to [2.0, 10.0]",
        ),
    ],
)
def test_the_file_returns_what_the_environment_takes_and_says_so(
    name: str, space: Space[Any], told: str, tmp_path: Path
) -> None:
    exported(tmp_path, name)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    rows = np.random.default_rng(3).standard_normal((50, 4), np.float32)
    (taken,) = session.run(None, {"observation": rows})
    assert all(space.contains(action) for action in taken)
    meant = session.get_modelmeta().custom_metadata_map["action"]
    assert meant == f"what env.step takes: {told}"


@pytest.mark.parametrize("name", CASES)
def test_the_exported_module_acts_alike_with_numpy_alone(name: str, tmp_path: Path) -> None:
    folder, _ = exported(tmp_path, name)
    source = (tmp_path / "out" / "policy.py").read_text("utf-8")
    tree = ast.parse(source)
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {*sys.stdlib_module_names, "numpy"}
    policy = portable(tmp_path / "out")
    ours = read_policy(folder)[1]
    seen = observations(name, np.random.default_rng(1), 20).astype(np.float32)
    first = policy.act(seen)
    policy.reset()
    for rows in (seen, seen[::-1]):  # a recurrent policy remembers the first
        expected, acted = ours.act(rows), policy.act(rows)
        assert acted.shape == expected.shape
        np.testing.assert_allclose(acted, expected, atol=1e-4)
    policy.reset()
    np.testing.assert_allclose(policy.act(seen[0]), first[0], atol=1e-4)
    policy.reset()
    with pytest.raises(ValueError, match="expected"):
        policy.act(np.zeros(99))


def portable(out: Path) -> Any:
    """Return the policy of an exported `policy.py`."""
    there: dict[str, Any] = {"__name__": "policy"}
    exec(compile((out / "policy.py").read_text(), "policy.py", "exec"), there)
    return there["Policy"](out / "policy.safetensors")


def test_a_dict_of_parts_is_refused_with_the_row_that_is_expected(tmp_path: Path) -> None:
    arrays, meta, shape, action = CASES["discrete"]
    spec = ObservationSpec(shape=shape, dtype="float32", parts=(("near.by", 3), ("turn", 1)))
    folder = write_checkpoint(
        tmp_path,
        next_round=4,
        policy=codec.encode(arrays, meta),
        environment=environment_of(spec, action),
    )
    export_run(folder, tmp_path / "out")
    told = r"observation is a dict, expected .*4.*, in this order: near\.by 3, turn 1 \(choices"
    parts: Any = {"near": {"by": np.zeros(3)}, "turn": 0}
    several: Any = (np.zeros(3), 0)
    with pytest.raises(PolicyError, match=told):
        read_policy(folder)[1].act(parts)
    with pytest.raises(TypeError, match=told):
        portable(tmp_path / "out").act(parts)
    with pytest.raises(PolicyError, match="observation is a tuple, .*turn 1"):
        read_policy(folder)[1].act(several)
    with pytest.raises(TypeError, match="observation is a tuple, .*turn 1"):
        portable(tmp_path / "out").act(several)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_onnx_the_other_files_are_written(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "nitro.runs.onnx_graph", raising=False)
    _, report = exported(tmp_path, "discrete")
    assert report.no_onnx == f"{package} is not installed: pip install onnx onnxruntime"
    assert report.largest_difference is None
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {*report.files} == {"policy.safetensors", "policy.json", "policy.py"}
    told = json.loads((tmp_path / "out" / "policy.json").read_text())
    assert (told["files"], "no_onnx" in told) == ([*report.files], False)


def test_a_graph_that_acts_differently_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nitro.runs.export.TOLERANCE", -1.0)
    with pytest.raises(CommandError, match=r"policy\.onnx acts differently .* nothing was written"):
        exported(tmp_path, "several")
    assert not (tmp_path / "out").exists()


def test_a_policy_of_another_environment_is_refused(tmp_path: Path) -> None:
    policy = stubborn_policy(RIGHT)  # the run's environment is Hopper
    folder = write_checkpoint(tmp_path, next_round=1, policy=policy)
    with pytest.raises(CommandError, match="does not fit the environment of its run, Hopper-v5"):
        export_run(folder, tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    environment = environment_of(
        ObservationSpec(shape=(4,), dtype="float32"), DiscreteActionSpec(n=2)
    )
    folder = write_checkpoint(
        tmp_path, next_round=1, policy=stubborn_policy(RIGHT), environment=environment
    )
    (tmp_path / "out").write_text("mine")
    with pytest.raises(CommandError, match="--out: cannot write to"):
        export_run(folder, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"
