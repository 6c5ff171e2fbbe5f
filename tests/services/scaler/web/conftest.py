"""A real browser on the page: Debian's Chromium, which tells of every error and every violation."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, sync_playwright

from nitro.dashboard.finished_runs import finished_runs_app
from nitro.dashboard.page_link import page_link
from tests.nitro.synthetic_run import write_run
from tests.services.scaler.lambda_endpoint import serve

PATIENCE_MS = 60_000
"""Far above what anything takes, so that a hang ends the test with a message."""


@dataclass
class Seen:
    """A page, and what went wrong on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    expected: str | None = None
    """What the browser says by itself of the refusal, or of the silence, that a test is about."""

    def listen(self) -> None:
        """Note every error, violation and address from now on."""
        self.page.on("console", self._told)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("response", self._answered)

    def _told(self, message: ConsoleMessage) -> None:
        expected = self.expected is not None and self.expected in message.text
        if message.type in ("error", "warning") and not expected:
            self.complaints.append(message.text)

    def _answered(self, answer: Response) -> None:
        self.addresses.append(answer.url)


@dataclass(frozen=True)
class Runs:
    """The page over a folder of runs that have ended."""

    url: str
    token: str
    ids: tuple[str, ...]

    @property
    def link(self) -> str:
        return page_link(self.url, self.token)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no browser: apt-get install chromium")
    with sync_playwright() as playwright:
        # As root, as in a container, Chromium's own sandbox cannot start.
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def seen(browser: Browser) -> Iterator[Seen]:
    """A page of its own; it must not have complained about anything when the test ends."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    found = Seen(context.new_page())
    found.listen()
    yield found
    context.close()
    assert found.complaints == []


@pytest.fixture
def page(seen: Seen) -> Page:
    return seen.page


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Two seeds of one configuration, and a run of another; all made up."""
    folder = tmp_path_factory.mktemp("ended")
    ids = _write_runs(folder)
    with finished_runs_app(folder) as (app, token), serve(app) as url:
        yield Runs(url, token, ids)


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """A sweep of ten settings with four seeds each, and caps of their own; all made up."""
    folder = tmp_path_factory.mktemp("swept")
    ids = []
    for number in range(10):
        for seed in (1, 2, 3, 4):
            job_id = f"swept-{number}-{seed}"
            asked: dict[str, object] = {"seed": seed, "tags": ["sweep:rates"]}
            asked |= {"hyperparameters": {"learning_rate": 0.001 * (number + 1)}}
            asked |= {"stop": {"max_rounds": 300, "budget_usd": 0.01 * seed + number}}
            write_run(folder, job_id=job_id, rounds=300, asked=asked)
            ids.append(job_id)
    with finished_runs_app(folder) as (app, token), serve(app) as url:
        yield Runs(url, token, tuple(ids))


def _write_runs(folder: Path) -> tuple[str, ...]:
    for seed in (1, 2):
        asked: dict[str, object] = {"seed": seed, "name": f"baseline {seed}", "tags": ["study"]}
        asked |= {"hyperparameters": {"learning_rate": 0.001}, "note": "Does a larger step pay?"}
        write_run(folder, job_id=f"hopper-v5-{seed}", rounds=60, asked=asked)
    for version, length in (("000010", 2), ("000060", 3)):
        film = folder / "hopper-v5-1" / "videos" / f"policy-{version}.gif"
        film.parent.mkdir(exist_ok=True)
        frames = [Image.new("RGB", (32, 24), (80 * i, 0, 0)) for i in range(length)]
        frames[0].save(film, save_all=True, append_images=frames[1:], duration=50)
        os.utime(film, (int(version), int(version)))
    fixed: dict[str, object] = {
        "seed": 1,
        "name": "fixed",
        "scaling": {"policy": "fixed", "num_actors": 16},
    }
    write_run(folder, job_id="hopper-v5-fixed", rounds=40, asked=fixed)
    return ("hopper-v5-1", "hopper-v5-2", "hopper-v5-fixed")
