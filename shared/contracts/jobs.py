"""Jobs in the API, and requests about them."""

from typing import Literal

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import GoingOn, going_on, longest_replay
from shared.contracts.job_spec import JobSpec, Note
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.message import (
    Count,
    JobId,
    Message,
    NonNegativeFloat,
    Number,
    PositiveFloat,
    PositiveInt,
)
from shared.contracts.scaling_spec import Policy, Scaling
from shared.contracts.stop_rule import RoundLimit
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.presets import ALGORITHMS, HyperparameterValue, resolve

StopReason = Literal[
    "max_rounds",
    "max_env_steps",
    "target_return",
    "budget",
    "max_wall",
    "user",
    "error",
    "refused",
    "client_gone",
]
"""`client_gone`: the program of an `external` job went silent."""

JobStatus = Literal["checking", "queued", "running", "stopping", "succeeded", "stopped", "failed"]
"""`checking`: an actor has yet to describe the environment; the job is then queued or refused."""

_IMAGES_EVERY_ROUNDS = 4
"""Interval of measurements with images in preset `standard`: a third of the time on a CPU."""

FINISHED: frozenset[JobStatus] = frozenset({"succeeded", "stopped", "failed"})


class JobProgress(Message):
    """A job's progress."""

    rounds: Count = 0
    env_steps: Count = 0
    last_return: Number | None = None
    """Mean of the latest evaluation."""
    best_return: Number | None = None
    lost_replays: Count = 0
    """Episodes that started over because repeating their actions gave another episode."""


class ScalingSwitch(Message):
    """A change of a running job's scaling policy."""

    round: Count
    """The first round under it."""
    at: Number
    """Time of the request."""
    scaling: Scaling


class Wait(Message):
    """The reason why a job waits."""

    reason: str
    until: NonNegativeFloat | None = None
    """Latest end of the wait, in Unix seconds; None if unknown."""


class Schedule(Message):
    """The rounds over which a step size decays, if it does."""

    first: Count = 0
    """The round with the full step size."""
    end: PositiveInt
    """The round in which it would reach 0. It stays constant from the round before."""


class Job(Message):
    """A job in the API."""

    job_id: JobId
    spec: JobSpec
    environment: EnvironmentSpec | None = None
    """None until an actor has described it; a job refused before that stays without one."""
    learner: LearnerKind = "gpu"
    """The learner that trains it and appears in its bill. Until an actor has described the
    environment, it is the minimum. Jobs of older versions have a GPU.
    """
    status: JobStatus
    stop_reason: StopReason | None = None
    error: str | None = None
    """Why it failed or was refused; a refusal has one `field: message` per line."""
    fails_again: bool = False
    """Whether a resume would fail in the same way until the error is fixed."""
    created_at: Number
    """Unix seconds, like every `_at` field."""
    started_at: Number | None = None
    finished_at: Number | None = None
    progress: JobProgress = JobProgress()
    waits_for: Wait | None = None
    """Set if it has to wait, for example after a restart."""
    warnings: tuple[str, ...] = ()
    """Expected causes of slowness, known when it was queued."""
    spent_usd: NonNegativeFloat = 0.0
    switches: tuple[ScalingSwitch, ...] = ()
    """Changes of the scaling policy, in order of their rounds; `spec.scaling` is the first one."""
    schedule: Schedule | None = None
    """The rounds over which its step size decays; None: `spec.stop.max_rounds`."""
    full_hyperparameters: dict[str, HyperparameterValue] = {}
    """The full set of hyper-parameters, resolved at submission, because a preset may change before
    a resume. Empty in jobs of older versions.
    """

    @property
    def decay(self) -> Schedule:
        """The rounds over which its step size decays, if it does."""
        return self.schedule or Schedule(end=self.spec.stop.max_rounds)

    def scaling_of(self, round_index: int) -> Policy:
        """Return the scaling policy of a round."""
        in_force = [s.scaling for s in self.switches if s.round <= round_index]
        return in_force[-1] if in_force else self.spec.scaling

    def switched_from(self, round_index: int) -> str:
        """Return the name of the previous policy if a round is the first under a new one."""
        changed = any(switch.round == round_index for switch in self.switches)
        return self.scaling_of(round_index - 1).policy if changed else ""

    @property
    def measures_every_rounds(self) -> int:
        """Interval between measurements of the policy, in rounds."""
        chosen = self.spec.detector.every_rounds
        if chosen is not None:
            return chosen
        images = self.described_environment.observation.has_images
        return _IMAGES_EVERY_ROUNDS if images and self.spec.preset == "standard" else 1

    @property
    def episodes_go_on(self) -> GoingOn:
        """How an unfinished episode continues in a later round."""
        lost = self.progress.lost_replays
        return going_on(self.spec, self.described_environment, lost_replays=lost)

    @property
    def continues_episodes(self) -> bool:
        """Whether an unfinished episode continues in a later round."""
        return self.episodes_go_on != "no"

    @property
    def replay_steps(self) -> int:
        """Longest episode, in steps, that continues by repeating its actions; 0 for none."""
        if self.episodes_go_on != "replay":
            return 0
        return longest_replay(self.spec, self.described_environment)

    @property
    def described_environment(self) -> EnvironmentSpec:
        """The environment of an admitted job.

        Raises:
            ValueError: The job was not admitted.
        """
        if self.environment is None:
            raise ValueError(f"job {self.job_id} is {self.status}: its environment is not known")
        return self.environment

    @property
    def can_go_on(self) -> bool:
        """Whether it ended before its target, so that it can be resumed."""
        if self.status != "succeeded":
            return self.status in ("stopped", "failed")
        target, last = self.spec.stop.target_return, self.progress.last_return
        reached = target is not None and last is not None and last >= target
        return self.stop_reason in ("max_rounds", "max_env_steps") and not reached

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The full set of hyper-parameters."""
        if self.full_hyperparameters:
            # A newer version may have stored it, with names that this version does not know.
            kind = ALGORITHMS[self.spec.algorithm].model
            return kind.model_validate(self.full_hyperparameters, extra="ignore")
        return resolve_for(self.spec, self.described_environment)


def resolve_for(spec: JobSpec, environment: EnvironmentSpec) -> Hyperparameters:
    """Return the full set of hyper-parameters of a new job.

    Raises:
        pydantic.ValidationError: The job's values conflict with its preset's.
    """
    return resolve(
        spec.algorithm,
        spec.preset,
        spec.hyperparameters,
        images=environment.observation.has_images,
    )


class NoteRequest(Message):
    """Replace a job's note."""

    note: Note
    """The new text; an empty one removes the note."""


class ScalingRequest(Message):
    """Switch a job's scaling policy from the next round on."""

    scaling: Scaling
    """The policy; `fixed` pins a number of actors."""


class ResumeRequest(Message):
    """Continue a stopped, failed or finished job."""

    budget_usd: PositiveFloat | None = None
    """Raises the job's budget; None keeps it."""
    max_rounds: RoundLimit | None = None
    """Raises the job's number of rounds; None keeps it."""
    max_env_steps: PositiveInt | None = None
    """Raises the job's number of environment steps; None keeps it."""
    max_wall_s: PositiveFloat | None = None
    """Raises the job's wall time; None keeps it."""
    fresh_schedule: bool = False
    """Restarts the step-size schedule over the remaining rounds. Otherwise further rounds keep the
    step size of the last round.
    """
    from_scratch: bool = False
    """Repeats and bills all rounds again if the checkpoints are gone; otherwise such a job is not
    resumed.
    """
