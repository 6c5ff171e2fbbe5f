"""The learner on a GPU beside the same learner on the CPU: equal results, and how fast.

    python -m benchmarks gpu

One round of real rollouts is learned from on both, from equal weights and with equal minibatches.
How far the results may differ is seen after one pass: rounding grows from step to step, on one
device as on two, and after thirty passes tells nothing about the device. The share the curvature
takes is that of whole rounds of the local system, whose learner takes the GPU.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.actors.real_actor import STEPS, RealActor
from benchmarks.local_training import LocalTraining
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.records.result import Row, Series, Target
from learning.algorithms.ppo import Ppo
from learning.cpu.torch_settings import configure_torch
from learning.detectors.hessian import HessianDetector
from learning.networks.building import policy_payload
from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import Curvature
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.trajectory import Trajectory

TITLE = "The learner on a GPU beside the CPU"
_TOLERATED_PERCENT = 1.0
_SHARE_PERCENT = 1.0
_NUM_ACTORS = 16
_ROUNDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A network, and the round it learns from."""

    name: str
    env_id: str
    num_actors: int
    num_epochs: int
    rule: DetectorRule


_SUBJECTS = (
    _Subject(
        name="MLP", env_id="Hopper-v5", num_actors=_NUM_ACTORS, num_epochs=30, rule=DetectorRule()
    ),
    _Subject(
        name="CNN",
        env_id="ALE/SpaceInvaders-v5",
        num_actors=4,
        num_epochs=4,
        rule=DetectorRule(num_samples=128),
    ),
)


@dataclass(slots=True)
class _Learner:
    """PPO on one device, and what it found."""

    device: str
    subject: _Subject
    num_epochs: int
    algorithm: Ppo

    def sample_update(self, trajectories: Sequence[Trajectory]) -> float:
        """Update once; return samples per second, each counted once per pass."""
        samples = sum(trajectory.reward.size for trajectory in trajectories)
        return samples * self.num_epochs / self._timed(lambda: self.algorithm.learn(trajectories))

    def sample_curvature(self) -> float:
        """Measure the curvature of the last update once; return the seconds it took."""
        return self._timed(self.curvature)

    def curvature(self) -> Curvature:
        """Return the curvature of the last update.

        Raises:
            RuntimeError: There is none.
        """
        samples = self.algorithm.samples()
        if samples is None:
            raise RuntimeError("there was no update")
        found = HessianDetector(self.subject.rule).measure(self.algorithm.network, samples)
        if found is None:
            raise RuntimeError("the round has no curvature to measure")
        return found

    def parameters(self) -> torch.Tensor:
        """Return a copy of all parameters # [P] float64 on the CPU."""
        return self.algorithm.network.flat.detach().cpu().double().clone()

    def _timed(self, action: Callable[[], object]) -> float:
        _finish(self.device)
        start = time.perf_counter()
        action()
        _finish(self.device)
        return time.perf_counter() - start


def measure(effort: Effort) -> list[Row]:
    """Learn on both devices, then train through the local system.

    Raises:
        RuntimeError: There is no GPU, or torch cannot use it.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no GPU on this machine")
    configure_torch()
    rows = [row for subject in _SUBJECTS for row in _subject_rows(subject, effort)]
    return [*rows, *_round_rows(effort)]


def _subject_rows(subject: _Subject, effort: Effort) -> list[Row]:
    progress(f"{subject.name}: one round of rollouts")
    actor = RealActor(subject.env_id)
    once = PpoHyperparameters(num_epochs=1)
    on_cpu, on_gpu = (_learner(device, subject, actor, once) for device in ("cpu", "cuda"))
    actor.policy = load_policy(*policy_payload(on_cpu.algorithm.network))
    trajectories = actor.fragments(subject.num_actors)
    before = on_cpu.parameters()
    for learner in (on_cpu, on_gpu):
        learner.algorithm.learn(trajectories)
    moved = on_cpu.parameters() - before
    apart = float((on_gpu.parameters() - on_cpu.parameters()).norm() / moved.norm())
    # The curvature of one policy, with advantages of one value function, on both.
    on_gpu.algorithm.network.flat.copy_(on_cpu.algorithm.network.flat)
    progress(f"{subject.name}: curvature and updates on both")
    repeats = effort.of(5)
    curvatures = interleaved(
        {"cpu": on_cpu.sample_curvature, "gpu": on_gpu.sample_curvature}, repeats=repeats
    )
    whole = PpoHyperparameters(num_epochs=effort.of(subject.num_epochs, quick=1))
    cpu, gpu = (_learner(device, subject, actor, whole) for device in ("cpu", "cuda"))
    updates = interleaved(
        {
            "cpu": lambda: cpu.sample_update(trajectories),
            "gpu": lambda: gpu.sample_update(trajectories),
        },
        repeats=repeats,
    )
    return [
        _row(f"{subject.name}: update", "samples/s", updates, better="higher"),
        _tolerance_row(f"{subject.name}: parameters after one pass, of the way moved", 100 * apart),
        _row(f"{subject.name}: curvature", "s", curvatures, better="lower"),
        *_eigenvalue_rows(subject, on_cpu.curvature(), on_gpu.curvature()),
    ]


def _learner(
    device: str, subject: _Subject, actor: RealActor, hyperparameters: PpoHyperparameters
) -> _Learner:
    algorithm = Ppo(actor.environment, hyperparameters, seed=0, device=device)
    return _Learner(device, subject, hyperparameters.num_epochs, algorithm)


def _eigenvalue_rows(subject: _Subject, cpu: Curvature, gpu: Curvature) -> list[Row]:
    scale = max(abs(cpu.lambda_max), abs(cpu.lambda_min))
    return [
        _tolerance_row(f"{subject.name}: {end}, distance", 100 * abs(ours - theirs) / scale)
        for end, ours, theirs in (
            ("λmax", gpu.lambda_max, cpu.lambda_max),
            ("λmin", gpu.lambda_min, cpu.lambda_min),
        )
    ]


def _round_rows(effort: Effort) -> list[Row]:
    """Return what whole rounds of the local system take, its learner on the GPU."""
    rounds = effort.of(_ROUNDS)
    spec = JobSpec.model_validate(
        {
            "env_id": "Hopper-v5",
            "steps_per_actor": STEPS,
            "actors": {"min": _NUM_ACTORS, "max": _NUM_ACTORS},
            "scaling": {"policy": "fixed", "num_actors": _NUM_ACTORS},
            "stop": {"max_rounds": rounds, "budget_usd": 100.0},
            "evaluation": {"every_rounds": 0},
        }
    )
    progress("whole rounds of the local system")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSystem(Path(folder)) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        system.wait_ready()
        training = LocalTraining(system=system, client=client, runs_dir=Path(folder), spec=spec)
        rates = tuple(training.sample() for _ in range(effort.of(3)))
    learned = training.results[rounds:]  # without the job that warmed up
    shares = [100 * r.timing.curvature_s / r.timing.total_s for r in learned]
    about = {
        name: f"{1000 * float(np.median([getattr(r.timing, name) for r in learned])):.1f} ms"
        for name in ("total_s", "update_s", "curvature_s")
    }
    what = f"Hopper-v5, {_NUM_ACTORS} actors"
    return [
        Row(
            what=f"{what}: share of the curvature in a round",
            ours=Series(name="GPU", unit="%", better="lower", samples=tuple(shares), about=about),
            target=Target(of="ours", bound="at_most", value=_SHARE_PERCENT),
        ),
        Row(
            what=f"{what}: training",
            ours=Series(name="GPU", unit="steps/s", better="higher", samples=rates),
        ),
    ]


def _row(what: str, unit: str, samples: dict[str, tuple[float, ...]], *, better: str) -> Row:
    ours, peer = (
        Series.model_validate(
            {"name": name, "unit": unit, "better": better, "samples": samples[key]}
        )
        for name, key in (("GPU", "gpu"), ("CPU, one core", "cpu"))
    )
    return Row(what=what, ours=ours, peer=peer)


def _tolerance_row(what: str, percent: float) -> Row:
    return Row(
        what=what,
        ours=Series(name="GPU from CPU", unit="%", better="lower", samples=(percent,)),
        target=Target(of="ours", bound="at_most", value=_TOLERATED_PERCENT),
    )


def _finish(device: str) -> None:
    """Wait for what the device was told to do."""
    if device == "cuda":
        torch.cuda.synchronize()
