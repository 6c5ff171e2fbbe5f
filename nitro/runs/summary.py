"""A run's results in numbers, for the table at the end and for `--json`."""

import json
import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from nitro.hints import Place, near
from nitro.tables import facts_table
from shared.contracts.billing import JobCost, ServerfulCost
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobStatus, StopReason, Wait
from shared.contracts.rounds import RoundRecord
from shared.contracts.stop_rule import MAX_ROUNDS, StopRule
from shared.hyperparameters.presets import ALGORITHMS

_BROKEN = "were dropped and sampled again: an observation or a reward was not finite"
_NO_EVALUATION = "evaluation left out"
"""Part of a plan's reasons."""
_LEFT_OUT = "evaluations were skipped for lack of budget: raise --budget-usd"
_ANEW = "should have continued but started over: see the actors' logs"
_OTHERS = "were repeated and gave other observations: the environment is not deterministic"


class Projection(BaseModel):
    """The same run on AWS."""

    model_config = ConfigDict(frozen=True)

    wall_s: float
    cost_usd: float


class OnServers(Projection):
    """The same run on two always-on servers."""

    machines: str


class Summary(BaseModel):
    """One run; the fields are the keys of `--json`."""

    model_config = ConfigDict(frozen=True)

    job_id: str
    status: JobStatus
    stop_reason: StopReason | None
    stop_explanation: str | None
    """The stop reason in words, from the last plan; None if the job ended without a plan."""
    rounds: int
    env_steps: int
    first_return: float | None
    """Mean of the first evaluation; None without evaluations."""
    final_return: float | None
    best_return: float | None
    wall_s: float
    """Time of its rounds, each counted once: without the time between a stop and a resume, the
    system's start and the final evaluation."""
    projected: Projection
    serverful: list[OnServers]
    best_server: OnServers | None = None
    """On one server that learns and acts, with the cheapest size, including its boot."""
    actors_per_round: list[int]
    dropped_episodes: int = 0
    """Training episodes with a non-finite number; they were sampled again."""
    left_out_evaluations: int = 0
    """Evaluations skipped for the budget."""
    begun_anew: int = 0
    """Training episodes that began with a reset in place of a continuation."""
    lost_replays: int = 0
    """Of these, the episodes whose repeated actions gave a different episode."""
    run_dir: str | None
    """Run folder, if it is on this machine."""


def summarise(
    job: Job, records: Sequence[RoundRecord], cost: JobCost, *, run_dir: Path | None
) -> Summary:
    """Summarise a finished job."""
    means = [
        fmean(record.result.evaluation.returns)
        for record in records
        if record.result and record.result.evaluation and record.result.evaluation.returns
    ]
    last, best = job.progress.last_return, job.progress.best_return
    known = [*means, *(value for value in (last, best) if value is not None)]
    return Summary(
        job_id=job.job_id,
        status=job.status,
        stop_reason=job.stop_reason,
        stop_explanation=_explanation(job, records),
        rounds=job.progress.rounds,
        env_steps=job.progress.env_steps,
        first_return=known[0] if known else None,
        final_return=last if last is not None else (means[-1] if means else None),
        best_return=max(known) if known else None,
        wall_s=round(sum(record.result.timing.total_s for record in records if record.result), 3),
        projected=Projection(wall_s=cost.projected_wall_s, cost_usd=cost.settled_usd),
        serverful=[
            OnServers(
                wall_s=servers.wall_s,
                cost_usd=servers.total_usd,
                machines=f"{servers.learner_instance} + {servers.actor_instance}",
            )
            for servers in cost.serverful
        ],
        best_server=_on_one(cost.best_server),
        actors_per_round=[record.plan.num_actors for record in records if not record.plan.stop],
        dropped_episodes=sum(record.result.dropped_episodes for record in records if record.result),
        left_out_evaluations=sum(_NO_EVALUATION in record.plan.reason for record in records),
        begun_anew=sum(record.result.begun_anew for record in records if record.result),
        lost_replays=sum(record.result.lost_replays for record in records if record.result),
        run_dir=str(run_dir) if run_dir else None,
    )


def _on_one(server: ServerfulCost | None) -> OnServers | None:
    if server is None:
        return None
    usd, machine = server.total_usd, server.learner_instance
    return OnServers(wall_s=server.wall_s, cost_usd=usd, machines=machine)


def _explanation(job: Job, records: Sequence[RoundRecord]) -> str | None:
    """Return the last plan's explanation of the job's end, unless the end has another cause."""
    last = records[-1].plan if records else None
    return last.reason if last and last.stop and last.stop == job.stop_reason else None


def summary_table(
    summary: Summary,
    *,
    error: str | None,
    picture: Path | None,
    film: Path | None = None,
    expected: Path | None = None,
    logs: Path | None = None,
) -> Table:
    """Format a summary for people.

    Args:
        summary: The run's results.
        error: Why the job failed.
        picture: Path of the run's picture.
        film: Path of the film of its agent.
        expected: Future path of the run's folder, if it is on this machine.
        logs: Folder of the logs of actors and services, if it is on this machine.
    """
    actors = summary.actors_per_round
    spread = f"{min(actors)} to {max(actors)}, mean {fmean(actors):.1f}" if actors else "–"
    facts = [
        ("job", summary.job_id),
        ("status", f"{summary.status} ({summary.stop_reason or 'no reason given'})"),
        *((("", summary.stop_explanation),) if summary.stop_explanation else ()),
        (
            "return",
            f"first {number(summary.first_return)}   final {number(summary.final_return)}   "
            f"best {number(summary.best_return)}",
        ),
        ("rounds", f"{summary.rounds}   actors per round: {spread}"),
        ("environment steps", f"{summary.env_steps:,}"),
        ("wall time", f"{duration(summary.wall_s)} here, in rounds"),
        ("on AWS (projected)", _projected(summary.projected)),
        *(
            ("on servers (projected)", f"{_projected(servers)} ({servers.machines})")
            for servers in summary.serverful
        ),
        *(
            ("on one server (projected)", f"{_projected(server)} ({server.machines}, with boot)")
            for server in (summary.best_server,)
            if server is not None
        ),
        ("run folder", near(Path(summary.run_dir)) if summary.run_dir else _no_folder(expected)),
    ]
    facts += [("warning", text) for text in _warnings(summary)]
    if picture:
        facts.append(("picture", near(picture)))
    if film:
        facts.append(("film of the agent", near(film)))
    if error:
        facts.append(("error", error))
    if error and logs:
        facts.append(("logs", near(logs)))
    return facts_table(facts)


def _warnings(summary: Summary) -> list[str]:
    counts = {
        f"episodes {_BROKEN}": summary.dropped_episodes,
        _LEFT_OUT: summary.left_out_evaluations,
        f"episodes {_ANEW}": summary.begun_anew,
        f"episodes {_OTHERS}": summary.lost_replays,
    }
    return [f"{number} {text}" for text, number in counts.items() if number]


def _no_folder(expected: Path | None) -> str:
    if expected is None:
        return "on the machine of the API"
    return f"none yet, as training had not begun; it would be {near(expected)}"


def going_on(job: Job, *, wall_s: float, place: Place) -> str | None:
    """Return the command that continues a job; None for a finished job.

    A job that has reached a limit resumes only with a higher one; the command adds as much again.
    """
    if job.status not in ("stopped", "failed"):
        return None
    stop = job.spec.stop
    option: tuple[str, ...] = ()
    if job.stop_reason == "budget":
        option = ("--budget-usd", f"{2 * stop.budget_usd:g}")
    elif job.stop_reason == "max_wall" and stop.max_wall_s is not None:
        # The last round may have exceeded the limit by far.
        limit_s = math.ceil(max(wall_s, stop.max_wall_s) + stop.max_wall_s)
        option = ("--max-wall-s", str(limit_s))
    return place.command("train", "--resume", job.job_id, *option)


def more_of(job: Job) -> tuple[str, int]:
    """Return the option and number that double the length of a finished job."""
    stop = job.spec.stop
    if job.stop_reason == "max_env_steps" and stop.max_env_steps is not None:
        return "--total-steps", 2 * stop.max_env_steps
    return "--rounds", min(MAX_ROUNDS, 2 * stop.max_rounds)


def next_commands(job: Job, place: Place) -> list[tuple[str, str]]:
    """Return next commands for a finished job, with their purposes."""
    spec, job_id, command = job.spec, job.job_id, place.command
    commands = [(command("evaluate", job_id, "--episodes", 100), "how well it does, more exactly")]
    if job.can_go_on:
        longer = ["train", "--resume", job_id, *more_of(job)]
        why = "train it for as long again"
        if step_size_decays(job):
            longer.append("--fresh-schedule")
            why += "; leave out --fresh-schedule to keep the last round's small step size"
        commands.append((command(*longer), why))
    else:
        commands.append((command("export", job_id, "--out", "policy"), "export the policy"))
    if not ALGORITHMS[spec.algorithm].objectives:
        return commands  # its presets hardly differ
    same = ["train", spec.env_id, *_environment_options(spec)]
    if spec.algorithm != "ppo":
        same += ["--algorithm", spec.algorithm]
    if spec.preset == "paper":
        commands.append((command(*same), "the preset that learns best, a million steps"))
    else:
        paper = command(*same, "--preset", "paper")
        commands.append((paper, "the paper's setting: as many actors as a round is worth"))
    return commands


def _environment_options(spec: JobSpec) -> list[str]:
    """Return the options that reproduce a job's environment."""
    described = spec.environment_ref.model_dump(mode="json", exclude_defaults=True)
    return [
        word
        for field in ("env_kwargs", "wrappers", "env_variables")
        if described.get(field)
        for word in ("--set", f"{field}={json.dumps(described[field])}")
    ]


def step_size_decays(job: Job) -> bool:
    """Whether a job's step size changes between its first and last rounds."""
    return getattr(job.hyperparameters, "learning_rate_decay", "none") != "none"


def _projected(projection: Projection) -> str:
    return f"{duration(projection.wall_s)}, {projection.cost_usd:.4f} USD"


def cost_text(usd: float, stop: StopRule) -> str:
    """Show a job's cost and cap; without a cap, the projected cost."""
    if not stop.is_capped:
        return f"would be {usd:.4f} USD on AWS"
    return f"{usd:.4f} of {stop.budget_usd:g} USD (projected)"


def progress_text(rounds: int, max_rounds: int, env_steps: int, ending_steps: int | None) -> str:
    """Show a job's rounds, or its steps if they end it."""
    if ending_steps is None:
        return f"{rounds}/{max_rounds}"
    return f"{env_steps:,}/{ending_steps:,} steps"


def number(value: float | None) -> str:
    """Format a return."""
    return "–" if value is None else f"{value:.1f}"


def wait_text(wait: Wait) -> str:
    """Show a job's reason to wait, and the end of the wait."""
    if wait.until is None:
        return wait.reason
    until = datetime.fromtimestamp(wait.until).astimezone()
    return f"{wait.reason} (at {until:%H:%M:%S} at the latest)"


def duration(seconds: float) -> str:
    """Format a time span: `42 s`, `3 min 07 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
