"""The specification of one training job.

It determines the outcome of a run, so two jobs with equal specifications train equal policies.
Defaults are the paper's settings (section 8.1) where it states them.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from shared.contracts.checkpoint_rules import CheckpointRule, InitialPolicy
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.episode_rules import EpisodeRule, EvaluationRule
from shared.contracts.job_rules import require_consistent
from shared.contracts.learner_functions import LearnerFunctions
from shared.contracts.learner_kind import PRESET_LEARNER, LearnerChoice
from shared.contracts.learner_task import DEPLOYMENTS_TASK, LearnerTask
from shared.contracts.message import (
    READ_BACK,
    Identifier,
)
from shared.contracts.scaling_spec import (
    ActorRange,
    FixedScaling,
    NitroScaling,
    OwnChoice,
    Scaling,
)
from shared.contracts.stop_rule import StopRule
from shared.hyperparameters.horizons import preset_horizon
from shared.hyperparameters.presets import ALGORITHMS, HyperparameterValue, Preset

Warm = Literal["auto", "provisioned", "reuse", "none"]
PRESET_WARM: dict[Preset, Warm] = {"paper": "provisioned", "standard": "auto"}
"""A preset's default of `warm`: the paper pays for provisioned environments (section 8.1)."""
PRESET_OWN: dict[Preset, OwnChoice] = {"paper": 0, "standard": "auto"}
"""A preset's default of `actors.own`: the paper has none."""
_RECURRENT = "recurrent"
MAX_ACTOR_STEPS = 65536
"""Most environment steps of an actor in a round."""
MAX_SEED = 2**31 - 1


def _require_algorithm(name: str) -> str:
    if name not in ALGORITHMS:
        raise ValueError(f"must be one of {', '.join(ALGORITHMS)}, got {name!r:.80}")
    return name


AlgorithmName = Annotated[
    str,
    AfterValidator(_require_algorithm),
    Field(json_schema_extra=lambda schema: schema.update(enum=[*ALGORITHMS])),
]


def _require_printable(name: str) -> str:
    if not name.isprintable() or name != name.strip():
        raise ValueError("must be printable, without spaces at its ends")
    return name


JobName = Annotated[str, Field(min_length=1, max_length=80), AfterValidator(_require_printable)]
Note = Annotated[str, Field(max_length=2000)]
TAG_FORM = r"^[A-Za-z0-9][A-Za-z0-9_.:=/-]{0,63}$"
Tag = Annotated[str, Field(pattern=TAG_FORM)]


class JobSpec(EnvironmentRef):
    """One training job."""

    name: JobName | None = None
    """A display name of up to 80 printable characters, without effect."""
    tags: Annotated[tuple[Tag, ...], Field(max_length=16)] = ()
    """Tags such as `sweep-1`: at most 16 of up to 64 characters each."""
    note: Note = ""
    """A note of at most 2,000 characters, without effect."""
    algorithm: AlgorithmName = "ppo"
    """How the policy is updated."""
    preset: Preset = "paper"
    """Hyper-parameters to start from: `paper`, or `standard` as in CleanRL."""
    hyperparameters: dict[Identifier, HyperparameterValue] = {}
    """Values that replace those of the preset."""
    seed: Annotated[int, Field(strict=True, ge=0, le=MAX_SEED)] = 0
    """Seed of all random numbers in the job."""
    steps_per_actor: Annotated[int, Field(strict=True, ge=1, le=MAX_ACTOR_STEPS)] = 256
    """Environment steps per actor and round, summed over its environments. ARS and ES play
    whole episodes: the scaler sets it to the most steps that these may have."""
    samples_per_round: Annotated[int, Field(strict=True, ge=1, le=2**24)] | None = None
    """Environment steps per round, shared equally by its actors; a remainder is dropped. A round
    with fewer actors than `actors.min` has fewer steps. An alternative to `steps_per_actor`, with
    which more actors bring more samples. PPO only.
    """
    envs_per_actor: Annotated[int, Field(strict=True, ge=1, le=64)] = 1
    """Environments per actor (B)."""
    rounds_in_flight: Annotated[int, Field(strict=True, ge=1, le=8)] = 2
    """Rounds open at a time, for all algorithms but PPO. 1 waits for each round, as PPO always
    does."""
    actors: ActorRange = ActorRange()
    scaling: Scaling = NitroScaling()
    """The rule for the number of actors in a round: a `policy` and its parameters."""
    warm: Warm | None = None
    """How environments are kept warm. `provisioned`: AWS keeps as many as a round can need, at a
    price by the second. `reuse`: environments of earlier rounds, pinged when idle. `none`: the same
    without pings. `auto`: `reuse`, until the job's rounds show that `provisioned` costs less.
    Unset: the preset's, see `nitro presets`.
    """
    learner: LearnerChoice | None = None
    """Kind of learner. `gpu`: the first GPU machine of the deployment's list. `cpu`: a Fargate task
    of a few cores, at a tenth of the price. `functions`: a `cpu` learner whose gradients Lambda
    functions compute; see `learner_functions`. `auto`: `gpu` for images, otherwise `cpu`.
    `external`: your own program with `nitro.ActorPool`, neither started nor billed. Unset: the
    preset's, see `nitro presets`. On one machine `gpu` and `cpu` differ only in the bill.
    """
    policy_precision: Literal["float32", "float16"] = "float32"
    """Precision of the policy's weights for actors. `float16` halves the download; actors act with
    rounded weights. Ignored for `external`.
    """
    learner_functions: LearnerFunctions = LearnerFunctions()
    """Learner functions, for `learner: functions`."""
    learner_task: LearnerTask = DEPLOYMENTS_TASK
    """Size of a CPU learner's task on AWS, and whether it may run on Spot. Unset fields use the
    deployment's values; on one machine it changes only the bill.
    """
    init_from: InitialPolicy | None = None
    """An earlier job's policy to start from; unset: random weights. Its statistics of observations
    and rewards are loaded, too. Step-size schedules are those of a new job.
    """
    stop: StopRule = StopRule()
    episodes: EpisodeRule = EpisodeRule()
    evaluation: EvaluationRule = EvaluationRule()
    checkpoint: CheckpointRule = CheckpointRule()
    detector: DetectorRule = DetectorRule()

    @model_validator(mode="before")
    @classmethod
    def _scaled_without_measuring(cls, raw: object) -> object:
        """Default to a constant number of actors, inside the range, if nothing is measured."""
        if not isinstance(raw, dict) or "scaling" in raw:
            return raw
        algorithm = ALGORITHMS.get(str(raw.get("algorithm")))
        changed = raw.get("hyperparameters")
        recurrent = isinstance(changed, dict) and changed.get(_RECURRENT, "none") != "none"
        if not recurrent and (algorithm is None or algorithm.objectives):
            return raw
        fixed = FixedScaling(policy="fixed")
        try:
            number = ActorRange.model_validate(raw.get("actors", {})).clip(fixed.num_actors)
        except ValidationError:  # it is reported as the range's own
            number = fixed.num_actors
        return {**raw, "scaling": {"policy": "fixed", "num_actors": number}}

    @field_validator("hyperparameters")
    @classmethod
    def _known_hyperparameters(
        cls, overrides: dict[str, HyperparameterValue], info: ValidationInfo
    ) -> dict[str, HyperparameterValue]:
        # Admission checks them against the preset. Presets change, and older jobs must stay
        # readable.
        if "algorithm" in info.data:
            kind = ALGORITHMS[info.data["algorithm"]].model
            cells = overrides.get(_RECURRENT, "none")
            if cells != "none" and _RECURRENT not in kind.model_fields:
                names = (
                    name for name, of in ALGORITHMS.items() if _RECURRENT in of.model.model_fields
                )
                raise ValueError(
                    f"recurrent is not for {info.data['algorithm']}: use one of {', '.join(names)}"
                )
            kind.model_validate(overrides, extra="ignore" if info.context == READ_BACK else None)
        return overrides

    @property
    def environment_ref(self) -> EnvironmentRef:
        """The environment alone, as in tasks."""
        # Newer rules must not keep an older job's actors from starting.
        return EnvironmentRef.model_validate(
            {name: getattr(self, name) for name in EnvironmentRef.model_fields}, context=READ_BACK
        )

    def resolved(self) -> Self:
        """Return the job with its preset's defaults, except for hyper-parameters.

        These are its training horizon, its learner, its own actors, and `warm`.
        """
        horizon = self.episodes.horizon
        if horizon is None:
            horizon = preset_horizon(self.preset, self.env_id, self.algorithm)
        own = PRESET_OWN[self.preset] if self.actors.own is None else self.actors.own
        usual = "cpu" if self.searches else PRESET_LEARNER[self.preset]
        return self.model_copy(
            update={
                "actors": self.actors.model_copy(update={"own": own}),
                "episodes": self.episodes.model_copy(update={"horizon": horizon}),
                "warm": self.warm or PRESET_WARM[self.preset],
                "learner": self.learner or usual,
            }
        )

    @property
    def provisions(self) -> bool:
        """Whether its environments are always provisioned, like those of older jobs."""
        return self.warm in (None, "provisioned")

    @property
    def is_recurrent(self) -> bool:
        """Whether its policy remembers: no preset's does."""
        return self.hyperparameters.get(_RECURRENT, "none") != "none"

    @property
    def learns_on_functions(self) -> bool:
        """Whether functions compute its gradients."""
        return self.learner == "functions"

    @property
    def searches(self) -> bool:
        """Whether its actors play whole episodes of perturbed policies."""
        return ALGORITHMS[self.algorithm].searches

    @property
    def open_rounds(self) -> int:
        """Number of rounds that the job keeps open at a time."""
        return 1 if ALGORITHMS[self.algorithm].on_policy else self.rounds_in_flight

    @property
    def learns_in_order(self) -> bool:
        """Whether it learns from whole rounds, one after the other.

        Equal seeds then give equal weights: the order of arrival has no effect, and what vanishes
        is launched again. IMPACT and IMPALA do not if their rounds overlap: they take as many
        gradient steps as the wait for actors leaves time for.
        """
        return self.open_rounds == 1 or ALGORITHMS[self.algorithm].replays

    @property
    def size_field(self) -> str:
        """The field that sets the steps of a round."""
        return "steps_per_actor" if self.samples_per_round is None else "samples_per_round"

    def steps_of(self, num_actors: int) -> int:
        """Return the environment steps of each actor in a round with this many actors.

        If concurrency allows fewer than `actors.min`, the round has fewer samples.
        """
        if self.samples_per_round is None:
            return self.steps_per_actor
        shared_by = max(self.actors.min, num_actors) * self.envs_per_actor
        return self.samples_per_round // shared_by * self.envs_per_actor

    def rounds_behind(self, round_index: int) -> int:
        """Return the number of rounds that the policy of a round has learned from.

        A round opens with the current policy, when the round `open_rounds` before it ends.
        """
        return max(0, round_index + 1 - self.open_rounds)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_consistent(self)
        return self
