"""`nitro export`: a run's policy as files for use without Nitro.

    policy.safetensors   the actors' arrays, and the bounds of the actions
    policy.json          the meaning of the arrays, and the training environment
    policy.onnx          observation in, action out

The ONNX file's actions are compared with our own policy's before it is kept: a difference is an
error.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from nitro.errors import EXIT_FAILED, CommandError
from nitro.runs.checkpoints import read_checkpoint
from nitro.runs.reading import read_job
from shared.contracts.checkpoint_rules import Which
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
)
from shared.policy.blocks import Block, Conv, Parts, layers_of
from shared.policy.head import PolicyError
from shared.policy.network_metadata import ACTIVATIONS
from shared.policy.numpy_policy import NumpyPolicy, load_policy, with_actions
from shared.policy.observation_parts import with_parts
from shared.policy.spec import PolicySpec
from shared.trajectory import codec

_PORTABLE = Path(__file__).with_name("portable_policy.py")
NUM_CHECKED = 256
"""Number of random observations to compare both policies on."""
TOLERANCE = 1e-4
"""Largest action difference, relative to max(1, action); float32 sums differ in order."""
_NEAR_TIE = 1e-4
"""Outputs closer than this may rank either way."""


class ExportReport(BaseModel):
    """The written files; the fields are the keys of `policy.json`."""

    model_config = ConfigDict(frozen=True)

    format: str = "nitro-export/1"
    job_id: str
    policy_version: int = Field(description="Policy updates behind it.")
    env: EnvironmentRef
    environment: EnvironmentSpec
    policy: dict[str, str]
    """The policy's own metadata: network, distribution, normalisation, mapping of actions."""
    files: tuple[str, ...]
    checked_observations: int
    largest_difference: float | None
    """Difference between actions of `policy.onnx` and ours; 0 if discrete, None without it."""
    no_onnx: str | None = Field(default=None, exclude=True)
    """Why there is no `policy.onnx`."""


def export_run(folder: Path, out: Path, *, which: Which | None = None) -> ExportReport:
    """Write the policy of one of a run's checkpoints into a folder.

    Raises:
        CommandError: The checkpoint is missing or damaged, the folder is not writable, or the ONNX
            file acts differently from the policy.
    """
    job, checkpoint = read_job(folder), read_checkpoint(folder, which)
    try:
        payload = codec.decode(checkpoint.policy)
        environment = job.described_environment
        metadata = with_actions(payload.metadata, environment.action)
        metadata = with_parts(metadata, environment.observation)
        policy = load_policy(payload.arrays, metadata)
    except (codec.CodecError, PolicyError) as error:
        raise CommandError(f"{folder}: the {which} checkpoint's policy: {error}") from error
    _check_fit(policy, job.described_environment)
    seen = _observations(payload.arrays, job.described_environment)
    model, difference, missing = b"", None, None
    try:
        model = _onnx_file(payload, job.described_environment)
        difference = _largest_difference(model, policy, job.described_environment, seen)
    except ImportError as error:
        missing = f"{error.name} is not installed: pip install onnx onnxruntime"
    arrays = codec.encode_raw(payload.arrays, _portable(metadata, policy.spec))
    contents = {"policy.safetensors": arrays, "policy.json": b""}
    if policy.spec.network in ACTIVATIONS:  # other networks are exported only as ONNX
        contents["policy.py"] = _PORTABLE.read_bytes()
    if not missing:
        contents["policy.onnx"] = model
    report = ExportReport(
        job_id=job.job_id,
        policy_version=checkpoint.run.policy_version,
        env=job.spec.environment_ref,
        environment=job.described_environment,
        policy=metadata,
        files=tuple(contents),
        checked_observations=0 if missing else NUM_CHECKED,
        largest_difference=difference,
        no_onnx=missing,
    )
    contents["policy.json"] = report.model_dump_json(indent=2).encode()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (out / name).write_bytes(content)
    except OSError as error:
        raise CommandError(f"--out: cannot write to {out}: {error}") from error
    return report


def _portable(metadata: Mapping[str, str], spec: PolicySpec) -> dict[str, str]:
    """Return a policy's metadata, with details that `policy.py` cannot derive from the name."""
    first = spec.blocks[0]
    if isinstance(first, Parts):
        images = [
            {
                "shape": shape,
                "layers": len(layers_of(network)),
                "convolutions": _convolutions(network),
            }
            for shape, network in zip(first.image_shapes, first.networks, strict=True)
        ]
        return {**metadata, "images": json.dumps(images)}
    found = _convolutions(spec.blocks)
    return {**metadata, "convolutions": json.dumps(found)} if found else {**metadata}


def _convolutions(blocks: Sequence[Block]) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """Return the stride and the padding of each convolution."""
    return [(each.stride, each.padding) for each in blocks if isinstance(each, Conv)]


def _check_fit(policy: NumpyPolicy, environment: EnvironmentSpec) -> None:
    action = environment.action
    if isinstance(action, ContinuousActionSpec):
        fits = policy.action_shape == (len(action.low),)
    else:
        choices = action.n if isinstance(action, DiscreteActionSpec) else action.num_choices
        fits = policy.distribution.num_choices == choices
    if not fits or policy.observation_shape != environment.observation.shape:
        raise CommandError(
            f"the policy does not fit the environment of its run, {environment.env_id}"
        )


def _onnx_file(payload: codec.Payload, environment: EnvironmentSpec) -> bytes:
    from nitro.runs.onnx_graph import policy_graph  # needs the package onnx

    model: bytes = policy_graph(
        payload.arrays,
        payload.metadata,
        observation=environment.observation,
        action=environment.action,
    ).SerializeToString()
    return model


def _largest_difference(
    model: bytes, policy: NumpyPolicy, environment: EnvironmentSpec, observation: NDArray[Any]
) -> float:
    """Return the largest difference between the two policies' actions.

    Raises:
        CommandError: The difference is too large.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    state = _state(policy, len(observation))
    given = {"observation": observation} | ({"state": state.copy()} if state.size else {})
    theirs, *left = session.run(None, given)
    clear = _clear(policy, observation, state.copy())
    ours: NDArray[np.generic] = policy.act(observation, state)
    if not isinstance(environment.action, ContinuousActionSpec):
        ours, theirs = ours[clear], theirs[clear]
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    allowed = TOLERANCE * np.maximum(1.0, np.abs(ours.astype(np.float64)))
    recalled = all(np.abs(each - state).max() <= TOLERANCE for each in left)
    if ours.shape != theirs.shape or not (difference <= allowed).all() or not recalled:
        raise CommandError(
            f"policy.onnx acts differently from the policy, by up to {difference.max():g}; nothing "
            "was written: please report this",
            exit_code=EXIT_FAILED,
        )
    return float(difference.max(initial=0.0))


def _observations(arrays: Mapping[str, codec.Array], environment: EnvironmentSpec) -> NDArray[Any]:
    """Return random observations # [256, *obs], with the spread of the training observations."""
    rng, spec = np.random.default_rng(0), environment.observation
    shape = (NUM_CHECKED, *spec.shape)
    z: NDArray[Any]
    if spec.dtype == "uint8":
        z = rng.integers(0, 256, shape, np.uint8)
    else:
        z = rng.standard_normal((NUM_CHECKED, spec.num_numbers))
        z *= rng.choice([0.1, 1.0, 10.0], (NUM_CHECKED, 1))
        if "observation_mean" in arrays:
            mean, scale = arrays["observation_mean"], arrays["observation_scale"]
            z = mean.astype(np.float64) + z / scale.astype(np.float64)
        pixels = rng.integers(0, 256, (NUM_CHECKED, math.prod(spec.shape) - spec.num_numbers))
        z = np.concatenate((pixels, z), axis=1, dtype=np.float32).reshape(shape)
    if size := environment.mask_size:
        z[:, -size:] = 1 - np.resize(np.eye(size), (NUM_CHECKED, size))  # one action forbidden
    return z


def _state(policy: NumpyPolicy, num_rows: int) -> NDArray[np.float32]:
    """Return random recurrent states # [N, S] of realistic size."""
    shape = policy.new_state(num_rows).shape
    return np.random.default_rng(1).uniform(-1.0, 1.0, shape).astype(np.float32)


def _clear(
    policy: NumpyPolicy, observation: NDArray[Any], state: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Return the rows without near ties # [N]."""
    outputs = policy.outputs(observation, state)
    choices = policy.distribution.num_choices
    sizes = choices if isinstance(choices, tuple) else (outputs.shape[1],)
    clear = np.ones(len(outputs), np.bool_)
    for logits in np.split(outputs, np.cumsum(sizes)[:-1], axis=1):
        best = np.sort(logits, axis=1)
        if best.shape[1] > 1:
            clear &= best[:, -1] - best[:, -2] > _NEAR_TIE
    return clear
