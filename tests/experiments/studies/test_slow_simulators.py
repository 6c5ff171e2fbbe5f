"""What `slow_simulators` makes of runs that were never run."""

import pytest

from experiments.catalogue import load
from experiments.grid import CellId, Scale
from experiments.outcome import JobOutcome, RoundOutcome
from experiments.studies.slow_simulators import CONDITION, ENV_ID, claim, steps_to
from nitro.planning.ways import Way
from tests.experiments.made_up import outcome

FULL = Scale(seeds=3, quick=False)
STEP_S = 0.02


def a_run(*returns: float) -> JobOutcome:
    """A run of rounds of 2,048 steps of 20 ms, on two cores."""
    made = outcome(returns, actors=[16] * (len(returns) - 1))
    return made.model_copy(update={"rounds": tuple(map(slow, made.rounds))})


def slow(each: RoundOutcome) -> RoundOutcome:
    timing = each.timing.model_copy(update={"collect_s": 2048 * STEP_S / 2, "update_s": 0.1})
    return each.model_copy(update={"env_steps": 2048, "timing": timing})


def found(*made: JobOutcome) -> dict[str, dict[str, tuple[str, ...]]]:
    done = {CellId(CONDITION, ENV_ID, seed): run for seed, run in enumerate(made)}
    summary = load("slow_simulators").find(FULL, done)
    return {
        table.title: {str(row[0]): tuple(map(str, row[1:])) for row in table.rows}
        for table in summary.tables
    }


def test_more_cores_are_faster_and_the_server_is_not_free() -> None:
    rows = found(a_run(*[10.0] * 20, 25.0))["All 40,960 steps"]
    minutes = {place: float(row[0].split()[0]) for place, row in rows.items()}
    usd = {place: float(row[1].split()[0]) for place, row in rows.items()}
    here, server, *serverless = minutes.values()
    assert 6.8 < here < 7.6, "40,960 steps of 20 ms on two cores, and updates"
    assert here > server > min(serverless)
    assert usd["this machine, 2 cores"] == 0.0
    assert usd["serverless, 1,000 actors"] > usd["one server, 16 cores"] > 0.0


def test_a_return_that_most_runs_do_not_have_is_never_had() -> None:
    good, bad = a_run(10.0, 15.0, 25.0), a_run(10.0, 15.0, 20.0)
    assert (steps_to(good, 24.0), steps_to(bad, 24.0)) == (2 * 16 * 256, None)
    rows = found(good, bad, bad)["To a return of 24"]
    assert {row[0].split()[0] for row in rows.values()} == {"never"}
    assert all(row[0] != "never" for row in found(good, good, bad)["To a return of 24"].values())


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
