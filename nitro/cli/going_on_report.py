"""The report of `nitro check-env`: what is seen, how episodes continue, why, and a job's use."""

from dataclasses import asdict, dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.going_on import (
    SHARED_GENERATORS,
    disturbed,
    going_on,
    longest_episode,
    longest_replay,
    resized,
)
from shared.contracts.job_spec import JobSpec
from shared.environments.state.compliance import Compliance
from shared.environments.state.repeating import Repetition

_IN_TRAINING = (
    "Training drops such an episode and samples its steps again; a job fails if too many break"
)

How = Literal["kept", "replayed", "alive only", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingOnReport:
    """The result of the check."""

    environment: EnvironmentSpec
    job: JobSpec
    """The job in question, as it would be queued."""
    saved: Compliance
    repeated: Repetition | None
    """None if the state can be saved, so nothing needs repeating."""
    seen: str
    """An observation as a policy sees it."""

    @property
    def how(self) -> How:
        """How episodes can continue."""
        if self.repeated is None:
            return "kept" if self.saved.why_not is None else "none"
        if self.repeated.failed:
            return "none"
        return "alive only" if self.repeated.repeats == "never" else "replayed"

    @property
    def goes_on(self) -> bool:
        """Whether they can continue in any process."""
        return self.how in ("kept", "replayed")

    @property
    def why(self) -> str:
        """The reason in plain words."""
        repeated, why_not = self.repeated, self.saved.why_not
        if repeated is None and why_not is None:
            return "yes, bit for bit, from a saved state"
        if repeated is None:
            return f"no: {why_not}. Fix get_state and set_state, or remove them"
        if self.how == "replayed":
            anew = ", in newly built environments" if repeated.why_not else ""
            because = f", and {repeated.why_not}" if repeated.why_not else ""
            return f"yes, bit for bit, by repeating their actions{anew}: {why_not}{because}"
        if self.how == "alive only":
            return (
                f"only in the process that has the environment: {why_not}, and {repeated.why_not}"
            )
        return f"no: {why_not}, and {repeated.why_not}"

    @property
    def not_finite(self) -> str | None:
        """The first step with an infinite or NaN number, and what training does about it."""
        found = self.saved.not_finite or (self.repeated.not_finite if self.repeated else None)
        return None if found is None else f"{found}. {_IN_TRAINING}"

    @property
    def what_a_job_does(self) -> str:
        """The fate of an episode at the end of a fragment."""
        spec, environment = self.job, self.environment
        how, longest = going_on(spec, environment), longest_episode(spec, environment)
        steps = spec.steps_of(spec.actors.max)
        if how == "state":
            return "episodes continue from their saved states"
        if how == "replay":
            repeated = longest_replay(spec, environment)
            if longest is not None and longest <= repeated:
                return f"episodes continue: an actor repeats an episode's steps, up to {longest:,}"
            return f"episodes of up to {repeated:,} steps continue, longer ones start over"
        fragment = f"fragments of {steps:,} steps begin with a reset"
        if disturbed(spec, environment):
            fragment = f"{fragment} ({SHARED_GENERATORS}: set envs_per_actor to 1)"
        if not spec.episodes.go_on:
            return f"{fragment}, as episodes.horizon says"
        if longest is not None and longest <= steps // spec.envs_per_actor:
            return f"{fragment}, and hold whole episodes: {spec.actors.max} actors in a round"
        return f"{fragment}; later steps of an episode are never learned from"

    @property
    def cost(self) -> str:
        """The cost of repeating."""
        if self.repeated is None or self.how != "replayed":
            return ""
        step_s, longest = self.repeated.step_s, longest_episode(self.job, self.environment)
        place = (longest or longest_replay(self.job, self.environment)) // 2
        steps = self.job.steps_of(self.job.actors.max) // self.job.envs_per_actor
        return (
            f"{_time(place * step_s)} to repeat {place:,} steps, compared with "
            f"{_time(steps * step_s)} of simulation for {steps:,} new steps; nothing if the "
            "process still has the environment"
        )

    def as_json(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            "env_id": self.environment.env_id,
            "seen": self.seen,
            "how": self.how,
            "why": self.why,
            "job": self.what_a_job_does,
            **asdict(self.saved),
            "not_finite": self.not_finite,
            "repeated": None if self.repeated is None else asdict(self.repeated),
        }

    def table(self) -> Table:
        """Format it for people."""
        table = Table(show_header=False, title=self.environment.env_id, title_justify="left")
        rows = {
            "a policy sees": self.seen,
            "not finite": self.not_finite or "",
            "episodes are": self.how,
            "they go on": self.why,
            "a job": self.what_a_job_does,
            "cost": self.cost,
            **_of_saved(self.saved),
        }
        if self.repeated is not None and self.repeated.num_steps:
            rows["compared"] = f"{self.repeated.num_steps} steps"
        for name, value in rows.items():
            if value:
                table.add_row(name, Text(value))
        return table


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"


def _of_saved(found: Compliance) -> dict[str, str]:
    rows = {}
    if found.num_steps:
        at_ends = f"{found.num_left_at_ends} at the end of an episode"
        rows["compared"] = f"{found.num_steps} steps, {found.num_ends} ends of episodes"
        rows["left and resumed"] = f"{found.num_left} times, {at_ends}"
        rows["size"] = f"at most {found.snapshot_bytes} bytes"
        rows["time"] = (
            f"{found.leave_s * 1e3:.2f} ms to leave, {found.take_up_s * 1e3:.2f} ms to resume; a "
            f"step takes {found.step_s * 1e3:.3f} ms"
        )
    if found.num_not_left:
        rows["not left"] = f"at {found.num_not_left} moments at which the simulator cannot be saved"
    return rows


def queued(job: JobSpec, environment: EnvironmentSpec) -> JobSpec:
    """Return a job as it would be queued."""
    return resized(job.resolved(), environment)
