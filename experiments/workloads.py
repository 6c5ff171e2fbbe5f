"""What recorded runs asked of machines: for projecting them to machines that they never ran on.

All times are those that were measured in the run. Actors are taken to have kept every core of the
machine busy while the learner waited for them, which holds where one job runs at a time.
"""

from statistics import fmean

from experiments.outcome import JobOutcome
from nitro.planning.workload import LAUNCH_S, Workload
from shared.contracts.job_spec import JobSpec

CALL_S = 0.003
"""What an actor did beside its steps, as measured in jobs whose fragments are long."""
_BYTES_PER_SAMPLE = 128.0
"""About; where every fragment leaves an episode, more than of plain steps."""


def workload_of(
    spec: JobSpec, run: JobOutcome, *, episode_steps: int, total_steps: int | None = None
) -> Workload:
    """Return a run as a job that could be trained elsewhere.

    Args:
        spec: What was asked for: vectors as observations, and equal numbers of actors.
        run: What came of it, one job at a time on its machine.
        episode_steps: Steps of an evaluation episode.
        total_steps: Steps to project; None is all of the run's.
    """
    every, cores = spec.evaluation.every_rounds, run.environment.num_cpus
    # An evaluation shares the cores with the actors of its round.
    plain = [r for k, r in enumerate(run.rounds) if k and not (every and k % every == 0)]
    fragment_s = fmean(
        (r.timing.collect_s - LAUNCH_S * r.num_actors) * cores / r.num_actors for r in plain
    )
    steps = spec.steps_of(plain[0].num_actors)
    # An episode that is taken up repeats its last step.
    repeated = int(spec.resolved().episodes.go_on)
    step_s = max(1e-9, fragment_s - CALL_S) / (steps + repeated)
    learner_s = fmean(r.timing.learner_s for r in run.rounds)
    return Workload(
        env_id=spec.env_id,
        images=False,
        total_steps=total_steps or run.env_steps,
        samples_per_round=plain[0].env_steps,
        evaluate_every=every,
        evaluation_episodes=spec.evaluation.episodes,
        episode_steps=episode_steps,
        step_s=step_s,
        reset_s=0.0,
        call_s=CALL_S + repeated * step_s,
        update_s=learner_s,
        gpu_update_s=learner_s,
        bytes_per_sample=_BYTES_PER_SAMPLE,
    )
