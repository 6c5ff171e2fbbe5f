"""What a learner says where it cannot begin with another job's checkpoint."""

from pathlib import Path

import pytest

from learning.algorithms.ppo import Ppo
from services.learner.record.checkpoint import CheckpointError
from services.learner.record.initial import begin_from
from shared.artifacts.local import LocalArtifacts
from shared.artifacts.store import JOB_FILE
from shared.contracts.checkpoint_rules import InitialPolicy
from shared.hyperparameters.ppo import PpoHyperparameters
from tests.services.scaler.lambda_endpoint import HOPPER


@pytest.mark.parametrize(
    ("text", "why"), [(b'{"cut', "EOF while parsing"), (b"{}", "job_id: Field required")]
)
def test_a_damaged_job_file_is_told_with_what_to_do(tmp_path: Path, text: bytes, why: str) -> None:
    files = LocalArtifacts(tmp_path)
    files.write("earlier", JOB_FILE, text)
    algorithm = Ppo(HOPPER, PpoHyperparameters(), seed=0)
    with pytest.raises(CheckpointError, match=f"init_from.job_id: .*{why}.*name another job"):
        begin_from(algorithm, files, InitialPolicy(job_id="earlier", checkpoint="best"))
