"""The page in a browser, over a whole system: sign in, look, act, and a scaler that goes away."""

import re

import pytest
from playwright.sync_api import Page, expect

from nitro.client.client import NitroClient
from nitro.dashboard.page_link import page_link
from nitro.local.system import LocalSystem
from shared.contracts.stop_rule import MAX_ROUNDS
from tests.e2e.runs import tiny, wait_finished, wait_until
from tests.services.scaler.web.conftest import PATIENCE_MS, Runs, Seen

pytestmark = pytest.mark.web
expect.set_options(timeout=PATIENCE_MS)

_COLOURED = """canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [r, g, b, a] = data.slice(i, i + 4);
    if (a > 128 && Math.max(r, g, b) - Math.min(r, g, b) > 60) found += 1;
  }
  return found;
}"""
"""Counts a canvas's pixels that are neither grey nor empty: what curves are drawn in."""


def coloured_pixels(page: Page, chart: str) -> int:
    canvas = page.get_by_role("group", name=re.compile(f"^{chart};")).locator("canvas")
    found: int = canvas.evaluate(_COLOURED)
    return found


def test_a_link_signs_in_and_the_token_goes_out_of_sight(seen: Seen, runs: Runs) -> None:
    page = seen.page
    page.goto(runs.link)
    expect(page.get_by_role("link", name="baseline 1")).to_be_visible()
    assert runs.token not in page.url
    page.go_back()
    assert runs.token not in page.url
    assert not any(runs.token in address for address in seen.addresses)


def test_a_wrong_token_is_told_and_the_right_one_lets_in(seen: Seen, runs: Runs) -> None:
    page, seen.expected = seen.page, "status of 401"
    page.goto(runs.url)
    page.get_by_label("Token of the API").fill("falsch für den Kopf")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("did not accept")
    page.get_by_label("Token of the API").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("did not accept")
    page.get_by_label("Token of the API").fill(runs.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.evaluate("() => { location.hash = '/%'; }")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token of the API")).to_be_visible()
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0


def test_a_live_job_is_watched_rescaled_stopped_and_resumed(
    page: Page, system: LocalSystem, client: NitroClient
) -> None:
    job_id = client.submit(tiny(stop={"max_rounds": 400, "budget_usd": 1.0})).job_id
    wait_until(client, job_id, lambda job: job.progress.rounds > 2, system)
    page.goto(page_link(system.api_url, system.token, job_id=job_id))
    tile = page.locator(".tile", has=page.get_by_text("Round", exact=True))
    rounds = tile.locator("dd")
    expect(rounds).to_contain_text(re.compile(r"[1-9]"))
    before = rounds.inner_text()
    expect(rounds).not_to_have_text(before)  # it moves by itself
    expect(page.get_by_role("group", name=re.compile("^Return;")).locator("canvas")).to_be_visible()
    assert coloured_pixels(page, "Return") > 200
    assert coloured_pixels(page, "Actors per round") > 200

    page.get_by_role("button", name="Scaling …").click()
    page.get_by_role("spinbutton", name="Actors").fill("3")
    expect(page.get_by_role("dialog")).to_contain_text("at most $")
    page.get_by_role("button", name="Switch, for at most").click()
    expect(page.get_by_text("scaling fixed")).to_be_visible()
    assert client.get(job_id).switches[-1].scaling.model_dump()["num_actors"] == 3

    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("button", name="Stop the job").click()
    expect(page.locator("h1 .status")).to_contain_text("stopped")

    page.get_by_role("button", name="Resume …").click()
    page.get_by_role("spinbutton", name="Budget in all").fill("2")
    expect(page.get_by_role("dialog")).to_contain_text("at most $")
    page.get_by_role("button", name="Resume for at most").click()
    expect(page.locator("h1 .status")).to_contain_text(re.compile("queued|running"))
    assert client.get(job_id).spec.stop.budget_usd == 2.0


def test_a_job_that_its_steps_ended_is_listed_and_resumed_by_steps(
    page: Page, system: LocalSystem, client: NitroClient
) -> None:
    stop = {"max_rounds": MAX_ROUNDS, "max_env_steps": 20}
    job_id = client.submit(tiny(stop=stop)).job_id
    made = wait_finished(client, job_id).progress.env_steps
    page.goto(page_link(system.api_url, system.token))
    expect(page.get_by_text(f"{made}/20 steps")).to_be_visible()
    page.goto(page_link(system.api_url, system.token, job_id=job_id))
    expect(page.locator(".tile", has=page.get_by_text("Steps", exact=True))).to_contain_text(
        "of 20"
    )
    page.get_by_role("button", name="Resume …").click()
    page.get_by_role("spinbutton", name="Steps in all").fill(f"{made + 1}")
    page.get_by_role("button", name="Resume").last.click()
    wait_until(client, job_id, lambda job: job.progress.env_steps > made, system)


def test_what_is_refused_is_told_in_the_dialog(
    seen: Seen, system: LocalSystem, client: NitroClient
) -> None:
    page, seen.expected = seen.page, "status of 422"
    job_id = client.submit(tiny(stop={"max_rounds": 400, "budget_usd": 1.0})).job_id
    page.goto(page_link(system.api_url, system.token, job_id=job_id))
    page.get_by_role("button", name="Scaling …").click()
    page.get_by_role("combobox", name="Policy").select_option("auto")
    page.get_by_role("button", name="Switch, for at most").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("scaling.policy")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_scaler_that_goes_away_is_told_and_so_is_its_return(
    seen: Seen, system: LocalSystem
) -> None:
    page, seen.expected = seen.page, "net::ERR"
    page.goto(page_link(system.api_url, system.token))
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    system.kill("scaler")
    expect(page.get_by_text("No answer from the scaler")).to_be_visible()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    system.restart("scaler")
    expect(page.get_by_text("No answer from the scaler")).to_be_hidden()


def test_nobody_can_frame_the_page(seen: Seen, runs: Runs) -> None:
    page, seen.expected = seen.page, "frame-ancestors"
    body = f"<iframe src='{runs.url}'></iframe>"
    page.route("**/frame.html", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto("http://elsewhere.test/frame.html")
    frame = page.frames[1]
    expect(frame.locator("#token")).to_have_count(0)
    assert frame.url.startswith("chrome-error:")


def test_a_token_that_may_only_look_is_offered_no_action(page: Page, runs: Runs) -> None:
    page.goto(page_link(runs.url, runs.token, job_id=runs.ids[0]))
    expect(page.get_by_text("This token may only look.")).to_be_visible()
    assert page.get_by_role("button", name=re.compile("Stop|Resume|Scaling")).count() == 0


def test_the_keyboard_reaches_everything(page: Page, runs: Runs) -> None:
    page.goto(page_link(runs.url, runs.token, job_id=runs.ids[0]))
    chart = page.get_by_role("group", name=re.compile("^Return;"))
    chart.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    first = page.locator(".u-legend").first
    expect(first).to_contain_text("Round58")
    # One cursor for all charts.
    expect(page.locator(".u-legend").nth(1)).to_contain_text("Round58")
    page.reload()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.get_by_role("link", name="System").click()
    expect(page.get_by_role("heading", name="System")).to_be_focused()
    expect(page).to_have_title("System · Nitro")
