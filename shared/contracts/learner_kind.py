"""What a job's learner is: a machine with a GPU, a few cores, or a program of the user's own.

A machine with a GPU costs ten times as much an hour as the two cores of a small task. An H200
updates a convolutional network 25 times as fast as one core, and a dense one seven times as fast
(`docs/benchmarks.md`). The machines that are billed have smaller GPUs, which nobody measured. That
these earn their price with images, and only with them, is assumed.
"""

from typing import Literal

from shared.hyperparameters.presets import Preset

MachineKind = Literal["gpu", "cpu"]
"""Learners that a deployment starts and bills."""
MACHINE_KINDS: tuple[MachineKind, ...] = ("gpu", "cpu")
LearnerKind = Literal["gpu", "cpu", "external"]
"""`external`: a program that leases one job by its id, such as `nitro.ActorPool`. Nobody starts it,
and nobody bills it."""
LEARNER_KINDS: tuple[LearnerKind, ...] = ("gpu", "cpu", "external")
LearnerChoice = Literal["auto", "gpu", "cpu", "functions", "external"]
PRESET_LEARNER: dict[Preset, LearnerChoice] = {"paper": "gpu", "standard": "auto"}
"""What a preset learns on: the paper, a p3.2xlarge (section 8.1)."""


def learner_kind(asked: LearnerChoice | None, *, images: bool) -> LearnerKind:
    """Return the kind of learner of a job.

    Args:
        asked: What the job says. Jobs of earlier versions say nothing (None): they have a GPU.
        images: Whether it observes images, for which its network is convolutional.
    """
    if asked == "auto":
        return "gpu" if images else "cpu"
    if asked == "functions":
        return "cpu"  # it aggregates what functions compute
    return asked or "gpu"


def why_learner(asked: LearnerChoice | None, kind: LearnerKind) -> str:
    """Return in words why a job has a kind of learner."""
    if asked != "auto":
        return "as the job or its preset says"
    if kind == "gpu":
        return "auto: a GPU is assumed to save a convolutional network more than it costs"
    return "auto: a GPU is assumed to cost more than the time it saves a dense network"
