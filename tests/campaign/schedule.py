"""Schedules of faults, drawn at random from a seed: what breaks when, and what is trained.

A moment is an event of the job, never a time: a round that is done, or one whose actors are all
waiting to start. So a schedule is the same wherever it is played, as far as processes let it be.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from nitro.local.plan import NAMES
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import tiny, tiny_search

Signal = Literal["kill", "terminate"]
Moment = Literal["done", "in flight"]
Algorithm = Literal["ppo", "impact", "ars", "sac"]
Trouble = Literal["crash", "duplicate", "throttle", "own actors"]
"""`own actors`: those on the learner's own cores are killed."""

ROUNDS = 6
_ROUNDS_PER_STRIKE = 2
"""Where the number of strikes is given: one waits until the job has gone on after the one before.
"""
BUDGET_USD = 4.0
NUM_SEEDS = 3
"""Seeds of the jobs: few, so that few undisturbed runs are needed to compare with."""
_WHOLE_SHARE = 0.25
_TROUBLE_SHARE = 0.3
_PAUSE_SHARE = 0.1
_OFF_POLICY_SHARE = 0.2
_OWN_SHARE = 0.2
_MOST_STRIKES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault at one moment."""

    round: int
    """Rounds that are done before it."""
    moment: Moment
    """`in flight`: wait until actors of the round after those are, too."""
    victims: tuple[tuple[str, Signal], ...] = ()
    """Processes in the order they end, and how; then they are started again together."""
    whole: bool = False
    """Whether the whole system is closed and another one started on its folder instead."""
    pause: bool = False
    """Whether the job's learner is stopped instead, and wakes when another has ended the job."""
    trouble: Trouble | None = None
    """What goes wrong with actors instead, and no process ends."""

    def __str__(self) -> str:
        ended = "+".join(f"{name}:{signal}" for name, signal in self.victims)
        what = self.trouble or (f"whole system ({ended})" if self.whole else ended)
        what = "learner paused" if self.pause else what
        return f"{what} at round {self.round} {self.moment}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A job and what is done to it."""

    seed: int
    index: int
    job: JobSpec
    strikes: tuple[Strike, ...]

    @property
    def learners(self) -> int:
        """How many there must be: a second one takes over from one that is paused."""
        return 1 + any(strike.pause for strike in self.strikes)

    @property
    def in_order(self) -> bool:
        """Whether its weights must be those of an undisturbed run."""
        return self.job.learns_in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The seed and the options from which schedules are drawn."""

    seed: int
    algorithm: Algorithm | None = None
    """Of every job; None draws PPO or IMPACT."""
    strikes: int | None = None
    """In each schedule; None draws a few."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        options = (self.algorithm, self.strikes, self.seed)
        return "-".join(["campaign", *(str(option) for option in options if option is not None)])

    @property
    def rounds(self) -> int:
        """Rounds of each job."""
        return ROUNDS if self.strikes is None else _ROUNDS_PER_STRIKE * self.strikes

    @property
    def references(self) -> list[JobSpec]:
        """Jobs whose undisturbed weights others with their seeds must have."""
        algorithm = self.algorithm or "ppo"
        jobs = (job_spec(seed, algorithm, rounds=self.rounds) for seed in range(NUM_SEEDS))
        return [job for job in jobs if job.learns_in_order]


def draw(campaign: Campaign, index: int) -> Schedule:
    """Return schedule `index` of a campaign."""
    seed = campaign.seed
    dice = random.Random(f"{seed}/{index}")
    if campaign.strikes is None:
        rounds = dice.choices(range(ROUNDS), k=dice.randint(1, _MOST_STRIKES))
    else:
        rounds = dice.sample(range(campaign.rounds), campaign.strikes)
    job_seed = dice.randrange(NUM_SEEDS)
    drawn: Algorithm = "impact" if dice.random() < _OFF_POLICY_SHARE else "ppo"
    job = job_spec(job_seed, campaign.algorithm or drawn, rounds=campaign.rounds)
    strikes = tuple(_strike(dice, round_index) for round_index in sorted(rounds))
    # By dice of its own, so that all other schedules stay as they were before there were pauses.
    pauses = random.Random(f"{seed}/{index}/paused")
    if campaign.strikes is None and pauses.random() < _PAUSE_SHARE:
        round_index = pauses.randrange(1, ROUNDS - 2)
        strikes = (Strike(round=round_index, moment="in flight", pause=True),)
    elif random.Random(f"{seed}/{index}/own").random() < _OWN_SHARE:
        # Its actors run on the learner's own cores: nothing of it is in flight in the emulator.
        job = job.model_copy(update={"actors": job.actors.model_copy(update={"own": 2})})
        strikes = tuple(_on_own_cores(strike) for strike in strikes)
    return Schedule(
        seed=seed,
        index=index,
        job=job,
        strikes=strikes,
    )


def job_spec(seed: int, algorithm: Algorithm, *, rounds: int = ROUNDS) -> JobSpec:
    """Return a small job, whose episodes go on from round to round unless its seed is 0."""
    changes: dict[str, Any] = {
        "algorithm": algorithm,
        "seed": seed,
        "stop": {"max_rounds": rounds, "budget_usd": BUDGET_USD},
    }
    if algorithm == "ars":
        return tiny_search(hyperparameters={"directions": 4, "iterations": 3}, **changes)
    changes["episodes"] = {"horizon": "limit" if seed else "fragment"}
    if algorithm == "impact":
        changes["hyperparameters"] = {"hidden_sizes": [32, 32]}
    if algorithm == "sac":
        changes |= {
            "env_id": "Pendulum-v1",
            "scaling": {"policy": "fixed", "num_actors": 4},
            "steps_per_actor": 16,
            "hyperparameters": {
                "hidden_sizes": [16, 16],
                "minibatch_size": 32,
                "learning_starts": 100,
            },
        }
    return tiny(**changes)


def _strike(dice: random.Random, round_index: int) -> Strike:
    moment: Moment = dice.choice(("done", "in flight"))
    if dice.random() < _TROUBLE_SHARE:
        trouble: Trouble = dice.choice(("crash", "duplicate", "throttle"))
        return Strike(round=round_index, moment="done", trouble=trouble)
    whole = dice.random() < _WHOLE_SHARE
    number = len(NAMES) if whole else dice.choice((1, 1, 2, 3, 4))
    return Strike(
        round=round_index, moment=moment, victims=_victims(dice, NAMES, number), whole=whole
    )


def _on_own_cores(strike: Strike) -> Strike:
    trouble: Trouble | None = "own actors" if strike.trouble else None
    return replace(strike, moment="done", trouble=trouble)


def _victims(
    dice: random.Random, names: Sequence[str], number: int
) -> tuple[tuple[str, Signal], ...]:
    signals: tuple[Signal, ...] = ("kill", "kill", "terminate")
    return tuple((name, dice.choice(signals)) for name in dice.sample(names, number))
