"""Which learners' tasks are run, stopped or given up on, decided from values alone.

Each job has a task of its own. One is run for every job that capacity may be on for, the oldest job
first, as far as there is room: learners of a kind, and concurrent executions for their actors. The
other jobs wait in order, and are told for what. A task that ends while its job has not is followed
by another one. A job waits for a bounded number of tasks that end without taking it, and for a
bounded time; time without room does not count.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from services.scaler.book.records import JobRecord, LearnerStart
from services.scaler.capacity.decision import is_held, queued_at
from shared.contracts.learner_kind import MACHINE_KINDS, MachineKind

MOST_STARTS = 3
"""Tasks that may end, one after the other, before one of them has leased the job."""
UNSEEN_S = 60.0
"""How long ECS may take to list a task that it has said it runs."""
SILENT_S = 300.0
"""A learner that has lost its job for so long, and does not ask for it again, hangs."""
_WORDS: Mapping[MachineKind, str] = {"gpu": "with a GPU", "cpu": "on cores"}
_SETTING: Mapping[MachineKind, str] = {"gpu": "most_gpu_learners", "cpu": "most_cpu_learners"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTask:
    """A learner's task that ECS runs, or is about to."""

    arn: str
    job_id: str
    """What it was started by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRule:
    """What bounds the tasks."""

    most: Mapping[MachineKind, int]
    """Learners of each kind at a time; a kind that is left out is not started."""
    longest_wait_s: float
    """Longest a job waits for a learner that was asked for."""


@dataclass(slots=True, kw_only=True)
class TaskDecision:
    """What is to be done now."""

    run: list[tuple[JobRecord, LearnerStart]] = field(default_factory=list)
    """Tasks to run, in order, each with what the job's record says of it then."""
    stop: dict[str, str] = field(default_factory=dict)
    """Why, by the task's ARN."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Why, by the job's id."""
    waits: dict[str, str] = field(default_factory=dict)
    """What a job without room waits for, by its id."""
    on: dict[MachineKind, int] = field(default_factory=lambda: dict.fromkeys(MACHINE_KINDS, 0))
    """Learners of each kind that are on, or asked for, without those in `run`."""


def decide_tasks(
    jobs: Sequence[JobRecord],
    found: Sequence[FoundTask],
    rule: TaskRule,
    now: float,
    *,
    counts: Callable[[JobRecord], bool],
    concurrency: int | None = None,
) -> TaskDecision:
    """Return what is to be done about the learners' tasks, all of which were found.

    `jobs` are all that have not ended; `counts` says whether capacity may be on for one. Of the
    actor function `concurrency` executions run at a time, as far as that is known.
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
    """Whether a learner has the job in hand, or a task for it is under way: `listed` by ECS."""
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
    """Run tasks for as many jobs as there is room for, without overtaking."""
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
        if kind not in full:
            full |= _no_room(kind, on, rule, needs=needs, room=room)
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
) -> dict[MachineKind, str]:
    """Return why no more learners of a kind are started, if none are."""
    if on[kind] >= rule.most[kind]:
        return {
            kind: f"a learner {_WORDS[kind]}: {on[kind]} are at work for jobs before it, which is "
            f"the most of this deployment ({_SETTING[kind]})"
        }
    if room is not None and needs > room and any(on.values()):
        return {
            kind: f"room for its actors: jobs before it leave {max(0, room)} of Lambda's "
            "concurrent executions (quota L-B99A9384)"
        }
    return {}


def _useless(record: JobRecord, tasks: Sequence[FoundTask], now: float) -> dict[str, str]:
    """Return the tasks of a job that are of no use to it, with why."""
    lease, start = record.lease, record.start
    if lease is not None and now >= lease.expires_at + SILENT_S and _taken(record):
        return {task.arn: "its learner has been silent for too long" for task in tasks}
    newest = None if start is None else start.task
    if len(tasks) > 1 and newest in {task.arn for task in tasks} and not is_held(record, now):
        return {task.arn: "a newer task has its job" for task in tasks if task.arn != newest}
    return {}


def _next_start(record: JobRecord, now: float, *, crowded: bool) -> LearnerStart:
    """Return the task to ask for: the last one again, if ECS has not said that it runs it.

    Where other learners are on, ECS may have no room for this one: that wait does not count.
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
    """Whether a learner has leased the job since its newest task was asked for."""
    return record.start is not None and record.num_leases > record.start.num_leases


def _has_waited(record: JobRecord, rule: TaskRule, now: float) -> bool:
    """Whether the task that is on has not taken its job for too long."""
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
    """Return how many actors a job has at a time at least."""
    spec = record.job.spec
    return spec.actors.min * min(spec.open_rounds, spec.stop.max_rounds)


def kind_of(record: JobRecord) -> MachineKind:
    """Return the kind of learner that a job is started one of."""
    kind = record.job.learner
    assert kind != "external", "nobody starts its learner"
    return kind
