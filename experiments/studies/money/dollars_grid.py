"""The runs of `dollars`: fixed numbers of actors and every policy, each to a return."""

import itertools
import math
from collections.abc import Mapping

from experiments.experiment import Done
from experiments.grid import Body, CellId, Grid, Scale, first, fixed, job_body, schedule
from experiments.outcome import JobOutcome
from experiments.repricing import updates_to

TARGETS: Mapping[str, float] = {
    "Hopper-v4": 2000.0,
    "HalfCheetah-v4": 1500.0,
    "Walker2d-v4": 2000.0,
    "Humanoid-v4": 500.0,
}
"""Returns that are worth having, by environment."""
PAPER, NITRO, REVERSED = "the paper's", "nitro", "nitro, reversed in time"
MARGINAL = "marginal"
WIDER = "marginal, from 4"
"""Its range begins at the fewest fragments that it can compare, the others' at 8 as the paper's."""
FIXED = (2, 4, 8, 16, 32, 64)
EQUAL_STEPS = {"fixed 16, steps of 8": 128, "fixed 32, steps of 8": 256}
"""Minibatches of 8 samples an actor: a round has as many gradient steps, and passes over its
samples, as a round of 8 actors whose minibatches have 64."""
COST_RATIO = 3.0
"""The ratio given to `marginal`: a round's fixed dollars over an actor's, for a CPU learner."""
_POLICIES: dict[str, Body] = {
    NITRO: {"policy": "nitro"},
    "random": {"policy": "random"},
    "kungfu": {"policy": "kungfu"},
    MARGINAL: {"policy": "marginal", "cost_ratio": COST_RATIO},
}
_STEPS_PER_ACTOR = 256
MOST_STEPS = 1_000_000
"""After which a run has not had its return in time."""
_ROUNDS = MOST_STEPS // (8 * _STEPS_PER_ACTOR)
"""Of a policy that chooses: a million steps where it always chooses the fewest."""
_EVALUATED_STEPS = 32_768
_CHOOSER_LOOKS = 4
"""Rounds between two evaluations of a policy that chooses: 8,192 to 65,536 steps."""


def fixed_name(num_actors: int) -> str:
    """Return the condition with a fixed number of actors."""
    return f"fixed {num_actors}"


def plan(scale: Scale, done: Done) -> Grid:
    """Every number and every policy; the reversed one once Nitro's run of its seed is done."""
    grid = Grid()
    for seed in range(scale.seeds):
        for env_id, target in first(scale, tuple(TARGETS.items())):
            for name, num_actors in _numbers(scale).items():
                body = _fixed_body(scale, env_id, target, num_actors)
                if name in EQUAL_STEPS:
                    body["hyperparameters"] = {"minibatch_size": EQUAL_STEPS[name]}
                grid.add_job(name, env_id, seed, body)
            choosing = (_ROUNDS, scale.of((8, 64), (2, 4)), _CHOOSER_LOOKS)
            body = _body(scale, env_id, target, *choosing)
            for name, scaling in _POLICIES.items():
                grid.add_job(name, env_id, seed, {**body, "scaling": scaling})
            wider = _body(
                scale, env_id, target, 2 * _ROUNDS, scale.of((4, 64), (2, 4)), 2 * _CHOOSER_LOOKS
            )
            grid.add_job(WIDER, env_id, seed, {**wider, "scaling": _POLICIES[MARGINAL]})
            paper = _body(scale, env_id, target, *choosing, preset="paper")
            grid.add_job(PAPER, env_id, seed, {**paper, "scaling": _POLICIES[NITRO]})
            nitro = done.get(CellId(NITRO, env_id, seed))
            if nitro is not None:
                reverse = schedule(_reversed(nitro, env_id, scale.of(_ROUNDS, 3)))
                grid.add_job(REVERSED, env_id, seed, {**body, "scaling": reverse})
    return grid


def _reversed(nitro: JobOutcome, env_id: str, rounds: int) -> list[int]:
    """Return the actors of the rounds until its return, the last first; then it stays there.

    An evaluation runs beside a round, which says nothing any more where it has the return.
    """
    before = [0, *itertools.accumulate(each.env_steps for each in nitro.rounds)]
    made = zip(before, nitro.rounds[: updates_needed(nitro, env_id)], strict=False)
    counts = [each.num_actors for steps, each in made if steps < MOST_STEPS][::-1]
    return counts + counts[-1:] * (rounds - len(counts))


def _numbers(scale: Scale) -> dict[str, int]:
    """Return the conditions with a fixed number of actors."""
    numbers = {fixed_name(n): n for n in scale.of(FIXED, (2, 4))}
    return numbers | scale.of({name: size // 8 for name, size in EQUAL_STEPS.items()}, {})


def _fixed_body(scale: Scale, env_id: str, target: float, num_actors: int) -> Body:
    rounds = math.ceil(MOST_STEPS / (_STEPS_PER_ACTOR * num_actors))
    looks = max(1, round(_EVALUATED_STEPS / (_STEPS_PER_ACTOR * num_actors)))
    body = _body(scale, env_id, target, rounds, (num_actors, num_actors), looks)
    return {**body, "scaling": fixed(num_actors)}


def _body(
    scale: Scale,
    env_id: str,
    target: float,
    rounds: int,
    actors: tuple[int, int],
    looks: int,
    *,
    preset: str = "standard",
) -> Body:
    body = job_body(
        scale, env_id, rounds=rounds, actors=actors, evaluate_every=looks, preset=preset
    )
    stop, evaluation = body["stop"], body["evaluation"]
    assert isinstance(stop, dict)
    assert isinstance(evaluation, dict)
    changes: Body = {
        "stop": {**stop, "target_return": target},
        "evaluation": {**evaluation, "episodes": scale.of(5, 2)},
    }
    if preset != "paper":
        changes["episodes"] = {}  # as long as the preset has them: the environment's own
    return {**body, **changes}


def updates_needed(run: JobOutcome, env_id: str) -> int | None:
    """Return the updates after which a run had its return; None if it had not in time."""
    return updates_to(run, TARGETS[env_id], most_steps=MOST_STEPS)
