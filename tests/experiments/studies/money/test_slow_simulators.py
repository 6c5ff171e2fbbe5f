"""What `slow_simulators` makes of runs that were never run."""

import pytest

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome
from experiments.studies.money.calibration import STANDARD, durations
from experiments.studies.money.slow_simulators import (
    CONDITION,
    ENV_ID,
    claim,
    steps_to,
    whole_claim,
)
from nitro.planning.ways import Way
from tests.experiments.made_up import outcome

FULL = Scale(seeds=3, quick=False)


def a_run(*returns: float) -> JobOutcome:
    """A run that is evaluated before every round of 2,048 steps, and at the end."""
    made = outcome(returns, actors=[16] * (len(returns) - 1))
    evaluations = (
        each.model_copy(update={"env_steps": 2048 * each.updates}) for each in made.evaluations
    )
    return made.model_copy(update={"evaluations": tuple(evaluations)})


def found(*made: JobOutcome) -> dict[str, dict[str, tuple[str, ...]]]:
    done = {CellId(CONDITION, ENV_ID, seed): run for seed, run in enumerate(made)}
    summary = load("slow_simulators").find(FULL, done)
    return {
        table.title: {str(row[0]): tuple(map(str, row[1:])) for row in table.rows}
        for table in summary.tables
    }


def test_more_cores_are_faster_and_the_server_is_not_free() -> None:
    rows = found(a_run(*[10.0] * 20, 25.0))["To a return of 24"]
    minutes = {place: float(row[0].split()[0]) for place, row in rows.items()}
    usd = {place: float(row[1].split()[0]) for place, row in rows.items()}
    here, server, *serverless = minutes.values()
    least = 40_960 * durations(ENV_ID, STANDARD).step_s / 2 / 60
    assert least < here < 1.5 * least, "20 rounds of 2,048 steps on two cores, and what is beside"
    assert here > server > min(serverless)
    assert usd["a machine of 2 cores"] == 0.0
    assert usd["serverless, 1,000 actors"] > usd["one server, 16 cores"] > 0.0


def test_a_return_that_most_runs_do_not_have_is_never_had() -> None:
    good, bad = a_run(10.0, 15.0, 25.0), a_run(10.0, 15.0, 20.0)
    assert (steps_to(good, 24.0), steps_to(bad, 24.0)) == (2 * 2048, None)
    rows = found(good, bad, bad)["To a return of 24"]
    assert {row[0].split()[0] for row in rows.values()} == {"never"}
    assert all(row[0] != "never" for row in found(good, good, bad)["To a return of 24"].values())


def test_all_the_steps_of_a_run_are_told_before_any_is_made() -> None:
    rows = found()["All 40,960 steps"]
    assert {row[0] for row in found()["To a return of 24"].values()} == {"never"}
    assert float(rows["serverless, 64 actors"][0]) < float(rows["serverless, 16 actors"][0])


def places(**gains: tuple[float, float]) -> dict[str, Way]:
    """Return what one run takes everywhere, by its times as fast and as dear as a server."""

    def way(wall_s: float, usd: float) -> Way:
        return Way(place="server", name="", num_actors=1, start_s=0.0, wall_s=wall_s, usd=usd)

    actors = {name: way(1000.0 / fast, 1.0 * dear) for name, (fast, dear) in gains.items()}
    return {"here": way(9000.0, 0.0), "server": way(1000.0, 1.0), **actors}


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        ([places(few=(11.0, 2.0), many=(30.0, 9.0))] * 4, "holds (projected)"),
        ([places(few=(8.0, 2.0), many=(30.0, 9.0))] * 4, "does not hold"),
        ([places(few=(11.0, 2.0))] * 3 + [{}] * 2, "not decided: too few runs"),
        ([{}] * 5, "not decided: too few runs"),
        (
            [places(few=(fast, 2.0)) for fast in (8.0, 9.0, 11.0, 12.0)],
            "not decided: an interval has what is hoped for in it",
        ),
    ],
    ids=["not the fastest", "none has both", "few reached it", "none reached it", "wide"],
)
def test_any_number_of_actors_may_be_the_one_that_is_hoped_for(
    made: list[dict[str, Way]], verdict: str
) -> None:
    names = list(next(filter(None, made), places(few=(1.0, 1.0))))
    assert claim(names, made).verdict == verdict


def test_without_runs_there_is_nothing_to_say() -> None:
    assert found()["The runs"] == {}


def test_all_the_steps_of_a_run_are_a_projection_of_their_own() -> None:
    found = places(few=(11.0, 2.0), many=(30.0, 9.0))
    assert whole_claim(list(found), found, steps=9).verdict == "holds (projected)"
    found = places(few=(8.0, 2.0), many=(30.0, 9.0))
    held = whole_claim(list(found), found, steps=9)
    assert held.verdict == "does not hold (projected)"
    assert held.ours.startswith("few: 8 times as fast at 2 times")
