"""The kind of a job's learner: a GPU machine, a few cores, or the user's own program.

A machine with a GPU costs ten times as much an hour as the two cores of a small task. An H200
updates a convolutional network 25 times as fast as one core, and a dense one seven times as fast
(`docs/benchmarks.md`). The billed machines have smaller GPUs, which were not measured. They are
assumed to pay off with images only.
"""

from typing import Literal

from shared.hyperparameters.presets import Preset

MachineKind = Literal["gpu", "cpu"]
"""Learners that a deployment starts and bills."""
MACHINE_KINDS: tuple[MachineKind, ...] = ("gpu", "cpu")
LearnerKind = Literal["gpu", "cpu", "external"]
"""`external`: a program that leases one job by its id, such as `nitro.ActorPool`. It is neither
started nor billed.
"""
LEARNER_KINDS: tuple[LearnerKind, ...] = ("gpu", "cpu", "external")
LearnerChoice = Literal["auto", "gpu", "cpu", "functions", "external"]
PRESET_LEARNER: dict[Preset, LearnerChoice] = {"paper": "gpu", "standard": "auto"}
"""A preset's kind of learner: the paper's is a p3.2xlarge (section 8.1)."""


def learner_kind(asked: LearnerChoice | None, *, images: bool) -> LearnerKind:
    """Return the kind of learner of a job.

    Args:
        asked: The job's field. None, in jobs of older versions, means a GPU.
        images: Whether it observes images, so that its network is convolutional.
    """
    if asked == "auto":
        return "gpu" if images else "cpu"
    if asked == "functions":
        return "cpu"  # it aggregates gradients of functions
    return asked or "gpu"


def why_learner(asked: LearnerChoice | None, kind: LearnerKind) -> str:
    """Return in words why a job has a kind of learner."""
    if asked != "auto":
        return "set by the job or its preset"
    if kind == "gpu":
        return "auto: a GPU is assumed to save a convolutional network more than it costs"
    return "auto: a GPU is assumed to cost more than the time it saves a dense network"
