"""Which learners' tasks to run, stop or give up, decided from values alone.

Each job has its own task. Tasks run for the oldest jobs first, as far as there is room: learners of
a kind, and concurrent executions for their actors. The other jobs wait in order, with a reason. A
task that ends before its job is replaced. A job waits for a bounded number of tasks that end
without taking it, and for a bounded time; time without room does not count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.scaler.book.records import JobRecord, LearnerStart
from services.scaler.capacity.decision import is_held, queued_at
from shared.contracts.learner_kind import MACHINE_KINDS, MachineKind

MOST_STARTS = 3
"""Most tasks that may end in a row without leasing the job."""
UNSEEN_S = 60.0
"""How long ECS may take to list a confirmed task."""
SILENT_S = 300.0
"""A learner hangs if it has lost its job and is silent for this long."""
_WORDS: Mapping[MachineKind, str] = {"gpu": "with a GPU", "cpu": "on cores"}
_SETTING: Mapping[MachineKind, str] = {"gpu": "most_gpu_learners", "cpu": "most_cpu_learners"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTask:
    """A learner's task that ECS runs or starts."""

    arn: str
    job_id: str
    """Its `startedBy`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRule:
    """The bounds on tasks."""

    most: Mapping[MachineKind, int]
    """Most learners of each kind; a missing kind is not started."""
    longest_wait_s: float
    """Longest wait of a job for a requested learner."""


@dataclass(slots=True, kw_only=True)
class TaskDecision:
    """The actions to take now."""

    run: list[tuple[JobRecord, LearnerStart]] = field(default_factory=list)
    """Tasks to run, in order, each with the job's new record of it."""
    stop: dict[str, str] = field(default_factory=dict)
    """Reasons by the task's ARN."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Reasons by the job's id."""
    waits: dict[str, str] = field(default_factory=dict)
    """Reason to wait of a job without room, by its id."""
    on: dict[MachineKind, int] = field(default_factory=lambda: dict.fromkeys(MACHINE_KINDS, 0))
    """Running and requested learners of each kind, without those in `run`."""


def decide_tasks(
    jobs: Sequence[JobRecord],
    found: Sequence[FoundTask],
    rule: TaskRule,
    now: float,
    *,
    counts: Callable[[JobRecord], bool],
    concurrency: int | None = None,
) -> TaskDecision:
    """Return the actions for all listed tasks of learners.

    `jobs` are all unfinished jobs; `counts` says whether a job may have capacity. `concurrency` is
    the actor function's number of concurrent executions, if known.
    """
    made = TaskDecision()
    ours = [r for r in jobs if r.job.learner in rule.most and counts(r)]
    wanting = []
    in_use = 0
    for record in sorted(ours, key=lambda r: r.position):
        tasks = [task for task in found if task.job_id == record.job.job_id]
        useless = _useless(record, tasks, now)
        made.stop |= useless
        if _is_on(record, now, listed=len(tasks) > len(useless)):
            made.on[kind_of(record)] += 1
            in_use += _least_actors(record)
            if _has_waited(record, rule, now):
                made.given_up[record.job.job_id] = _no_learner(rule)
        else:
            wanting.append(record)
    theirs = {record.job.job_id for record in ours}
    made.stop |= {t.arn: "its job is over" for t in found if t.job_id not in theirs}
    _fill(made, wanting, rule, now, room=None if concurrency is None else concurrency - in_use)
    return made


def _is_on(record: JobRecord, now: float, *, listed: bool) -> bool:
    """Whether a learner trains the job, or a task for it is `listed` by ECS."""
    start = record.start
    new = start is not None and start.task is not None and now < start.at + UNSEEN_S
    return listed or is_held(record, now) or (new and not _taken(record))


def _fill(
    made: TaskDecision,
    wanting: Sequence[JobRecord],
    rule: TaskRule,
    now: float,
    *,
    room: int | None,
) -> None:
    """Run tasks in order for as many jobs as there is room for."""
    on = dict(made.on)
    full: dict[MachineKind, str] = {}
    for record in wanting:
        job_id, kind, needs = record.job.job_id, kind_of(record), _least_actors(record)
        start = _next_start(record, now, crowded=made.on[kind] > 0)
        if start.vain >= MOST_STARTS:
            made.given_up[job_id] = (
                f"{start.vain} learners ended before they took the job: the learner's log says why"
            )
            continue
        if now >= start.since + rule.longest_wait_s:
            made.given_up[job_id] = _no_learner(rule)
            continue
        if kind not in full and (why := _no_room(kind, on, rule, needs=needs, room=room)):
            full[kind] = why
        if kind in full:
            made.waits[job_id] = full[kind]
            continue
        made.run.append((record, start))
        on[kind] += 1
        room = None if room is None else room - needs


def _no_room(
    kind: MachineKind,
    on: Mapping[MachineKind, int],
    rule: TaskRule,
    *,
    needs: int,
    room: int | None,
) -> str | None:
    """Return why no more learners of a kind can start; None if they can."""
    if on[kind] >= rule.most[kind]:
        return (
            f"a learner {_WORDS[kind]}: {on[kind]} work for earlier jobs, the maximum of this "
            f"deployment ({_SETTING[kind]})"
        )
    if room is not None and needs > room and any(on.values()):
        return (
            f"room for its actors: jobs before it leave {max(0, room)} of Lambda's concurrent "
            "executions (quota L-B99A9384)"
        )
    return None


def _useless(record: JobRecord, tasks: Sequence[FoundTask], now: float) -> dict[str, str]:
    """Return a job's useless tasks, with reasons."""
    lease, start = record.lease, record.start
    if lease is not None and now >= lease.expires_at + SILENT_S and _taken(record):
        return {task.arn: "its learner has been silent for too long" for task in tasks}
    newest = None if start is None else start.task
    if len(tasks) > 1 and newest in {task.arn for task in tasks} and not is_held(record, now):
        return {task.arn: "a newer task has its job" for task in tasks if task.arn != newest}
    return {}


def _next_start(record: JobRecord, now: float, *, crowded: bool) -> LearnerStart:
    """Return the task to request: the last one again, if ECS has not confirmed it.

    If other learners run, ECS may have no room for this one; that wait does not count.
    """
    last = record.start
    if last is not None and _is_of_this_wait(record, last):
        if last.task is None:
            return last.model_copy(update={"since": now}) if crowded else last
        number, since, vain = last.number + 1, last.since, last.vain + 1
    else:
        number, since, vain = (1 if last is None else last.number + 1), now, 0
    return LearnerStart(number=number, at=now, since=since, vain=vain, num_leases=record.num_leases)


def _is_of_this_wait(record: JobRecord, start: LearnerStart) -> bool:
    return not _taken(record) and queued_at(record) <= start.at


def _taken(record: JobRecord) -> bool:
    """Whether a learner has leased the job since the request for its newest task."""
    return record.start is not None and record.num_leases > record.start.num_leases


def _has_waited(record: JobRecord, rule: TaskRule, now: float) -> bool:
    """Whether the running task has not taken its job for too long."""
    start = record.start
    if start is None or is_held(record, now) or not _is_of_this_wait(record, start):
        return False
    return now >= start.since + rule.longest_wait_s


def _no_learner(rule: TaskRule) -> str:
    return (
        f"no learner took the job within {rule.longest_wait_s / 60:.0f} minutes "
        "(NITRO_LEARNER_WAIT_S): the learner's log, and its stopped tasks in ECS, say why"
    )


def _least_actors(record: JobRecord) -> int:
    """Return the fewest concurrent actors of a job."""
    spec = record.job.spec
    return spec.actors.min * min(spec.open_rounds, spec.stop.max_rounds)


def kind_of(record: JobRecord) -> MachineKind:
    """Return the kind of learner to start for a job."""
    kind = record.job.learner
    assert kind != "external", "nobody starts its learner"
    return kind
