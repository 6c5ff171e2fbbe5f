"""The dashboard over a long job: how soon its curves are drawn, and how quickly the scaler answers.

A generated job of 5,000 rounds of 64 actors, in the folder of a run. `nitro dashboard` serves it.
Five viewers ask what the page asks, with the page's tags, four times as often as it does. The
browser is Debian's Chromium, at a page that it has not seen before. The scaler has laid the closed
rounds out once before it is measured, as it does for the first viewer.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from benchmarks.measurement import Effort, progress
from benchmarks.records.result import Row, Series, Target
from shared.artifacts.store import JOB_FILE, LEDGER_FILE, ROUNDS_FILE
from shared.contracts.billing import LedgerLine
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job, JobProgress
from shared.contracts.rounds import (
    RoundLine,
    RoundPlan,
    RoundResult,
    RoundTiming,
    TrajectoryCounts,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TITLE = "The dashboard over 5,000 rounds of 64 actors"
JOB_ID = "hopper-v5-generated"
ROUNDS, _ACTORS, _EPISODES = 5000, 64, 12
_VIEWERS, _TIMES_AS_OFTEN, _VIEWED_S = 5, 4, 60
_POLLED_S = {"/v1/jobs?limit=200": 5.0, f"/v1/jobs/{JOB_ID}": 3.0, "curves": 2.0}
"""Seconds between two looks of the page at each address."""
_ANSWER_MS, _DRAWN_MS = 50.0, 1000.0
_ITEMS = ("learner", "lambda_duration", "lambda_requests", "cache", "scaler")
_STATS = ("policy_loss", "value_loss", "kl", "entropy", "clip_fraction", "grad_norm", "loss")
DRAWN = """() => {
  const told = document.querySelector('.u-legend');
  return document.querySelector('figure canvas') && told && told.textContent.includes('ROUND');
}"""
"""Whether a curve is drawn, with this round as its last."""


def measure(effort: Effort) -> list[Row]:
    """Measure both."""
    rounds = effort.of(ROUNDS, quick=50)
    with tempfile.TemporaryDirectory() as folder:
        progress(f"writing a run of {rounds} rounds")
        write_run(Path(folder), rounds)
        with served(Path(folder)) as (url, token):
            headers = {"Authorization": f"Bearer {token}"}
            # The folder is read once, as a scaler's database need not be.
            httpx.get(f"{url}/v1/jobs/{JOB_ID}/curves", headers=headers, timeout=120)
            progress(f"opening the page {effort.of(5)} times")
            first, whole = _drawn_ms(f"{url}/#token={token}", rounds, times=effort.of(5))
            progress(f"{_VIEWERS} viewers for {effort.of(_VIEWED_S)} s")
            answers = _answers_ms(url, headers, rounds, for_s=effort.of(_VIEWED_S))
    answer = Series(name="answer", unit="ms", better="lower", samples=tuple(answers))
    return [
        Row(
            what="first curves drawn, from an empty browser",
            ours=Series(name="page", unit="ms", better="lower", samples=tuple(first)),
            target=Target(of="ours", bound="at_most", value=_DRAWN_MS),
        ),
        Row(
            what=f"all {rounds} rounds drawn",
            ours=Series(name="page", unit="ms", better="lower", samples=tuple(whole)),
        ),
        Row(
            what=f"scaler's answer to {_VIEWERS} viewers, p99 of {len(answers)}",
            ours=answer.model_copy(update={"statistic": "p99"}),
            target=Target(of="ours", bound="at_most", value=_ANSWER_MS),
        ),
        Row(what="scaler's answer, middle", ours=answer),
    ]


@contextmanager
def served(runs_dir: Path) -> Iterator[tuple[str, str]]:
    """Serve a folder of runs; yields address and token."""
    command = [sys.executable, "-m", "nitro.cli.main", "dashboard", "--no-open"]
    with subprocess.Popen(
        [*command, "--runs-dir", str(runs_dir)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        link = urlsplit(process.stdout.readline().strip())
        try:
            yield f"{link.scheme}://{link.netloc}", link.fragment.removeprefix("token=")
        finally:
            process.terminate()


def _drawn_ms(link: str, rounds: int, *, times: int) -> tuple[list[float], list[float]]:
    """Return how long it takes from the address typed to the first curves, and to all rounds."""
    first, whole = [], []
    with debians_browser() as browser:
        for _ in range(times):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            page = context.new_page()
            start = time.perf_counter()
            page.goto(f"{link}&to=/jobs/{JOB_ID}/curves")
            page.wait_for_selector("figure canvas")
            first.append(1000 * (time.perf_counter() - start))
            page.wait_for_function(DRAWN.replace("ROUND", f"{rounds - 1:,}"))
            whole.append(1000 * (time.perf_counter() - start))
            context.close()
    return first, whole


@contextmanager
def debians_browser() -> Iterator["Browser"]:
    """Yield Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def _answers_ms(url: str, headers: dict[str, str], rounds: int, *, for_s: float) -> list[float]:
    """Return how long every answer took that the viewers got."""
    ends_at = time.monotonic() + for_s
    polls = {
        (f"/v1/jobs/{JOB_ID}/curves?after={rounds - 3}&limit=250" if path == "curves" else path): s
        for path, s in _POLLED_S.items()
    }
    # Each viewer opens the page once: it asks for all rounds, 250 at a time.
    pages = [f"/v1/jobs/{JOB_ID}/curves?after={k - 1}&limit=250" for k in range(0, rounds, 250)]
    pause = threading.Event()

    def view(viewer: int) -> list[float]:
        taken: list[float] = []
        tags: dict[str, str] = {}
        due = {path: time.monotonic() + viewer * 0.1 for path in polls}
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:

            def ask(path: str) -> None:
                start = time.perf_counter()
                answer = http.get(path, headers={"If-None-Match": tags.get(path, "")})
                taken.append(1000 * (time.perf_counter() - start))
                answer.raise_for_status() if answer.status_code != 304 else None
                tags[path] = answer.headers["etag"]

            for path in pages:
                ask(path)
            while (now := time.monotonic()) < ends_at:
                path = min(due, key=lambda one: due[one])
                pause.wait(max(0.0, due[path] - now))
                ask(path)
                due[path] = time.monotonic() + polls[path] / _TIMES_AS_OFTEN
        return taken

    with ThreadPoolExecutor(_VIEWERS) as viewers:
        return [ms for each in viewers.map(view, range(_VIEWERS)) for ms in each]


def write_run(runs_dir: Path, rounds: int) -> None:
    """Write a generated run of so many rounds."""
    folder = runs_dir / JOB_ID
    folder.mkdir()
    dice = random.Random(0)
    spec = JobSpec.model_validate({"stop": {"max_rounds": rounds, "budget_usd": 1000.0}})
    job = Job(
        job_id=JOB_ID,
        spec=spec,
        status="succeeded",
        stop_reason="max_rounds",
        created_at=1.0,
        started_at=2.0,
        finished_at=10_000.0,
        progress=JobProgress(rounds=rounds, env_steps=rounds * 16_384),
        spent_usd=0.005 * rounds,
    )
    (folder / JOB_FILE).write_text(job.model_dump_json())
    bills = [_bill(index) for index in range(rounds)]
    with (folder / ROUNDS_FILE).open("w") as lines, (folder / LEDGER_FILE).open("w") as ledger:
        for index in range(rounds):
            settled = bills[index - 1] if index else ()
            lines.write(_line(index, settled, dice).model_dump_json() + "\n")
            ledger.writelines(f"{one.model_dump_json()}\n" for one in bills[index])


def _bill(index: int) -> tuple[LedgerLine, ...]:
    return tuple(
        LedgerLine(
            round=index,
            attempt=0,
            item=item,
            quantity=10.0,
            unit="second",
            unit_price_usd=1e-4,
            amount_usd=1e-3,
        )
        for item in _ITEMS
    )


def _line(index: int, settled: tuple[LedgerLine, ...], dice: random.Random) -> RoundLine:
    plan = RoundPlan(
        job_id=JOB_ID,
        round=index,
        attempt=0,
        policy_version=index,
        num_actors=_ACTORS,
        num_evaluations=0,
        requested=_ACTORS,
        boosting_score=dice.random(),
        ratio=dice.uniform(0.1, 3.0),
        reason="boosting score 0.125 (ratio 0.373 in [0.373, 1.09] of 6 rounds): 64 actors",
        deadline_s=120.0,
        quorum=32,
        stop=None,
        spent_usd=5e-3 * index,
        settled=settled,
    )
    result = RoundResult(
        round=index,
        policy_version=index + 1,
        trajectories=TrajectoryCounts(launched=_ACTORS, used=_ACTORS, late=0, duplicate=0, lost=0),
        env_steps=256 * _ACTORS,
        episode_returns=tuple(dice.uniform(0, 3000) for _ in range(_EPISODES)),
        evaluation=None,
        stats={name: dice.random() for name in _STATS},
        timing=RoundTiming.model_validate(dict.fromkeys(RoundTiming.model_fields, 0.5)),
    )
    return RoundLine(plan=plan, result=result, curvature=None, evaluation=None)
