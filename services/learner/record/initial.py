"""The checkpoint of an earlier job from which a new job starts."""

from pydantic import ValidationError

from learning.algorithms.algorithm import Algorithm
from services.learner.record.best import evaluated_checkpoint
from services.learner.record.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from services.learner.record.run_record import read_lines
from shared.artifacts.store import JOB_FILE, ArtifactStore
from shared.contracts.checkpoint_rules import InitialPolicy
from shared.contracts.field_errors import first_reason
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job


def begin_from(algorithm: Algorithm, artifacts: ArtifactStore, wanted: InitialPolicy) -> None:
    """Load the weights and statistics of the requested checkpoint.

    Raises:
        CheckpointError: There is none, it is damaged, or it does not fit.
    """
    found = _checkpoint(artifacts, wanted)
    try:
        algorithm.begin_from(found.arrays, found.scalars, optimiser=wanted.optimiser)
    except ValueError as error:
        raise CheckpointError(f"init_from does not fit this job: {error}") from error


def _checkpoint(artifacts: ArtifactStore, wanted: InitialPolicy) -> Checkpoint:
    job_id = wanted.job_id
    checkpoints = CheckpointStore(artifacts, job_id, keep=1)
    job = artifacts.read(job_id, JOB_FILE)
    found = None
    if wanted.checkpoint == "newest":
        found = checkpoints.latest()
    elif job is not None:
        try:
            spec = Job.read(job).spec
        except ValidationError as error:
            raise CheckpointError(
                f"init_from.job_id: {job_id}: its {JOB_FILE} cannot be read: "
                f"{first_reason(error)}; restore it or name another job"
            ) from error
        found = _best(artifacts, checkpoints, job_id, spec)
    if found is None:
        raise CheckpointError(
            f"init_from: there is no {wanted.checkpoint} checkpoint of {job_id} at "
            f"{artifacts.locate(job_id)}"
        )
    return found


def _best(
    artifacts: ArtifactStore, checkpoints: CheckpointStore, job_id: str, spec: JobSpec
) -> Checkpoint | None:
    lines = (evaluated_checkpoint(line, spec) for line in read_lines(artifacts, job_id))
    evaluated = sorted(filter(None, lines), reverse=True)
    return next(filter(None, (checkpoints.at(each.next_round) for each in evaluated)), None)
