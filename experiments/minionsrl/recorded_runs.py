"""A cheap stand-in for training runs, fitted to recorded ones: where a scheduler can practise.

The model, as simple as it can be:

- a round's actor time, learner time and price are straight lines over its number of actors, fitted
  to all recorded rounds by least squares, never falling;
- the return depends on the environment steps made so far and on nothing else: the recorded
  evaluations (or, without any, training returns), averaged in twenty equal stretches of steps,
  straight lines between them, flat before and after, with normal noise as large as their spread;
- loss and KL are those of a recorded round of the same index, drawn at random;
- no actor is ever lost, and a run ends by its rounds, its budget or its target return.

So a scheduler learns what actors cost and what data is worth on average. That the worth of a round
may depend on its curvature is exactly what this model cannot teach it.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression, pstdev

from experiments.minionsrl.episode import SchedulingEpisode, round_rewards
from nitro.errors import CommandError
from nitro.runs.reading import Run, training_return
from shared.contracts.job_spec import JobSpec
from shared.contracts.minions_agent import (
    MinionsAgent,
    SchedulerState,
    choice_probabilities,
    drawn_count,
)
from shared.contracts.rounds import RoundResult

_STRETCHES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`intercept + slope * x`, never falling and never below 0."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        """Return the line's height."""
        return max(0.0, self.intercept + self.slope * x)


def fitted_line(points: Sequence[tuple[float, float]]) -> Line:
    """Return the least-squares line; a level one where it would fall or x never varies."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    if len(set(xs)) > 1:
        slope, intercept = linear_regression(xs, ys)
        if slope >= 0:
            return Line(slope=slope, intercept=intercept)
    return Line(slope=0.0, intercept=fmean(ys))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnCurve:
    """Mean return over environment steps."""

    steps: tuple[float, ...]
    """Increasing."""
    returns: tuple[float, ...]
    spread: float
    """Standard deviation around the curve."""

    def at(self, steps: float) -> float:
        """Return the curve's height."""
        right = bisect_right(self.steps, steps)
        if right in (0, len(self.steps)):
            return self.returns[min(right, len(self.steps) - 1)]
        x0, x1 = self.steps[right - 1], self.steps[right]
        y0, y1 = self.returns[right - 1], self.returns[right]
        return y0 + (y1 - y0) * (steps - x0) / (x1 - x0)


def fitted_curve(points: Sequence[tuple[float, float]]) -> ReturnCurve:
    """Return the curve through the means of twenty equal stretches of steps."""
    width = max(x for x, _ in points) / _STRETCHES or 1.0
    stretches: dict[int, list[tuple[float, float]]] = {}
    for x, y in points:
        stretches.setdefault(min(int(x / width), _STRETCHES - 1), []).append((x, y))
    middle = [
        (fmean(x for x, _ in s), fmean(y for _, y in s)) for _, s in sorted(stretches.items())
    ]
    curve = ReturnCurve(
        steps=tuple(x for x, _ in middle), returns=tuple(y for _, y in middle), spread=0.0
    )
    spread = pstdev([y - curve.at(x) for x, y in points])
    return ReturnCurve(steps=curve.steps, returns=curve.returns, spread=spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeRound:
    """The outcome of a simulated round; nothing before the first."""

    loss: float = 0.0
    kl: float = 0.0
    learner_s: float = 0.0
    actor_s: float = 0.0


class RecordedRuns:
    """Simulated runs after the likeness of recorded ones.

    Args:
        runs: Recorded runs, each with a finished round.
        spec: The job to simulate: its range, rounds, budget, target and evaluation.
        seed: Of what chance decides.

    Raises:
        CommandError: No recorded run has any return.
    """

    def __init__(self, runs: Sequence[Run], spec: JobSpec, *, seed: int) -> None:
        done = [(line.plan, line.result) for run in runs for line in run.rounds if line.result]
        returns = [point for run in runs for point in _returns(run)]
        if not returns:
            raise CommandError("--runs: no episode ended in any of them, so there is no return")
        self.spec = spec
        self.price_usd = fitted_line([point for run in runs for point in _prices(run)])
        self.curve = fitted_curve(returns)
        self.recorded_usd = sum(item.amount_usd for run in runs for item in run.ledger)
        self._seed = seed
        self._actor_s = fitted_line([(p.num_actors, r.timing.collect_s) for p, r in done])
        self._learner_s = fitted_line([(p.num_actors, r.timing.learner_s) for p, r in done])
        self._stats = _stats_by_round(r for _, r in done)

    def round_of(self, index: int, actors: int, chance: random.Random) -> PracticeRound:
        """Return what a round with so many actors looks like afterwards."""
        loss, kl = chance.choice(self._stats[min(index, len(self._stats) - 1)])
        return PracticeRound(
            loss=loss,
            kl=kl,
            learner_s=self._learner_s.at(actors),
            actor_s=self._actor_s.at(actors),
        )

    @property
    def num_choices(self) -> int:
        """The job's most actors."""
        return self.spec.actors.max

    @property
    def scales(self) -> tuple[float, ...]:
        """The largest each number becomes with the most actors in every round."""
        most = self.spec.actors.max
        actor_s, learner_s = self._actor_s.at(most), self._learner_s.at(most)
        losses = [abs(loss) for pairs in self._stats for loss, _ in pairs]
        kls = [abs(kl) for pairs in self._stats for _, kl in pairs]
        sizes = (
            float(self.spec.stop.max_rounds),
            max(losses, default=0.0),
            max(map(abs, self.curve.returns)),
            max(kls, default=0.0),
            learner_s,
            actor_s,
            learner_s + actor_s,
            self.spec.stop.budget_usd,
        )
        return tuple(size if size > 0 else 1.0 for size in sizes)

    def play(self, agent: MinionsAgent, index: int) -> SchedulingEpisode:
        """Simulate one run."""
        practice = _Practice(self, random.Random(f"{self._seed}/{index}"))
        while not practice.over:
            practice.step(agent)
        return practice.episode()


class _Practice:
    """One simulated run under way."""

    def __init__(self, model: RecordedRuns, chance: random.Random) -> None:
        self._model = model
        self._spec = model.spec
        self._chance = chance
        self._states: list[SchedulerState] = []
        self._choices: list[int] = []
        self._durations_s: list[float] = []
        self._evaluations: list[float] = []
        self._last = PracticeRound()
        self._env_steps = 0
        self._spent_usd = 0.0
        self.over = False

    def step(self, agent: MinionsAgent) -> None:
        """Make one round, or find that there is no money for it."""
        state = self._state()
        drawn = drawn_count(choice_probabilities(agent, state), self._chance.random())
        actors = self._spec.actors.clip(drawn)
        price_usd = self._model.price_usd.at(actors)
        if self._states and self._spent_usd + price_usd > self._spec.stop.budget_usd:
            self.over = True
            return
        every = self._spec.evaluation.every_rounds
        if every and len(self._states) % every == 0:
            self._evaluate()
        self._last = self._model.round_of(len(self._states), actors, self._chance)
        self._states.append(state)
        self._choices.append(drawn)
        self._durations_s.append(self._last.actor_s + self._last.learner_s)
        self._env_steps += actors * self._spec.steps_per_actor
        self._spent_usd += price_usd
        stop = self._spec.stop
        newest = self._evaluations[-1] if self._evaluations else -math.inf
        reached = stop.target_return is not None and newest >= stop.target_return
        self.over = reached or len(self._states) >= stop.max_rounds

    def episode(self) -> SchedulingEpisode:
        """Return the run, with its final evaluation."""
        self._evaluate()
        best = max(self._evaluations)
        target = self._spec.stop.target_return
        return SchedulingEpisode(
            states=tuple(self._states),
            choices=tuple(self._choices),
            rewards=round_rewards(self._durations_s, best_return=best, target_return=target),
            duration_s=sum(self._durations_s),
            cost_usd=self._spent_usd,
            best_return=best,
        )

    def _evaluate(self) -> None:
        curve = self._model.curve
        self._evaluations.append(self._chance.gauss(curve.at(self._env_steps), curve.spread))

    def _state(self) -> SchedulerState:
        return SchedulerState(
            round_index=float(len(self._states)),
            learner_loss=self._last.loss,
            mean_return=self._evaluations[-1] if self._evaluations else 0.0,
            kl=self._last.kl,
            learner_s=self._last.learner_s,
            actor_s=self._last.actor_s,
            remaining_usd=max(0.0, self._spec.stop.budget_usd - self._spent_usd),
        )


def _returns(run: Run) -> Iterator[tuple[float, float]]:
    """Yield environment steps and return of each evaluation; of training rounds without any.

    The steps are those that the policy had learned from.
    """
    evaluated, trained = [], []
    for line in run.rounds:
        steps = _steps_behind(run, line.plan.round)
        if line.evaluation is not None and line.evaluation.returns:
            evaluated.append((steps, fmean(line.evaluation.returns)))
        mean = training_return(line)
        if mean is not None:
            trained.append((steps, mean))
    yield from evaluated or trained


def _steps_behind(run: Run, round_index: int) -> float:
    behind = run.job.spec.rounds_behind(round_index)
    lines = (line for line in run.rounds if line.plan.round < behind)
    return float(sum(line.result.env_steps for line in lines if line.result))


def _prices(run: Run) -> Iterator[tuple[float, float]]:
    """Yield number of actors and price of each round."""
    usd: dict[int, float] = {}
    for item in run.ledger:
        usd[item.round] = usd.get(item.round, 0.0) + item.amount_usd
    for line in run.rounds:
        if line.result is not None:
            yield float(line.plan.num_actors), usd.get(line.plan.round, 0.0)


def _stats_by_round(results: Iterable[RoundResult]) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Return the recorded pairs of loss and KL of each round index."""
    pairs: dict[int, list[tuple[float, float]]] = {}
    for result in results:
        pair = (result.stats.get("loss", 0.0), result.stats.get("kl", 0.0))
        pairs.setdefault(result.round, []).append(pair)
    return tuple(tuple(pairs[index]) for index in sorted(pairs))
