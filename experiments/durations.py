"""How long the parts of a round take on one core, and how they were calibrated.

Experiments about money count what a run did, and multiply by these. So neither a run nor its price
depends on how busy the machine was. All are CPU time of one process with one thread: what others
take of the cores in the meantime is not in them, but what they take of caches and of a core's other
thread is.
"""

from pathlib import Path

from experiments.outcome import Outcome
from nitro.planning.measuring import CHECKPOINT_S, GPU_TIMES_A_CORE
from nitro.planning.workload import Workload
from shared.contracts.learner_kind import LearnerKind
from shared.contracts.message import NonNegativeFloat, PositiveFloat, PositiveInt

RESULTS = Path(__file__).parent / "results"
"""Where calibrations lie that belong to the recorded runs."""
SECOND_CORE = 0.6
"""Part of one core's time that an update takes on two: 66 of 145 ms and 1.0 of 1.7 s were measured
on an idle machine (decision 018)."""


class Durations(Outcome):
    """Seconds of one core, of one environment with one set of hyper-parameters."""

    step_s: PositiveFloat
    """A step of the environment, the policy's choice included."""
    reset_s: NonNegativeFloat
    call_s: NonNegativeFloat
    """Seconds of an actor beside its steps."""
    update_fixed_s: NonNegativeFloat
    """Of an update, however many gradient steps it has."""
    gradient_step_s: PositiveFloat
    """Of one gradient step on a whole minibatch, with what is done once for its samples."""
    measuring_s: NonNegativeFloat
    """Of one measurement of the policy: its curvature."""
    num_epochs: PositiveInt
    minibatch_size: PositiveInt
    bytes_per_sample: NonNegativeFloat

    def fragment_s(self, steps: int) -> float:
        """Return what an actor takes for so many steps."""
        return self.call_s + steps * self.step_s

    def episode_s(self, steps: int) -> float:
        """Return what an evaluation episode of so many steps takes."""
        return self.call_s + self.reset_s + steps * self.step_s

    def gradient_steps(self, samples: int) -> int:
        """Return how many gradient steps a round of so many samples has."""
        return self.num_epochs * -(-samples // self.minibatch_size)

    def learner_s(
        self, gradient_steps: int, kind: LearnerKind, *, measurements: float = 1.0
    ) -> float:
        """Return a learner's own work after a round.

        Args:
            gradient_steps: Of the update.
            kind: A GPU machine, or two cores.
            measurements: Of the policy; a fraction of one that is as long.
        """
        update_s = self.update_fixed_s + gradient_steps * self.gradient_step_s
        measuring_s = measurements * self.measuring_s
        if kind == "gpu":
            update_times, measuring_times = GPU_TIMES_A_CORE[False]
            return update_s / update_times + measuring_s / measuring_times + CHECKPOINT_S
        return SECOND_CORE * update_s + measuring_s + CHECKPOINT_S

    def workload(
        self,
        env_id: str,
        *,
        total_steps: int,
        samples_per_round: int,
        evaluate_every: int,
        evaluation_episodes: int,
        episode_steps: int,
    ) -> Workload:
        """Return a job of rounds that are alike, as `nitro plan` would have measured it."""
        gradient_steps = self.gradient_steps(samples_per_round)
        return Workload(
            env_id=env_id,
            images=False,
            total_steps=total_steps,
            samples_per_round=samples_per_round,
            evaluate_every=evaluate_every,
            evaluation_episodes=evaluation_episodes,
            episode_steps=episode_steps,
            step_s=self.step_s,
            reset_s=self.reset_s,
            call_s=self.call_s,
            update_s=self.learner_s(gradient_steps, "cpu"),
            gpu_update_s=self.learner_s(gradient_steps, "gpu"),
            bytes_per_sample=self.bytes_per_sample,
        )


def split(
    few: tuple[int, float], many: tuple[int, float], *, num_epochs: int, minibatch_size: int
) -> tuple[float, float]:
    """Return an update's fixed seconds and those of each gradient step, from two sizes.

    Args:
        few: Samples, and seconds of an update on them.
        many: The same of a larger one.
        num_epochs: Passes over the samples.
        minibatch_size: Samples of a gradient step.

    >>> split((128, 1.25), (256, 2.25), num_epochs=10, minibatch_size=64)
    (0.25, 0.05)
    """
    steps = [num_epochs * -(-samples // minibatch_size) for samples, _ in (few, many)]
    each_s = max(1e-9, (many[1] - few[1]) / (steps[1] - steps[0]))
    return max(0.0, many[1] - steps[1] * each_s), each_s
