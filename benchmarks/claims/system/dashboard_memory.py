"""The dashboard's memory in a browser while it polls: flat, or growing with time.

The job is that of the benchmark `dashboard`, told to be running, so that the page goes on asking.
What its scripts hold is counted every minute, after a collection of garbage.
"""

import tempfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.claims.system.dashboard import (
    DRAWN,
    JOB_ID,
    ROUNDS,
    debians_browser,
    served,
    write_run,
)
from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Series, Target

if TYPE_CHECKING:
    from playwright.sync_api import Route

TITLE = "The dashboard's memory while a job of 5,000 rounds is watched"
_MINUTES = 10
_GROWN_MB = 1.0
_ASKED_A_MINUTE = 20
"""The page's fewest requests: for the job and for its rounds, every few seconds."""


def measure(effort: Effort) -> list[Row]:
    """Measure what is held after each minute of polling, beside what was held before."""
    rounds, minutes = effort.of(ROUNDS, quick=50), effort.of(_MINUTES, quick=1)
    with tempfile.TemporaryDirectory() as folder:
        progress(f"writing a run of {rounds} rounds")
        write_run(Path(folder), rounds)
        with served(Path(folder)) as (url, token):
            progress(f"watching it for {minutes} minutes")
            drawn, *later = _held_mb(f"{url}/#token={token}", rounds, minutes=minutes)
    grown = tuple(mb - drawn for mb in later)
    return [
        Row(
            what="held once all rounds are drawn",
            ours=Series(name="page", unit="MB", better="lower", samples=(drawn,)),
        ),
        Row(
            what=f"grown since then, after each of {minutes} minutes; p99",
            ours=Series(name="page", unit="MB", better="lower", samples=grown, statistic="p99"),
            target=Target(of="ours", bound="at_most", value=_GROWN_MB),
        ),
    ]


def _held_mb(link: str, rounds: int, *, minutes: int) -> list[float]:
    """Return what the page's scripts hold once all is drawn, and after each minute."""
    with debians_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(120_000)
        page.route(f"**/v1/jobs/{JOB_ID}", _running)
        page.goto(f"{link}&to=/jobs/{JOB_ID}/curves")
        page.wait_for_function(DRAWN.replace("ROUND", f"{rounds - 1:,}"))
        counter = page.context.new_cdp_session(page)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))

        def held() -> float:
            counter.send("HeapProfiler.collectGarbage")
            used: float = counter.send("Runtime.getHeapUsage")["usedSize"]
            return used / 1e6

        found = [held()]
        for _ in range(minutes):
            page.wait_for_timeout(60_000)
            found.append(held())
        assert len(asked) >= _ASKED_A_MINUTE * minutes, f"only {len(asked)} requests: was it seen?"
        return found


def _running(route: "Route") -> None:
    """Let the job's answer say that it runs."""
    answer = route.fetch()
    if answer.status == HTTPStatus.NOT_MODIFIED:
        route.fulfill(response=answer)
    else:
        route.fulfill(response=answer, json=answer.json() | {"status": "running"})
