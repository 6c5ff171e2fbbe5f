"""Jobs as the API shows them, and what a user may ask of one."""

from typing import Literal

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import GoingOn, going_on, longest_replay
from shared.contracts.job_spec import JobSpec, Note, RoundLimit
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
from shared.hyperparameters.common import Hyperparameters
from shared.hyperparameters.presets import ALGORITHMS, HyperparameterValue, resolve

StopReason = Literal[
    "max_rounds",
    "target_return",
    "budget",
    "max_wall",
    "user",
    "error",
    "refused",
    "client_gone",
]
"""`client_gone`: the program that learned for an `external` job fell silent."""

JobStatus = Literal["checking", "queued", "running", "stopping", "succeeded", "stopped", "failed"]
"""`checking`: an actor has yet to describe the environment; it then is `queued`, or refused."""

_IMAGES_EVERY_ROUNDS = 4
"""Rounds of preset `standard` from one measurement to the next with images: a third of the time on
a CPU."""

FINISHED: frozenset[JobStatus] = frozenset({"succeeded", "stopped", "failed"})


class JobProgress(Message):
    """How far a job is."""

    rounds: Count = 0
    env_steps: Count = 0
    last_return: Number | None = None
    """Mean of the latest evaluation."""
    best_return: Number | None = None
    lost_replays: Count = 0
    """Episodes that began anew, as repeating their actions gave another episode."""


class ScalingSwitch(Message):
    """A change of a running job's scaling policy."""

    round: Count
    """First round decided by it."""
    at: Number
    """When its user asked for it."""
    scaling: Scaling


class Wait(Message):
    """What a job waits for before it goes on."""

    reason: str
    until: NonNegativeFloat | None = None
    """When it goes on at the latest, in Unix seconds; None where nobody can say."""


class Schedule(Message):
    """The rounds over which a step size decays, if it does."""

    first: Count = 0
    """The round with the whole step size."""
    end: PositiveInt
    """The round in which nothing would be left of it. From the one before on, it stays."""


class Job(Message):
    """A job as the API shows it."""

    job_id: JobId
    spec: JobSpec
    environment: EnvironmentSpec | None = None
    """None until an actor has described it, and for good in a job refused before that."""
    learner: LearnerKind = "gpu"
    """What trains it, and what it is billed for. Until an actor has described the environment, that
    is what the job has at least. Jobs from before there was a choice have a GPU."""
    status: JobStatus
    stop_reason: StopReason | None = None
    error: str | None = None
    """Why it failed, or was refused: then one `field: message` a line."""
    fails_again: bool = False
    """Whether it would fail in the same way if it were resumed as it is: the error is to be mended
    first."""
    created_at: Number
    """Unix seconds, like every `_at` field."""
    started_at: Number | None = None
    finished_at: Number | None = None
    progress: JobProgress = JobProgress()
    waits_for: Wait | None = None
    """Set where it cannot go on at once after a restart."""
    warnings: tuple[str, ...] = ()
    """What will make it slow, as far as that was known when it was queued."""
    spent_usd: NonNegativeFloat = 0.0
    switches: tuple[ScalingSwitch, ...] = ()
    """Changes of the scaling policy, in order of their rounds; `spec.scaling` is the first one."""
    schedule: Schedule | None = None
    """Over which rounds its step size decays; None: over `spec.stop.max_rounds`."""
    full_hyperparameters: dict[str, HyperparameterValue] = {}
    """The full set the job trains with, resolved when it was submitted: a preset may be another one
    by the time the job is resumed. Empty in jobs from before this was kept."""

    @property
    def decay(self) -> Schedule:
        """Over which rounds its step size decays, if it does."""
        return self.schedule or Schedule(end=self.spec.stop.max_rounds)

    def scaling_of(self, round_index: int) -> Policy:
        """Return the scaling policy in force in a round."""
        in_force = [s.scaling for s in self.switches if s.round <= round_index]
        return in_force[-1] if in_force else self.spec.scaling

    def switched_from(self, round_index: int) -> str:
        """Return the name of the policy before, if a round is the first under another one."""
        changed = any(switch.round == round_index for switch in self.switches)
        return self.scaling_of(round_index - 1).policy if changed else ""

    @property
    def measures_every_rounds(self) -> int:
        """How many rounds there are from one measurement of the policy to the next."""
        chosen = self.spec.detector.every_rounds
        if chosen is not None:
            return chosen
        images = self.described_environment.observation.is_image
        return _IMAGES_EVERY_ROUNDS if images and self.spec.preset == "standard" else 1

    @property
    def episodes_go_on(self) -> GoingOn:
        """How an episode that a fragment's end cuts off goes on in a later round."""
        lost = self.progress.lost_replays
        return going_on(self.spec, self.described_environment, lost_replays=lost)

    @property
    def continues_episodes(self) -> bool:
        """Whether it does."""
        return self.episodes_go_on != "no"

    @property
    def replay_steps(self) -> int:
        """Longest episode, in steps, that goes on after its actions were repeated; 0 for none."""
        if self.episodes_go_on != "replay":
            return 0
        return longest_replay(self.spec, self.described_environment)

    @property
    def described_environment(self) -> EnvironmentSpec:
        """The environment of a job that was admitted.

        Raises:
            ValueError: It was not.
        """
        if self.environment is None:
            raise ValueError(f"job {self.job_id} is {self.status}: its environment is not known")
        return self.environment

    @property
    def can_go_on(self) -> bool:
        """Whether it has ended short of its target: then it can be resumed."""
        if self.status != "succeeded":
            return self.status in ("stopped", "failed")
        target, last = self.spec.stop.target_return, self.progress.last_return
        reached = target is not None and last is not None and last >= target
        return self.stop_reason == "max_rounds" and not reached

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The full set the job trains with."""
        if self.full_hyperparameters:
            # Kept, and maybe by a newer version: it may have names that this one does not know.
            kind = ALGORITHMS[self.spec.algorithm].model
            return kind.model_validate(self.full_hyperparameters, extra="ignore")
        return resolve_for(self.spec, self.described_environment)


def resolve_for(spec: JobSpec, environment: EnvironmentSpec) -> Hyperparameters:
    """Return the full set of hyper-parameters a new job would train with.

    Raises:
        pydantic.ValidationError: The job's values do not go together with its preset's.
    """
    return resolve(
        spec.algorithm,
        spec.preset,
        spec.hyperparameters,
        images=environment.observation.is_image,
    )


class NoteRequest(Message):
    """Replace a job's note."""

    note: Note
    """The new text; an empty one removes the note."""


class ScalingRequest(Message):
    """Decide a job's rounds by another scaling policy, from the next round on."""

    scaling: Scaling
    """The policy; `fixed` pins a number of actors."""


class ResumeRequest(Message):
    """Continue a job that was stopped, failed or made all its rounds."""

    budget_usd: PositiveFloat | None = None
    """Raises the job's budget; None keeps it."""
    max_rounds: RoundLimit | None = None
    """Raises the job's number of rounds; None keeps it."""
    max_wall_s: PositiveFloat | None = None
    """Raises the job's wall time; None keeps it."""
    fresh_schedule: bool = False
    """Begins a new schedule of the step size, over the rounds that are left. Without it the
    schedule stays as it was, and further rounds have the step size of the last one."""
    from_scratch: bool = False
    """Makes all rounds again, and pays for them again, where the checkpoints are gone; without it
    such a job is not resumed."""
