"""Training end to end: Hopper-v5, 16 actors of 256 steps a round, preset `paper`, every part real.

Cache, scaler, Lambda emulator, actors and learner are the processes of `nitro train`. Steps per
second count from the start of a job's first round to the end of its last. The peers are PPO of
Stable-Baselines3 with the same hyper-parameters, in one environment and in 16.
"""

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers import stable_baselines3
from benchmarks.real_actor import STEPS
from benchmarks.record import Row, Series, Target
from nitro.client import NitroClient
from nitro.local import LocalSystem
from shared.artifacts import ROUNDS_FILE
from shared.contracts import RoundLine, RoundResult
from shared.job_spec import EvaluationRule, JobSpec, StopRule
from shared.jobs import FINISHED
from shared.scaling_spec import ActorRange, FixedScaling

TITLE = "Training throughput, Hopper-v5, end to end"
_ENVIRONMENT = "Hopper-v5"
_NUM_ACTORS = 16
_ROUNDS = 6
"""Of one job of ours: one sample."""
_UPDATES = 2
"""Of one sample of a peer."""
_SHARE_PERCENT = 3.0
_PATIENCE_S = 300.0
_POLL_S = 0.05


@dataclass(slots=True)
class OurTraining:
    """Trains short jobs on a running local system and keeps the timing of their rounds."""

    system: LocalSystem
    client: NitroClient
    runs_dir: Path
    rounds: int
    num_actors: int = _NUM_ACTORS
    timings: list[RoundResult] = field(default_factory=list)

    def sample(self) -> float:
        """Train one job; return its steps per second."""
        job = self.client.submit(
            JobSpec(
                env_id=_ENVIRONMENT,
                steps_per_actor=STEPS,
                actors=ActorRange(min=self.num_actors, max=self.num_actors),
                scaling=FixedScaling(policy="fixed", num_actors=self.num_actors),
                stop=StopRule(max_rounds=self.rounds, budget_usd=100.0),
                evaluation=EvaluationRule(every_rounds=0),
            )
        )
        self._wait(job.job_id)
        results = self._results(job.job_id)
        self.timings += results
        # A round's total begins where the one before it ended, so the sum is the job's wall time.
        return sum(r.env_steps for r in results) / sum(r.timing.total_s for r in results)

    def _wait(self, job_id: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while (job := self.client.get(job_id)).status not in FINISHED:
            self.system.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {job_id} was not done after {_PATIENCE_S:g} s")
            time.sleep(_POLL_S)
        if job.status != "succeeded":
            raise RuntimeError(f"job {job_id} {job.status}: {job.error}")

    def _results(self, job_id: str) -> list[RoundResult]:
        text = (self.runs_dir / job_id / ROUNDS_FILE).read_text(encoding="utf-8")
        lines = [RoundLine.model_validate_json(line) for line in text.splitlines()]
        results = [line.result for line in lines if line.result is not None]
        if len(results) != self.rounds:
            raise RuntimeError(f"job {job_id} recorded {len(results)} rounds, not {self.rounds}")
        return results


def measure(effort: Effort) -> list[Row]:
    """Train in turn with the peers."""
    progress("starting the local system and the peers")
    rounds, updates = effort.of(_ROUNDS, quick=2), effort.of(_UPDATES, quick=1)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSystem(Path(folder)) as system,
        NitroClient(system.api_url, system.token) as client,
        stable_baselines3("train", _ENVIRONMENT, "1", str(updates)) as sb3_1,
        stable_baselines3("train", _ENVIRONMENT, str(_NUM_ACTORS), str(updates)) as sb3_16,
    ):
        system.wait_ready()
        ours = OurTraining(system, client, Path(folder), rounds)
        progress("training in turn")
        samples = interleaved(
            {
                "nitro": ours.sample,
                "1": lambda: sb3_1.measure().steps_per_s,
                "16": lambda: sb3_16.measure().steps_per_s,
            },
            repeats=effort.of(4, quick=1),
        )
        one = _peer_series(sb3_1.about, samples["1"])
        sixteen = _peer_series(sb3_16.about, samples["16"])
    name = f"nitro, {_NUM_ACTORS} actors"
    nitro = Series(name=name, unit="steps/s", better="higher", samples=samples["nitro"])
    return [
        Row(what="beside a learner with 1 environment", ours=nitro, peer=one),
        Row(what=f"beside a learner with {_NUM_ACTORS} environments", ours=nitro, peer=sixteen),
        _share_row(ours.timings[rounds:]),  # without the warm-up job
    ]


def _peer_series(about: dict[str, str], samples: tuple[float, ...]) -> Series:
    name = f"SB3 {about['stable-baselines3']}"
    return Series(name=name, unit="steps/s", better="higher", samples=samples, about=about)


def _share_row(results: list[RoundResult]) -> Row:
    shares = [100 * r.timing.curvature_s / r.timing.total_s for r in results]
    return Row(
        what=f"share of the curvature in a round of {_NUM_ACTORS} actors",
        ours=Series(name="nitro", unit="%", better="lower", samples=tuple(shares)),
        target=Target(of="ours", bound="at_most", value=_SHARE_PERCENT),
    )
