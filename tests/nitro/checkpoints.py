"""Runs that are nothing but a job and the checkpoint of a policy, for what reads those."""

from pathlib import Path

import numpy as np

from services.learner.record.checkpoint import Checkpoint, CheckpointStore, RunState
from shared.artifacts.local import LocalArtifacts
from shared.contracts.environment_ref import EnvKwarg
from shared.contracts.environment_spec import EnvironmentSpec
from shared.policy.spec import POLICY_FORMAT
from shared.trajectory import codec
from tests.nitro.synthetic_run import JOB_ID, job

LEFT, RIGHT = 0, 1


def stubborn_policy(action: int) -> bytes:
    """A network that always prefers one of two actions."""
    bias = np.zeros(2, np.float32)
    bias[action] = 1.0
    return codec.encode(
        {"policy.0.weight": np.zeros((2, 4), np.float32), "policy.0.bias": bias},
        {
            "format": POLICY_FORMAT,
            "network": "mlp",
            "activation": "tanh",
            "distribution": "categorical",
            "log_std": "none",
        },
    )


def still_policy() -> bytes:
    """Four numbers in, one continuous action out: always 0."""
    return codec.encode(
        {
            "policy.0.weight": np.zeros((1, 4), np.float32),
            "policy.0.bias": np.zeros(1, np.float32),
            "log_std": np.zeros(1, np.float32),
        },
        {
            "format": POLICY_FORMAT,
            "network": "mlp",
            "activation": "tanh",
            "distribution": "gaussian",
            "log_std": "free",
        },
    )


def write_checkpoint(
    runs_dir: Path,
    *,
    next_round: int,
    policy: bytes,
    env_id: str = "CartPole-v1",
    env_kwargs: dict[str, EnvKwarg] | None = None,
    environment: EnvironmentSpec | None = None,
) -> Path:
    """Write a run with one checkpoint; return its folder."""
    folder = runs_dir / JOB_ID
    folder.mkdir(exist_ok=True)
    spec = job().spec.model_copy(update={"env_id": env_id, "env_kwargs": env_kwargs or {}})
    written = job(spec=spec, environment=environment or job().environment)
    (folder / "job.json").write_text(written.model_dump_json())
    CheckpointStore(LocalArtifacts(runs_dir), JOB_ID, keep=3).save(
        Checkpoint(
            run=RunState(
                next_round=next_round, policy_version=next_round, curvature=None, previous=None
            ),
            arrays={},
            scalars={},
            policy=policy,
        )
    )
    return folder
