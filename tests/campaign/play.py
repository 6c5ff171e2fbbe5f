"""Playing one schedule of faults on a local system, and what came of it."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx

from nitro.client.client import NitroClient
from nitro.client.errors import ApiError, ApiUnreachableError
from nitro.local.system import LocalSystem
from nitro.runs.finished import finished_folder
from shared.contracts.jobs import FINISHED, Job
from shared.contracts.message import Message
from tests.campaign.checks import (
    Ends,
    begun_anew,
    launched_twice,
    lost_evaluations,
    over_budget_usd,
    used_twice,
    weights_digest,
)
from tests.campaign.pausing import pause_holder, wake, written_usd
from tests.campaign.schedule import Campaign, Schedule, Strike
from tests.e2e.runs import PATIENCE_S, mend, train
from tests.nitro.process_table import own_actors
from tests.patience import ANSWER_S

_HOLD_MS = 1500.0
"""How long actors wait to start while a round is to be found in flight."""
_MOST_RESUMES = 5
_ORDERLY_S = 2.0
"""How long a process that was asked to end may take."""
_LOOK_S = 0.02
_TROUBLES: dict[str, dict[str, float]] = {
    "crash": {"crash_next": 2, "crash_after_ms": 2.0},
    "duplicate": {"duplicate_rate": 1.0},
    "throttle": {"throttle_next": 3},
}


class PlayError(Exception):
    """A schedule could not be played to its end."""


class Outcome(Message):
    """What came of a schedule."""

    seed: int
    index: int
    strikes: tuple[str, ...]
    """The faults that were played before the job ended."""
    algorithm: str
    lost: str | None
    """Why the job is lost; None when it succeeded."""
    used_twice: int
    launched_twice: int
    over_budget_usd: float
    equal_weights: bool | None
    """None where no two runs need be equal."""
    lost_evaluations: int
    """0 where results are learned from as they arrive: then none is launched again."""
    begun_anew: int
    """Episodes that were to go on and could not."""
    late_usd: float = 0.0
    """What a learner that was paused wrote into the run's ledger after its end."""
    waits_s: tuple[float, ...]
    """From all processes being up again to the next progress of the job, for each restart."""
    resumes: int
    """How often the job had failed and was resumed."""
    attempts: tuple[int, ...]
    """Newest attempt at each round."""
    took_s: float

    @property
    def bad(self) -> bool:
        """Whether something did not hold, waits aside."""
        return bool(
            self.lost
            or self.used_twice
            or self.launched_twice
            or self.over_budget_usd
            or self.equal_weights is False
            or self.lost_evaluations
            or self.begun_anew
            or self.late_usd
        )


class Stage:
    """A local system on a folder; another one takes its place when all of it is restarted.

    Args:
        folder: Its whole path; for runs, logs and the emulator's journal.
        learners: How many it has.
    """

    def __init__(self, folder: Path, *, learners: int = 1) -> None:
        self.runs_dir = folder / "runs"
        self.journal = folder / "journal.jsonl"
        self._learners = learners
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def open(self) -> None:
        """Start a system on the folder, in place of the one there is."""
        self._open.close()
        journal = {"emulator": {"NITRO_EMULATOR_JOURNAL": str(self.journal)}}
        self.system = self._open.enter_context(
            LocalSystem(self.runs_dir, learners=self._learners, environment=journal)
        )
        self.client = self._open.enter_context(NitroClient(self.system.api_url, self.system.token))
        self.system.wait_ready()

    @property
    def _operator(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.system.lambda_token}"}

    def job(self, job_id: str) -> Job | None:
        """Return the job; None while nobody answers."""
        with contextlib.suppress(ApiError, ApiUnreachableError):
            return self.client.get(job_id)
        return None

    def break_actors(self, **faults: float) -> None:
        url = f"{self.system.lambda_url}/emulator/faults"
        httpx.put(url, json=faults, headers=self._operator, timeout=ANSWER_S).raise_for_status()

    def launched(self, job_id: str) -> int:
        """Return how many actors the newest round of a job has."""
        plan = [*self.client.every_round(job_id)][-1].plan
        return plan.num_actors + plan.num_evaluations

    def in_flight(self) -> int:
        url = f"{self.system.lambda_url}/emulator/stats"
        stats = httpx.get(url, headers=self._operator, timeout=ANSWER_S).json()
        return int(stats["in_flight"])


def undisturbed_digests(stage: Stage, campaign: Campaign) -> dict[int, str]:
    """Train a campaign's references in peace; return the digests of their weights by seed."""
    digests = {}
    for spec in campaign.references:
        job = train(stage.client, spec)
        if job.status != "succeeded":
            raise PlayError(f"the undisturbed run of seed {spec.seed} {job.status}")
        digests[spec.seed] = weights_digest(stage.runs_dir, job.job_id)
    return digests


@dataclass
class _Scene:
    """One schedule as it is played."""

    stage: Stage
    job_id: str
    struck: list[Strike] = field(default_factory=list)
    ended_at: dict[str, list[float]] = field(default_factory=dict)
    waits_s: list[float] = field(default_factory=list)
    resumes: int = 0
    paused: str | None = None
    """The learner that was."""


def play(schedule: Schedule, stage: Stage, digests: Mapping[int, str]) -> Outcome:
    """Play a schedule.

    Args:
        schedule: What to train and to break.
        stage: Where; its system is up afterwards if the job was not lost.
        digests: Of the weights of undisturbed runs, by seed.
    """
    began, lost = time.monotonic(), None
    mend(stage.system, stage.client)
    stage.break_actors()
    job_id = stage.client.submit(schedule.job).job_id
    scene = _Scene(stage, job_id)
    try:
        for strike in schedule.strikes:
            _strike(scene, strike)
        _until(scene, lambda job: job.status == "succeeded")
        late_usd = _wake(scene)
    except PlayError as error:
        lost, late_usd = str(error), 0.0
    job = stage.client.get(job_id)
    if lost is None and job.progress.rounds != (rounds := schedule.job.stop.max_rounds):
        lost = f"succeeded after {job.progress.rounds} of {rounds} rounds"
    equal = None
    if lost is None and schedule.in_order:
        equal = weights_digest(stage.runs_dir, job_id) == digests[schedule.job.seed]
    ends = Ends(
        scaler=scene.ended_at.get("scaler", []), emulator=scene.ended_at.get("emulator", [])
    )
    return Outcome(
        seed=schedule.seed,
        index=schedule.index,
        strikes=tuple(map(str, scene.struck)),
        algorithm=schedule.job.algorithm,
        lost=lost,
        used_twice=used_twice(stage.runs_dir, job_id, schedule.job),
        launched_twice=launched_twice(stage.journal, job_id, ends),
        over_budget_usd=over_budget_usd(stage.client, job),
        equal_weights=equal,
        lost_evaluations=lost_evaluations(stage.runs_dir, job_id) if schedule.in_order else 0,
        begun_anew=begun_anew(stage.runs_dir, job_id),
        late_usd=late_usd,
        waits_s=tuple(scene.waits_s),
        resumes=scene.resumes,
        attempts=tuple(r.plan.attempt for r in stage.client.every_round(job_id)),
        took_s=time.monotonic() - began,
    )


def _strike(scene: _Scene, strike: Strike) -> None:
    stage = scene.stage
    job = _until(scene, lambda job: _reached(job, strike.round))
    if job.status == "succeeded":
        return
    scene.struck.append(strike)
    if strike.trouble is not None:
        if strike.trouble == "own actors":
            for pid in own_actors(stage.system.pid("learner")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            stage.break_actors(**_TROUBLES[strike.trouble])
        # An actor that fails a second time is lost for good, so the next strike spares it.
        over = job.progress.rounds + job.spec.open_rounds
        _until(scene, lambda job: _reached(job, over))
        return
    if strike.moment == "in flight":
        stage.break_actors(start_delay_ms=_HOLD_MS)
        _until(scene, lambda job: job.status == "succeeded" or stage.in_flight() > 0)
    if strike.pause:
        # All of them, as a scaler that is stopped sends no more.
        _until(scene, lambda job: stage.in_flight() >= stage.launched(job.job_id))
        stage.break_actors()
        scene.paused = pause_holder(stage.system, stage.client, stage.runs_dir / scene.job_id)
        return
    _end_and_start_again(scene, strike)
    up = time.monotonic()
    stage.break_actors()
    before = (
        job.progress.rounds if (seen := stage.job(scene.job_id)) is None else seen.progress.rounds
    )
    _until(scene, lambda job: _reached(job, before + 1))
    scene.waits_s.append(round(time.monotonic() - up, 3))


def _wake(scene: _Scene) -> float:
    """Let a paused learner go on; return what it adds to the bill that another one has written."""
    if scene.paused is None:
        return 0.0
    folder = finished_folder(scene.stage.runs_dir / scene.job_id)
    if folder is None:
        raise PlayError("the run's folder is gone")
    written = written_usd(folder)
    wake(scene.stage.system, scene.paused, scene.job_id)
    return written_usd(folder) - written


def _end_and_start_again(scene: _Scene, strike: Strike) -> None:
    stage = scene.stage
    for name, how in strike.victims:
        process = stage.system.process(name)
        process.kill() if how == "kill" else process.terminate()
    for name, _ in strike.victims:
        # Like `docker stop`: whoever cannot end in an orderly way, as others are gone, is killed.
        process = stage.system.process(name)
        process.wait(_ORDERLY_S)
        process.kill()
        scene.ended_at.setdefault(name, []).append(time.time())
    if strike.whole:
        stage.system.close(at_once=True)
        stage.open()
    else:
        stage.system.restart(*(name for name, _ in strike.victims))
        stage.system.wait_ready()


def _reached(job: Job, rounds: int) -> bool:
    return job.status == "succeeded" or (job.status != "queued" and job.progress.rounds >= rounds)


def _until(scene: _Scene, holds: Callable[[Job], bool]) -> Job:
    """Return the job once something holds, resuming it when it has failed, as its user would.

    Raises:
        PlayError: It does not come to hold.
    """
    for _ in _looks():
        job = scene.stage.job(scene.job_id)
        if job is None:
            continue
        if holds(job):
            return job
        if job.status == "failed" and scene.resumes < _MOST_RESUMES:
            scene.resumes += 1
            scene.stage.client.resume(scene.job_id)
        elif job.status in FINISHED:
            raise PlayError(f"the job {job.status}: {job.stop_reason} {job.error or ''}")
    raise PlayError(f"the job stands still: {job.status if job else 'nobody answers'}")


def _looks() -> Iterator[None]:
    """Yield again and again until patience ends."""
    pause, give_up_at = threading.Event(), time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        yield
        pause.wait(_LOOK_S)
