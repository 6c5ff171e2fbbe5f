"""Time of a round of 64 real actors beyond simulation and gradient steps.

Hopper-v5, 64 actors of 256 steps, preset `paper`, every part real, as in `nitro train`. Simulation
is the actors' rollouts, shared by as many actor processes as the machine has cores; gradient steps
are the learner's update. All the rest is overhead: decision, launch, emulator, transport, waiting,
curvature, checkpoint.
"""

import os
import re
import tempfile
from pathlib import Path

import httpx

from benchmarks.local_training import LocalTraining
from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Series, Target
from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import ActorRange, FixedScaling
from shared.contracts.stop_rule import StopRule

TITLE = "Overhead of a round of 64 actors, Hopper-v5"
_NUM_ACTORS = 64
_ROUNDS = 3
"""Of one job: one sample."""
_TARGET_PERCENT = 3.0
_ROLLOUT = re.compile(r'^nitro_scaler_actor_seconds_total\{stage="rollout"\} (\S+)$', re.MULTILINE)


def measure(effort: Effort) -> list[Row]:
    """Train short jobs and divide their rounds up."""
    cores = os.cpu_count() or 1
    progress("starting the local system")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSystem(Path(folder), processes=cores) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        system.wait_ready()
        num_actors = effort.of(_NUM_ACTORS, quick=4)
        training = LocalTraining(
            system=system,
            client=client,
            runs_dir=Path(folder),
            spec=JobSpec(
                env_id="Hopper-v5",
                actors=ActorRange(min=num_actors, max=num_actors),
                scaling=FixedScaling(policy="fixed", num_actors=num_actors),
                stop=StopRule(max_rounds=effort.of(_ROUNDS, quick=1), budget_usd=100.0),
                evaluation=EvaluationRule(every_rounds=0),
            ),
        )
        training.sample()  # warm up
        shares = []
        for _ in range(effort.of(5, quick=1)):
            progress("training")
            training.results.clear()
            before_s = _rollout_s(system)
            training.sample()
            simulation_s = (_rollout_s(system) - before_s) / cores
            total_s = sum(r.timing.total_s for r in training.results)
            steps_s = sum(r.timing.update_s for r in training.results)
            shares.append(100 * (total_s - steps_s - simulation_s) / total_s)
            last = training.results[-1].timing
    stages = {name: f"{getattr(last, name):.3f}" for name in type(last).model_fields}
    return [
        Row(
            what=f"overhead of a round of {num_actors} actors",
            ours=Series(
                name="nitro", unit="%", better="lower", samples=tuple(shares), about=stages
            ),
            target=Target(of="ours", bound="at_most", value=_TARGET_PERCENT),
        )
    ]


def _rollout_s(system: LocalSystem) -> float:
    """Return the seconds all actors so far have spent in their rollouts."""
    response = httpx.get(
        f"{system.api_url}/metrics",
        headers={"Authorization": f"Bearer {system.token}"},
        trust_env=False,
    )
    found = _ROLLOUT.search(response.raise_for_status().text)
    return float(found.group(1)) if found else 0.0
