"""A job that a plan is made of."""

from dataclasses import replace

from nitro.planning.prices import learners
from nitro.planning.ways import Learner
from nitro.planning.workload import Workload
from shared.deployment.config import NitroConfig

CPU, GPU = learners(NitroConfig())

SLOW_STEP_S = 0.04
"""A slow simulator's."""


def a_job(*, step_s: float = 1e-4, total_steps: int = 204_800, **changed: object) -> Workload:
    usual = Workload(
        env_id="Any-v0",
        images=False,
        total_steps=total_steps,
        samples_per_round=2048,
        evaluate_every=0,
        evaluation_episodes=10,
        episode_steps=100,
        step_s=step_s,
        reset_s=0.0,
        call_s=0.003,
        update_s=0.1,
        gpu_update_s=0.05,
        bytes_per_sample=64.0,
    )
    return usual.model_copy(update=changed)


def at_once(learner: Learner) -> Learner:
    """Return a learner that is there, beside actors that are warm."""
    return replace(learner, start_s=0.0, basis=replace(learner.basis, cold_start_s=0.0))


def a_search(*, step_s: float = 6e-4, total_steps: int = 71_300_000, **changed: object) -> Workload:
    """Return a job like ARS in Humanoid: 310 iterations of 460 episodes."""
    episodes, steps = 4600, 500
    usual = a_job(
        step_s=step_s,
        total_steps=total_steps,
        samples_per_round=episodes * steps,
        episodes_per_round=episodes,
        iterations=10,
        episode_steps=steps,
        between_s=0.04,
        update_s=0.05,
        gpu_update_s=0.05,
        bytes_per_sample=10.0,
        policy_bytes=27_000.0,
    )
    return usual.model_copy(update=changed)
