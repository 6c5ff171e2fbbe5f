"""A job's workload, in seconds of one core here, and its rounds.

A round has the same number of samples everywhere, shared by its actors. The number of actors
changes its time and cost, but affects learning only by noise.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from shared.contracts.message import Count, Message, NonNegativeFloat, PositiveFloat, PositiveInt
from shared.contracts.scaling_spec import MAX_ACTORS
from shared.money.costs import CostBasis, cpu_share, launch_ramp_s, projected_duration_s
from shared.money.round_costs import MeasuredRound

PLAN_S = 0.012
"""Publishing the policy and requesting a round, as in recorded runs."""
LAUNCH_S = 0.001
"""From one actor's request to the next, as in recorded runs."""
NETWORK_BYTES_PER_S = 64e6
"""Rate at which the learner receives trajectories: half a gigabit a second."""


class Workload(Message):
    """One job. Times are those of one idle core of this machine."""

    env_id: str
    images: bool
    """Whether it sees images: then its network is convolutional."""
    total_steps: PositiveInt
    samples_per_round: PositiveInt
    episodes_per_round: Count = 0
    """Whole episodes of `episode_steps` that its actors share; 0 if they share samples."""
    iterations: PositiveInt = 1
    """Equal parts of a search's round, one after the other."""
    envs_per_actor: PositiveInt = 1
    evaluate_every: Count
    """Rounds between evaluations; 0 for none."""
    evaluation_episodes: PositiveInt
    episode_steps: PositiveInt
    """Steps of an evaluation episode, and of each of a search."""
    step_s: PositiveFloat
    """A step of the environment, including the policy."""
    computing: NonNegativeFloat = 1.0
    """CPU share of that time. In the rest the simulator waited, or other processes had the core."""
    reset_s: NonNegativeFloat
    """A reset of the environment."""
    call_s: NonNegativeFloat
    """An actor's work besides its steps: policy, start, trajectory."""
    between_s: NonNegativeFloat = 0.0
    """From an iteration's last step to the first of the next: update and policy."""
    replay_s: NonNegativeFloat = 0.0
    """An actor's repeated steps before it continues an episode: half of the longest one. 0 if a
    process still has the environment.
    """
    update_s: NonNegativeFloat
    """The learner's work after a round: update, measurement and checkpoint."""
    gpu_update_s: NonNegativeFloat
    """The same on a GPU."""
    bytes_per_sample: NonNegativeFloat
    """Size of a trajectory on the wire."""
    policy_bytes: NonNegativeFloat = 0.0
    """Size of a policy, which every actor fetches."""
    open_rounds: PositiveInt = 1
    """Rounds that are open at a time: actors of one work while the learner learns from another."""
    warm_up_steps: Count = 0
    """Steps before the first update."""

    @property
    def useful_actors(self) -> int | None:
        """Return how many actors keep the learner busy; None if it waits for each round."""
        if self.open_rounds == 1:
            return None
        return max(1, math.ceil(self.samples_per_round * self.step_s / self.update_s))

    @property
    def most_actors(self) -> int:
        """The most actors of a round."""
        shares = self.episodes_per_round // self.iterations
        shares = shares or self.samples_per_round // self.envs_per_actor
        return min(shares, MAX_ACTORS)

    def with_iterations(self, iterations: int) -> Self:
        """Return the same job in rounds of this many iterations."""
        changed = {
            "iterations": iterations,
            "samples_per_round": self.samples_per_round // self.iterations * iterations,
            "episodes_per_round": self.episodes_per_round // self.iterations * iterations,
        }
        return self.model_copy(update=changed)

    def steps_of(self, num_actors: int) -> int:
        """Return the steps of each actor; of a search, those of one with the most episodes."""
        if self.episodes_per_round:
            return self._episodes_of(num_actors) * self.episode_steps
        return self.samples_per_round // (num_actors * self.envs_per_actor) * self.envs_per_actor

    def fragment_s(self, num_actors: int) -> float:
        """Return the seconds of each actor's share of a round."""
        resets_s = self._episodes_of(num_actors) * self.reset_s
        waits_s = (self.iterations - 1) * self.between_s
        steps_s = self.steps_of(num_actors) * self.step_s
        return self.call_s + self.replay_s + resets_s + waits_s + steps_s

    def _episodes_of(self, num_actors: int) -> int:
        each = self.episodes_per_round // self.iterations
        return self.iterations * math.ceil(each / num_actors)

    def samples_of(self, num_actors: int) -> int:
        """Return the steps of a round of this many actors."""
        if self.episodes_per_round:
            return self.samples_per_round
        return num_actors * self.steps_of(num_actors)

    @property
    def episode_s(self) -> float:
        """Seconds of an evaluation episode."""
        return self.call_s + self.reset_s + self.episode_steps * self.step_s

    def num_rounds(self, num_actors: int) -> int:
        """Return the number of the job's rounds with this many actors."""
        return math.ceil(self.total_steps / self.samples_of(num_actors))


@dataclass(frozen=True, slots=True)
class AlikeRounds:
    """A round, and the number of its kind."""

    measured: MeasuredRound
    count: int


def rounds(
    workload: Workload, num_actors: int, basis: CostBasis, *, learner_s: float
) -> Iterator[AlikeRounds]:
    """Yield a job's kinds of rounds: the first, those with and without evaluation, the end.

    Rounds of the warm-up have no update.

    Args:
        workload: The job.
        num_actors: Actors of every round, each with at least one step.
        basis: Prices, sizes and warm environments of the deployment.
        learner_s: The learner's own work after a round.
    """
    num_rounds = workload.num_rounds(num_actors)
    warm_up = min(num_rounds, workload.warm_up_steps // workload.samples_of(num_actors))
    every, episodes = workload.evaluate_every, workload.evaluation_episodes

    def evaluated_before(index: int) -> int:
        return math.ceil(index / every) if every else 0

    def alike(count: int, num_episodes: int, work_s: float, *, first: bool = False) -> AlikeRounds:
        made = _round(
            workload,
            basis,
            num_actors=num_actors,
            num_episodes=num_episodes,
            learner_s=work_s,
            first=first,
        )
        return AlikeRounds(made, count)

    for begin, end, work_s in ((0, warm_up, 0.0), (warm_up, num_rounds, learner_s)):
        evaluated = evaluated_before(end) - evaluated_before(begin)
        plain = end - begin - evaluated
        if begin == 0 < end:
            yield alike(1, episodes if every else 0, work_s, first=True)
            evaluated, plain = (evaluated - 1, plain) if every else (0, plain - 1)
        if evaluated:
            yield alike(evaluated, episodes, work_s)
        if plain:
            yield alike(plain, 0, work_s)
    if every:
        final = _round(
            workload, basis, num_actors=0, num_episodes=episodes, learner_s=0.0, first=False
        )
        yield AlikeRounds(final, 1)


def _round(
    workload: Workload,
    basis: CostBasis,
    *,
    num_actors: int,
    num_episodes: int,
    learner_s: float,
    first: bool,
) -> MeasuredRound:
    steps = workload.samples_of(num_actors) if num_actors else 0
    invocations = num_actors + num_episodes
    return foretold_round(
        basis,
        num_actors=num_actors,
        fragment_s=workload.fragment_s(num_actors) if num_actors else 0.0,
        episodes_s=(workload.episode_s,) * num_episodes,
        received_bytes=steps * workload.bytes_per_sample,
        learner_s=learner_s,
        cold=max(0, invocations - basis.provisioned) if first else 0,
        # The final evaluation is alone.
        open_rounds=workload.open_rounds if num_actors else 1,
    )


def on_functions(
    workload: Workload, num_actors: int, basis: CostBasis, *, cache_bytes_per_s: float
) -> Workload:
    """Return a search as functions play it; other jobs as they are.

    All actors fetch the policy of the next iteration at once. A round has as many iterations as its
    functions have time for.
    """
    if workload.iterations == 1:
        return workload
    share = cpu_share(basis.memory_mb)
    fetching_s = num_actors * workload.policy_bytes / cache_bytes_per_s
    # Waiting takes as long on a fraction of a core.
    between_s = share * (workload.between_s + fetching_s)
    one = workload.with_iterations(1)
    iterations = iterations_in_time(
        workload.iterations,
        begun_s=PLAN_S + max(launch_ramp_s(num_actors), LAUNCH_S * num_actors),
        iteration_s=(one.fragment_s(num_actors) + between_s) / share,
        timeout_s=basis.function_timeout_s,
    )
    waiting = workload.model_copy(update={"between_s": between_s})
    return waiting.with_iterations(iterations)


def iterations_in_time(most: int, *, begun_s: float, iteration_s: float, timeout_s: float) -> int:
    """Return a round's iterations: another one begins if twice their mean duration is left.

    That is the rule of `services.learner.rounds.search_collector`, where the mean duration includes
    the launch.

    >>> iterations_in_time(10, begun_s=0.0, iteration_s=10.0, timeout_s=60.0)
    5

    Args:
        most: Iterations of a round whose functions have no time-out.
        begun_s: From the round's request to its first iteration.
        iteration_s: From an iteration's policy to the next.
        timeout_s: The functions' time-out.
    """
    for done in range(1, most):
        age_s = begun_s + done * iteration_s
        if age_s + 2.0 * age_s / done > timeout_s:
            return done
    return most


def cache_bytes(workload: Workload, measured: MeasuredRound) -> float:
    """Return the cache's bytes in a round: policies to actors, trajectories to the learner."""
    received_bytes = (measured.overhead_s - PLAN_S) * NETWORK_BYTES_PER_S
    return measured.num_invocations * workload.policy_bytes + received_bytes


def foretold_round(
    basis: CostBasis,
    *,
    num_actors: int,
    fragment_s: float,
    episodes_s: Sequence[float],
    received_bytes: float,
    learner_s: float,
    cold: int,
    open_rounds: int = 1,
) -> MeasuredRound:
    """Return a round as it would be measured on Lambda.

    Args:
        basis: Prices, sizes and warm environments of the deployment.
        num_actors: 0 for a round of evaluation alone.
        fragment_s: Seconds of each actor on one core.
        episodes_s: Seconds of each evaluation episode.
        received_bytes: Bytes of all trajectories.
        learner_s: The learner's work after the round.
        cold: Cold starts.
        open_rounds: Number of rounds open at a time.
    """
    sample_s = _on_lambda_s(fragment_s, basis) if num_actors else 0.0
    evaluations_s = tuple(_on_lambda_s(each, basis) for each in episodes_s)
    invocations = num_actors + len(evaluations_s)
    return MeasuredRound(
        num_invocations=invocations,
        durations_s=(sample_s,) * num_actors + evaluations_s,
        slowest_sample_s=sample_s,
        slowest_evaluation_s=max(evaluations_s, default=0.0),
        requests=invocations,
        learner_s=learner_s,
        warm=min(invocations, basis.provisioned),
        cold=cold,
        launch_s=LAUNCH_S * invocations,
        overhead_s=PLAN_S + received_bytes / NETWORK_BYTES_PER_S,
        open_rounds=open_rounds,
    )


def _on_lambda_s(core_s: float, basis: CostBasis) -> float:
    return projected_duration_s(
        core_s, memory_mb=basis.memory_mb, timeout_s=basis.function_timeout_s
    )
