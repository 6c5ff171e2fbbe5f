"""A plan as a person reads it."""

from rich.console import Console

from nitro.planning.choice import choose
from nitro.planning.report import Plan, plan_view
from nitro.planning.ways import ways
from nitro.planning.workload import Workload
from tests.nitro.planning.job import CPU, GPU, a_job, a_search


def shown(job: Workload, *, width: int = 80, steps_source: str = "") -> str:
    found = ways(job, (CPU, GPU), cores_here=2, actors_here=8)
    choice = choose(found, usd_per_hour=10.0)
    plan = Plan.of(
        job, found, choice, usd_per_hour=10.0, prices="list prices", steps_source=steps_source
    )
    console = Console(width=width)
    with console.capture() as captured:
        console.print(plan_view(plan))
    return captured.get()


def test_nothing_is_cut_on_a_narrow_terminal() -> None:
    text = shown(a_job(step_s=1e-5))
    for said in ("minutes", "serverless, gpu learner", "cheapest", "balanced", "fastest"):
        assert said in text
    assert "…" not in text


def test_a_machine_that_is_busy_is_told() -> None:
    assert "busy" not in shown(a_job())
    assert "used the CPU for only 40% of its time" in " ".join(shown(a_job(computing=0.4)).split())


def test_a_search_says_what_is_assumed_and_what_its_steps_rest_on() -> None:
    text = " ".join(shown(a_search(), steps_source="for a return of 9: a paper").split())
    assert "an episode 500 steps are assumed: --episode-steps changes it" in text
    assert "steps for a return of 9: a paper" in text
    assert "assumed" not in shown(a_job())
