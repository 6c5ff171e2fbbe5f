"""Real training runs for a scheduler to learn from: one job per episode, through the API."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from experiments.minionsrl.episode import SchedulingEpisode, round_rewards
from nitro.cli.interrupts import Interrupts
from nitro.client.client import NitroClient
from nitro.client.errors import ApiUnreachableError
from nitro.client.follow import follow
from nitro.errors import EXIT_FAILED, CommandError
from nitro.local.access import Api
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.minions_agent import (
    MinionsAgent,
    SchedulerState,
    choice_probabilities,
    drawn_count,
)
from shared.contracts.rounds import RoundRecord
from shared.contracts.scaling_spec import MinionsScaling
from shared.trajectory.seeds import round_uniform

_USUAL_KL = 0.01
_USUAL_RETURN = 100.0


class RealRuns:
    """Trains one job after another, each scheduled by the agent as it is by then.

    Args:
        api: Where jobs run.
        spec: What each of them is; its scaling is replaced and its seed counted up.
        interrupts: Ends a wait.
    """

    def __init__(self, api: Api, spec: JobSpec, *, interrupts: Interrupts) -> None:
        self._api = api
        self._spec = spec
        self._interrupts = interrupts

    @property
    def num_choices(self) -> int:
        """The job's most actors."""
        return self._spec.actors.max

    @property
    def scales(self) -> tuple[float, ...]:
        """Guesses: nothing has been measured yet."""
        stop = self._spec.stop
        usual_return = abs(stop.target_return or 0.0) or _USUAL_RETURN
        return (
            float(stop.max_rounds),
            1.0,
            usual_return,
            _USUAL_KL,
            1.0,
            1.0,
            1.0,
            stop.budget_usd,
        )

    def play(self, agent: MinionsAgent, index: int) -> SchedulingEpisode:
        """Train one job to its end.

        Raises:
            CommandError: It failed, or was stopped from elsewhere.
        """
        scaling = MinionsScaling(policy="minionsrl", agent=agent)
        update = {"scaling": scaling, "seed": self._spec.seed + index}
        spec = self._spec.model_copy(update=update)
        job = self._api.client.submit(spec)
        self._api.wait_ready()
        for snapshot in follow(
            self._api.client, job.job_id, check=self._api.check, pause=self._interrupts.pause
        ):
            job = snapshot.job
            if self._interrupts.asked:
                with contextlib.suppress(ApiUnreachableError):  # the next look has its own patience
                    self._api.client.stop(job.job_id)
        if self._interrupts.asked:
            raise KeyboardInterrupt
        if job.status == "failed":
            raise CommandError(f"{job.job_id} failed: {job.error}", exit_code=EXIT_FAILED)
        if job.stop_reason == "user":
            raise CommandError(
                f"{job.job_id} was stopped from elsewhere: a run cut short teaches nothing",
                exit_code=EXIT_FAILED,
            )
        return played_episode(self._api.client, job, agent)


def played_episode(client: NitroClient, job: Job, agent: MinionsAgent) -> SchedulingEpisode:
    """Read back what an agent saw and drew in a job that has ended."""
    records = [record for record in client.every_round(job.job_id) if record.result is not None]
    states = scheduler_states(job.spec, records)
    durations = [r.result.timing.total_s for r in records if r.result is not None]
    best = job.progress.best_return
    return SchedulingEpisode(
        states=states,
        choices=tuple(
            _drawn(agent, job.spec, state, r) for state, r in zip(states, records, strict=True)
        ),
        rewards=round_rewards(
            durations, best_return=best, target_return=job.spec.stop.target_return
        ),
        duration_s=sum(durations),
        cost_usd=client.cost(job.job_id).settled_usd,
        best_return=best,
    )


def scheduler_states(spec: JobSpec, records: Sequence[RoundRecord]) -> tuple[SchedulerState, ...]:
    """Return the state before each round, as the scaler made it."""
    return tuple(
        _state(spec, record, records[: spec.rounds_behind(record.plan.round)]) for record in records
    )


def _state(spec: JobSpec, record: RoundRecord, ended: Sequence[RoundRecord]) -> SchedulerState:
    """Return the state before a round, by when `ended` were over and no others."""
    results = [each.result for each in ended if each.result is not None]
    evaluations = [r.evaluation.mean_return for r in results if r.evaluation is not None]
    returns = [value for value in evaluations if value is not None]
    state = SchedulerState(
        round_index=float(record.plan.round),
        mean_return=returns[-1] if returns else 0.0,
        remaining_usd=max(0.0, spec.stop.budget_usd - record.plan.spent_usd),
    )
    if not results:
        return state
    last = results[-1]
    return replace(
        state,
        learner_loss=last.stats.get("loss", 0.0),
        kl=last.stats.get("kl", 0.0),
        learner_s=last.timing.learner_s,
        actor_s=last.timing.collect_s,
    )


def _drawn(agent: MinionsAgent, spec: JobSpec, state: SchedulerState, record: RoundRecord) -> int:
    """Return what was drawn before it was held to the range: the same draw from the same state."""
    uniform = round_uniform(spec.seed, purpose="minionsrl", round_index=record.plan.round)
    return drawn_count(choice_probabilities(agent, state), uniform)
