"""A run's checkpoints on this machine, and the policies in them."""

from collections.abc import Iterator
from pathlib import Path

from nitro.errors import CommandError
from nitro.runs.reading import Run, read_job, read_run
from services.learner.record.best import evaluated_checkpoint
from services.learner.record.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from shared.artifacts.local import LocalArtifacts
from shared.contracts.checkpoint_rules import Which
from shared.contracts.jobs import Job
from shared.policy.head import PolicyError
from shared.policy.numpy_policy import NumpyPolicy, load_policy, with_actions
from shared.policy.observation_parts import with_parts
from shared.trajectory import codec


def read_policy(folder: Path, which: Which | None = None) -> tuple[int, NumpyPolicy]:
    """Return the policy of one of a run's checkpoints, and its number of updates.

    It knows its environment's actions: `policy.act(observation)` returns what `env.step` takes.

    Raises:
        CommandError: There is no such checkpoint, or it is damaged.
    """
    environment = read_job(folder).described_environment
    checkpoint = read_checkpoint(folder, which)
    try:
        payload = codec.decode(checkpoint.policy)
        metadata = with_actions(payload.metadata, environment.action)
        policy = load_policy(payload.arrays, with_parts(metadata, environment.observation))
    except (codec.CodecError, PolicyError) as error:
        raise CommandError(f"{folder}: the checkpoint's policy: {error}") from error
    return checkpoint.run.policy_version, policy


def usual_checkpoint(job: Job) -> Which:
    """Return the default checkpoint: the best if a job ended at its target, otherwise the newest.

    With overlapping rounds, the newest was updated after the evaluation that reached the target.
    """
    return "best" if job.stop_reason == "target_return" else "newest"


def read_checkpoint(folder: Path, which: Which | None = None) -> Checkpoint:
    """Return one of a run's checkpoints; None selects the default.

    Raises:
        CommandError: There is no such checkpoint, or it is damaged.
    """
    wanted = which or usual_checkpoint(read_job(folder))
    absolute = folder.absolute()
    store = CheckpointStore(LocalArtifacts(absolute.parent), absolute.name, keep=1)
    try:
        checkpoint = None if wanted == "newest" else _best(store, read_run(folder))
        if which != "best" and checkpoint is None:
            checkpoint = store.latest()
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    if checkpoint is None and which == "best":
        raise CommandError(
            f"{folder}: no checkpoint was evaluated, so none is the best: use the newest, or train "
            "with evaluation.every_rounds above 0"
        )
    if checkpoint is None:
        raise CommandError(f"{folder}: no checkpoint yet; the first comes after the first round")
    return checkpoint


def _best(store: CheckpointStore, run: Run) -> Checkpoint | None:
    return next(filter(None, map(store.at, _evaluated_rounds(run))), None)


def _evaluated_rounds(run: Run) -> Iterator[int]:
    """Yield the rounds of evaluated checkpoints, best first.

    Learners of earlier versions kept only the newest, so the best may be missing.
    """
    lines = (evaluated_checkpoint(line, run.job.spec) for line in run.rounds)
    for found in sorted(filter(None, lines), reverse=True):
        yield found.next_round
