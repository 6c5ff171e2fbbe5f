"""Forty jobs at once: the real staffing and book, with ECS and learners simulated in fake time.

A learner takes `LEARNER_START_S` to start, which nobody has measured on AWS, and then as long as
one of the recorded runs did. ECS lists a task a while after it runs it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.scaler.book.book import Book
from services.scaler.book.records import Change, JobRecord, LeaseRecord
from services.scaler.book.sqlite import SqliteTable
from services.scaler.book.writes import FencedError
from services.scaler.capacity.decision import LIVE, CapacityRule
from services.scaler.capacity.ecs_tasks import EcsTasks, LearnerCapacityError
from services.scaler.capacity.staffing import Staffing
from services.scaler.capacity.tasks import FoundTask, TaskRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.learner_kind import MachineKind
from shared.contracts.learner_task import LearnerTask
from shared.deployment.machines import LEARNER_START_S
from tests.services.scaler.lambda_endpoint import HOPPER
from tests.services.scaler.services_without_network import Inline

START = 1_800_000_000.0
NUM_JOBS = 40
MEASURED_S = (164.2, 99.6, 96.0, 74.6, 81.8, 67.2)
"""Of the six runs with eight actors in Walker2d-v4 (`experiments/results/dollars`): their rounds as
projected to AWS from measured times."""
TTL_S = 30.0
LISTED_AFTER_S = 5.0
EVERY_S = 60.0
STEP_S = 5.0


@dataclass
class SimulatedTask:
    job_id: str
    at: float
    ready_at: float
    stopped: bool = False


@dataclass
class SimulatedEcs(EcsTasks):
    """ECS with a quota, which forgets nothing and answers a repeated request with the same task."""

    now: Callable[[], float]
    quota: int = 1000
    tasks: dict[str, SimulatedTask] = field(default_factory=dict)

    def found(self) -> tuple[FoundTask, ...]:
        return tuple(
            FoundTask(arn=arn, job_id=task.job_id)
            for arn, task in self.tasks.items()
            if not task.stopped and self.now() >= task.at + LISTED_AFTER_S
        )

    def run(self, kind: MachineKind, job_id: str, number: int, size: LearnerTask) -> str:
        arn = f"{job_id}/{number}"
        if arn not in self.tasks:
            if len(self.alive()) >= self.quota:
                raise LearnerCapacityError("You've reached the limit on the number of vCPUs")
            ready_at = self.now() + LEARNER_START_S[kind]
            self.tasks[arn] = SimulatedTask(job_id, self.now(), ready_at)
        return arn

    def stop(self, arn: str, why: str) -> None:
        self.tasks[arn].stopped = True

    def alive(self) -> list[SimulatedTask]:
        return [task for task in self.tasks.values() if not task.stopped]


class Simulation:
    """Scalers that come and go on one book, and learners that train what theirs is."""

    def __init__(self, folder: Path, *, most: int, quota: int = 1000) -> None:
        self.time = START
        self.ecs = SimulatedEcs(now=lambda: self.time, quota=quota)
        self.left_s: dict[str, float] = {}
        self.ended_at: dict[str, float] = {}
        self._path, self._most = folder / "book.sqlite3", most
        self.deploy()

    def deploy(self) -> None:
        """Begin a scaler in place of the one there is, with nothing but what is written."""
        self.book = Book(SqliteTable(self._path), now=lambda: self.time)
        capacity = CapacityRule(
            provisioned=0,
            starts_learner=True,
            longest_job_s=48 * 3600.0,
            reserved=None,
            spent_at=lambda _record, _now: float("inf"),
        )
        self.staffing = Staffing(
            book=self.book,
            ecs=self.ecs,
            threads=Inline(),
            rule=TaskRule(most={"cpu": self._most}, longest_wait_s=1800.0),
            capacity=capacity,
            concurrency=lambda: 1000,
            now=lambda: self.time,
            give_up=self._give_up,
        )

    async def submit(self, name: str, seconds: float) -> None:
        spec = JobSpec.model_validate({"learner": "cpu", "actors": {"min": 8, "max": 8}})
        job = Job(
            job_id=name,
            spec=spec,
            environment=HOPPER,
            learner="cpu",
            status="queued",
            created_at=self.time,
        )
        await self.book.create(JobRecord(job=job, queued_at=self.time), None)
        self.left_s[name] = seconds

    async def run(self, *, until_s: float, deploy_at_s: float | None = None) -> None:
        look_at = self.time
        while len(self.ended_at) < len(self.left_s):
            assert self.time < START + until_s, f"{len(self.ended_at)} jobs have ended"
            if deploy_at_s is not None and self.time >= START + deploy_at_s:
                self.deploy()
                deploy_at_s, look_at = None, self.time
                await self.book.catch_up()
            if self.time >= look_at:
                done = await self.staffing.look(self.book.with_status(LIVE), may_run=True)
                look_at = self.time + min(EVERY_S, max(STEP_S, done.look_in_s))
            self.time += STEP_S
            if await self._train():
                look_at = self.time  # a job's end is a reason to look

    async def _train(self) -> bool:
        """Have every learner that is ready work for a step; return whether a job has ended."""
        over = False
        for task in self.ecs.alive():
            if self.time < task.ready_at:
                continue
            self.left_s[task.job_id] -= STEP_S
            over |= self.left_s[task.job_id] <= 0
            await self.book.change(task.job_id, self._trained)
            if self.left_s[task.job_id] <= 0:
                task.stopped = True
                self.ended_at[task.job_id] = self.time
        return over

    def _trained(self, record: JobRecord) -> Change:
        held = record.lease is not None and record.lease.expires_at > self.time
        ended = self.left_s[record.job.job_id] <= 0
        lease = LeaseRecord(lease_id="l", learner_id="x", expires_at=self.time + TTL_S)
        updated = {
            "job": record.job.model_copy(update={"status": "succeeded" if ended else "running"}),
            "lease": None if ended else lease,
            "num_leases": record.num_leases + (not held),
        }
        return Change(record=record.model_copy(update=updated))

    async def _give_up(self, job_id: str, why: str) -> None:
        pytest.fail(f"{job_id} was given up: {why}")


async def _forty(simulation: Simulation) -> None:
    chance = random.Random(7)
    for index in range(NUM_JOBS):
        await simulation.submit(f"walker-{index}", chance.choice(MEASURED_S))


async def test_forty_jobs_take_little_longer_than_one_and_a_deployment_interrupts_none(
    tmp_path: Path,
) -> None:
    simulation = Simulation(tmp_path, most=50)
    await _forty(simulation)
    one_s = LEARNER_START_S["cpu"] + max(MEASURED_S)
    await simulation.run(until_s=1.5 * one_s, deploy_at_s=90.0)
    assert len(simulation.ended_at) == NUM_JOBS
    # A task for each, and each was leased once: none was begun again.
    assert len(simulation.ecs.tasks) == NUM_JOBS
    records = [simulation.book.job(name) for name in simulation.left_s]
    assert {record.num_leases for record in records if record is not None} == {1}
    assert simulation.ecs.alive() == []


@pytest.mark.parametrize("bound", ["most", "quota"])
async def test_where_only_some_may_run_the_others_follow_in_order_and_none_starves(
    tmp_path: Path, bound: str
) -> None:
    simulation = Simulation(tmp_path, **{"most": 50, bound: 6})
    await _forty(simulation)
    waves = -(-NUM_JOBS // 6)
    # Between the end of one and the start of the next there is a look, once a minute at the latest.
    longest_s = waves * (LEARNER_START_S["cpu"] + max(MEASURED_S) + EVERY_S)
    await simulation.run(until_s=longest_s, deploy_at_s=200.0)
    began = sorted(simulation.ecs.tasks.values(), key=lambda task: task.at)
    assert [task.job_id for task in began] == [f"walker-{index}" for index in range(NUM_JOBS)]


async def test_a_scaler_that_another_one_has_followed_ends_none_of_its_learners(
    tmp_path: Path,
) -> None:
    simulation = Simulation(tmp_path, most=50)
    former, its_staffing = simulation.book, simulation.staffing
    simulation.deploy()
    await simulation.submit("walker", 100.0)
    await simulation.staffing.look(simulation.book.with_status(LIVE), may_run=True)
    simulation.time += LISTED_AFTER_S
    simulation.book = former
    with pytest.raises(FencedError):
        await simulation.submit("walker", 100.0)
    with pytest.raises(FencedError):
        await its_staffing.look(former.with_status(LIVE), may_run=True)
    assert len(simulation.ecs.alive()) == 1


async def test_a_learner_that_is_lost_is_followed_by_another_and_holds_up_no_other_job(
    tmp_path: Path,
) -> None:
    simulation = Simulation(tmp_path, most=50)
    await _forty(simulation)
    lost: list[str] = []

    def lose() -> None:
        for arn in list(simulation.ecs.tasks)[::10]:
            simulation.ecs.tasks[arn].stopped = True
            lost.append(simulation.ecs.tasks[arn].job_id)

    run = simulation._train

    async def train() -> bool:
        if not lost and simulation.time >= START + 120:
            lose()
        return await run()

    simulation._train = train  # type: ignore[method-assign]
    again_s = LEARNER_START_S["cpu"] + TTL_S + EVERY_S + max(MEASURED_S)
    await simulation.run(until_s=120 + again_s)
    one_s = LEARNER_START_S["cpu"] + max(MEASURED_S)
    others = [at for job_id, at in simulation.ended_at.items() if job_id not in lost]
    assert max(others) <= START + 1.5 * one_s
    assert len(simulation.ecs.tasks) == NUM_JOBS + len(lost) == NUM_JOBS + 4
