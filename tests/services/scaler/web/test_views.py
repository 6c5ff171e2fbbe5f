"""Every view in a browser: drawn, accessible, narrow, dark, and safe from what others wrote."""

import io
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page, Route, expect

from nitro.client.client import NitroClient
from nitro.dashboard.page_link import page_link
from nitro.local.system import LocalSystem
from shared.contracts.job_spec import JobSpec
from tests.e2e.runs import tiny, wait_finished, wait_until
from tests.services.scaler.web.conftest import PATIENCE_MS, Runs

pytestmark = pytest.mark.web
expect.set_options(timeout=PATIENCE_MS)

PICTURES = os.environ.get("NITRO_PICTURES")
"""Folder that pictures of all views are written to; docs/images/dashboard has those of the site."""
TABS = {
    "curves": "canvas",
    "cost": "table",
    "actors": ".lanes, .note",
    "film": "img, .note",
    "detector": "canvas",
    "events": ".events, .note",
    "files": "table",
}
"""What each view of a job shows once it has been drawn."""
WHOLE = {"curves", "cost", "detector", "compare"}
"""Views whose picture is of all of them, beyond what a window shows."""
ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'{{7*7}}javascript:alert(3)"
ATTACKED = {"name", "env_id", "error", "reason", "text", "latest", "location", "price_table"}


@pytest.fixture(scope="session")
def live(
    shared_system: LocalSystem, client: NitroClient
) -> Iterator[tuple[LocalSystem, list[str]]]:
    """A system with three jobs that have ended, and one that runs."""
    asked = {
        "steps_per_actor": 256,
        "actors": {"min": 2, "max": 12},
        "evaluation": {"every_rounds": 4, "episodes": 4},
        "stop": {"max_rounds": 40, "budget_usd": 1.0},
        "tags": ["study"],
    }
    specs = [tiny(**asked, seed=seed, name=f"boosting score, seed {seed}") for seed in (1, 2)]
    fixed = {"policy": "fixed", "num_actors": 6}
    here = {**asked, "actors": {"min": 2, "max": 12, "own": 1}}
    specs.append(tiny(**here, seed=1, name="six actors", scaling=fixed))
    ids = [client.submit(spec).job_id for spec in specs]
    for job_id in ids:
        wait_finished(client, job_id)
    ids.insert(0, client.submit(_lasting(asked)).job_id)
    wait_until(client, ids[0], lambda job: job.progress.rounds > 30, shared_system)
    yield shared_system, ids
    client.stop(ids[0])


def _lasting(asked: dict[str, Any]) -> JobSpec:
    stop = {"max_rounds": 300, "budget_usd": 1.0}
    return tiny(**{**asked, "stop": stop}, seed=3, name="boosting score, longer")


def every_view(ids: list[str]) -> dict[str, tuple[str, str]]:
    """Return address and what is drawn, by name, of every view there is."""
    job = {tab: (f"/jobs/{ids[0]}/{tab}", drawn) for tab, drawn in TABS.items()}
    compared = "/".join(ids[1:])
    return {
        "jobs": ("/", "table"),
        **job,
        "compare": (f"/compare/{compared}", "canvas"),
        "system": ("/system", "table"),
    }


def visit(page: Page, address: str, drawn: str) -> None:
    page.evaluate("address => { location.hash = address; }", address)
    expect(page.locator("main").locator(drawn).first).to_be_visible()
    expect(page.locator("main").get_by_text("Loading …")).to_have_count(0)


def picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Write a picture of the page where they are asked for, in few colours: it is small then."""
    if PICTURES is None:
        return
    if name == "actors":
        # With evaluations. The page asks for news meanwhile: what is typed stays.
        page.get_by_label("Round", exact=True).fill("8")
        page.keyboard.press("Enter")
        expect(page.locator(".lanes li").nth(5)).to_be_visible()
    if name == "system":  # where this machine keeps its files is nothing for a document
        page.locator("tr", has_text="Files").evaluate("row => { row.hidden = true; }")
    taken = Image.open(io.BytesIO(page.screenshot(full_page=whole)))
    path = Path(PICTURES) / f"{name}.png"
    # By what is far apart, not by how much there is of it: a thin layer keeps its colour.
    colours = taken.convert("RGB").quantize(
        256, method=Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
    )
    colours.save(path, optimize=True)


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_is_drawn_and_accessible(
    page: Page, live: tuple[LocalSystem, list[str]], scheme: Any
) -> None:
    system, ids = live
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.goto(f"{system.api_url}/")
    expect(page.get_by_label("Token of the API")).to_be_visible()
    assert violations(page) == []
    page.goto(page_link(system.api_url, system.token))
    found = {}
    for name, (address, drawn) in every_view(ids).items():
        visit(page, address, drawn)
        found[name] = violations(page)
        if scheme == "light" or name == "curves":
            picture(page, name if scheme == "light" else f"{name}-dark", whole=name in WHOLE)
    assert not any(found.values()), found


def test_dark_is_dark(page: Page, runs: Runs) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(runs.link)
    ground = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert max(ground) < 60


def test_no_view_is_wider_than_a_small_phone(
    page: Page, live: tuple[LocalSystem, list[str]]
) -> None:
    system, ids = live
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(page_link(system.api_url, system.token))
    for name, (address, drawn) in every_view(ids).items():
        visit(page, address, drawn)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
        if name in TABS:
            expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.9)
        assert violations(page) == [], name
    visit(page, *every_view(ids)["jobs"])
    picture(page, "narrow")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_the_api_can_be_read_without_a_token(
    page: Page, runs: Runs, scheme: Any, width: int
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 740})
    page.goto(f"{runs.url}/docs#JobSpec")
    spec = page.locator("#JobSpec")
    expect(spec).to_contain_text("Registered id, such as Hopper-v5")
    expect(spec).to_be_in_viewport()
    expect(page.locator("section.call h3", has_text="/v1/jobs/{job_id}/curves")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []


def test_what_others_wrote_is_shown_as_text(page: Page, runs: Runs) -> None:
    """Names, environments, tags, reasons, events and logs come from whoever submits or fails."""
    page.route("**/v1/**", lambda route: answer_changed(route, attacked))
    page.goto(runs.link)
    for address, drawn in every_view(list(runs.ids)).values():
        visit(page, address, drawn)
        assert page.locator("img, script[src=x], main script, iframe, object").count() == 0
    page.evaluate("address => { location.hash = address; }", f"/jobs/{runs.ids[0]}/events")
    expect(page.get_by_text("onerror=alert(1)").first).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


def attacked(value: Any, field: str = "") -> Any:
    if isinstance(value, dict):
        changed = {name: attacked(inner, name) for name, inner in value.items()}
        if "events" in value:
            event = {"at": 1.0, "kind": "launched", "round": 1, "attempt": 0, "count": 1}
            changed |= {"events": [{**event, "number": 0, "text": ATTACK}], "last": 0}
        return changed
    if isinstance(value, list):
        return [ATTACK] if field == "tags" else [attacked(inner, field) for inner in value]
    return ATTACK if field in ATTACKED else value


def answer_changed(route: Route, change: Callable[[Any], Any]) -> None:
    answer = route.fetch()
    if answer.status == 200:
        route.fulfill(response=answer, body=json.dumps(change(answer.json())))
    else:
        route.fulfill(response=answer)


def test_a_round_is_typed_while_the_page_asks_for_news(page: Page, runs: Runs) -> None:
    asked = f"**/v1/jobs/{runs.ids[0]}"

    def running(route: Route) -> None:
        headers = {k: v for k, v in route.request.headers.items() if k != "if-none-match"}
        answer = route.fetch(headers=headers)
        route.fulfill(response=answer, json=answer.json() | {"status": "running"})

    page.route(asked, running)
    page.goto(runs.link)
    visit(page, f"/jobs/{runs.ids[0]}/actors", ".note")
    typed = page.get_by_label("Round", exact=True)
    typed.fill("8")
    for _ in range(2):  # the second is asked for once the first is drawn
        with page.expect_response(asked):
            pass
    expect(typed).to_have_value("8")
    with page.expect_request("**/actors?round=8"):
        page.keyboard.press("Enter")
    page.unroute_all(behavior="ignoreErrors")


def test_runs_are_compared_seeds_as_a_band(page: Page, runs: Runs) -> None:
    page.goto(runs.link)
    for name in runs.ids:
        page.get_by_role("checkbox", name=f"compare {name}").check()
    page.get_by_role("link", name="Compare 3").click()
    legend = page.locator(".u-legend").first
    expect(legend.get_by_text("2 seeds", exact=False).first).to_be_visible()
    expect(legend).to_contain_text("fixed")
    expect(legend).to_contain_text("learning rate 0.001, policy nitro")
    settings = page.get_by_role("region", name="Settings")
    expect(settings.locator("tbody tr")).to_have_count(2)
    expect(settings).to_contain_text("scaling.policy")
    expect(settings).not_to_contain_text("env_id")


def test_runs_whose_long_lists_differ_are_two_settings(page: Page, runs: Runs) -> None:
    def scheduled(job: Any) -> Any:
        scaling = {"policy": "schedule", "num_actors": [*[8] * 9, 8 + job["spec"]["seed"]]}
        return {**job, "spec": {**job["spec"], "scaling": scaling}}

    page.route(re.compile(r"/v1/jobs/[\w-]+$"), lambda route: answer_changed(route, scheduled))
    page.goto(runs.link)
    visit(page, f"/compare/{'/'.join(runs.ids[:2])}", "canvas")
    expect(page.get_by_role("region", name="Settings").locator("tbody tr")).to_have_count(2)
    page.unroute_all(behavior="ignoreErrors")


def test_a_sweep_is_compared_a_line_and_a_band_a_setting(page: Page, swept: Runs) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(swept.link)
    expect(page.locator("tbody tr")).to_have_count(40)
    page.get_by_label("Group by").select_option("tag")
    page.get_by_role("link", name="Compare all of sweep:rates").click()
    legend = page.locator(".u-legend").first
    expect(legend.locator(".u-series:visible", has_text="4 seeds")).to_have_count(10)
    settings = page.get_by_role("region", name="Settings").locator("tbody tr")
    expect(settings).to_have_count(10)
    expect(settings.first.locator("td").nth(1)).to_have_text("4")
    expect(page.get_by_role("region", name="Settings")).not_to_contain_text("budget_usd")
    expect(
        page.get_by_role("region", name="Results of the runs").locator("tbody tr")
    ).to_have_count(40)
    # Each run is asked for once, and its rounds page by page.
    for kind in (r"/v1/jobs/swept-\d+-\d+$", r"/curves\?after=-1&"):
        assert sum(re.search(kind, url) is not None for url in asked) == 40, kind
    page.get_by_text("40 runs", exact=True).click()
    page.get_by_label("Leave out swept-9-4").click()
    expect(page.get_by_text("39 runs", exact=True)).to_be_visible()
    assert violations(page) == []


def test_jobs_are_filtered_sorted_and_grouped(page: Page, runs: Runs) -> None:
    page.goto(runs.link)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    for wanted in ("baseline", "study"):  # a part of a name, a tag
        page.get_by_label("Filter").fill("fixed")
        expect(rows).to_have_count(1)
        page.get_by_label("Filter").fill(wanted)
        expect(rows).to_have_count(2)
    page.get_by_label("Filter").fill("no such thing")
    expect(page.get_by_text("No job fits the filter.")).to_be_visible()
    page.get_by_label("Filter").fill("")
    page.get_by_role("button", name="Round").click()
    expect(rows.last).to_contain_text("fixed")
    page.get_by_label("Group by").select_option("scaling")
    expect(page.get_by_role("heading", name="fixed 1")).to_be_visible()
    rate = page.get_by_role("button", name="learning rate").first
    rate.click()
    expect(page.locator("td[data-name='learning rate']").first).to_have_text("0.001")
    page.get_by_label("State").select_option("failed")
    expect(page.get_by_text("No job fits the filter.")).to_be_visible()


def test_jobs_beyond_a_page_are_shown_when_asked_for(page: Page, runs: Runs) -> None:
    short = re.compile("/v1/jobs\\?")
    page.route(
        short,
        lambda route: route.continue_(url=route.request.url.replace("limit=200", "limit=2")),
    )
    page.goto(runs.link)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(3)
    expect(page.get_by_role("button", name="Show more")).to_have_count(0)


def test_a_run_that_is_not_there_is_told(page: Page, runs: Runs) -> None:
    page.route("**/v1/jobs/none**", lambda route: route.fulfill(status=200, body="{"))
    page.goto(runs.link)
    page.evaluate("() => { location.hash = '/jobs/none/curves'; }")
    expect(page.get_by_role("alert")).to_contain_text("no JSON came back")


def test_the_newest_film_is_shown_and_older_ones_can_be_chosen(page: Page, runs: Runs) -> None:
    page.goto(runs.link)
    visit(page, f"/jobs/{runs.ids[0]}/film", "img")
    expect(page.locator("figcaption")).to_have_text("videos/policy-000060.gif")
    drawn = page.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)")
    assert drawn == 32
    page.get_by_label("Film").select_option("videos/policy-000010.gif")
    expect(page.locator("figcaption")).to_have_text("videos/policy-000010.gif")
    visit(page, f"/jobs/{runs.ids[2]}/film", ".note")
    expect(page.get_by_text(f"nitro video {runs.ids[2]}")).to_be_visible()


def test_dollars_that_nobody_pays_are_called_so(page: Page, runs: Runs) -> None:
    page.goto(runs.link)
    expect(page.get_by_role("button", name="Would cost on AWS").first).to_be_visible()
    visit(page, f"/jobs/{runs.ids[0]}/curves", "canvas")
    expect(page.locator("dt", has_text="Would cost on AWS")).to_be_visible()
    expect(page.get_by_text("Does a larger step pay?")).to_be_visible()


def test_a_note_is_written_and_the_processes_are_shown(
    page: Page, live: tuple[LocalSystem, list[str]]
) -> None:
    system, ids = live
    page.goto(page_link(system.api_url, system.token))
    visit(page, f"/jobs/{ids[1]}/files", "textarea")
    page.get_by_label("Note").fill("For the paper.")
    page.get_by_role("button", name="Save the note").click()
    expect(page.locator("p.remark")).to_have_text("For the paper.")
    visit(page, "/system", "table")
    rows = page.get_by_role("region", name="Processes").locator("tbody tr")
    for program in ("services.scaler.app", "services.learner.app", "services.emulator.app"):
        expect(rows.filter(has_text=program)).to_contain_text("MB")


def test_actors_on_own_cores_are_told_apart(
    page: Page, live: tuple[LocalSystem, list[str]]
) -> None:
    system, ids = live
    page.goto(page_link(system.api_url, system.token))
    visit(page, f"/jobs/{ids[3]}/actors", ".note")
    told = page.get_by_text("actors ran on the learner's own cores")
    expect(told).to_contain_text("6 of 6 actors")
    expect(told).to_contain_text("kept them busy for")
    expect(page.get_by_text("are not kept")).to_have_count(0)
    visit(page, f"/jobs/{ids[3]}/curves", "canvas")
    expect(page.locator(".u-legend", has_text="on own cores")).to_be_visible()
    visit(page, f"/jobs/{ids[1]}/curves", "canvas")
    expect(page.locator(".u-legend", has_text="on own cores")).to_have_count(0)


def test_over_folders_alone_the_system_says_that_none_is_there(page: Page, runs: Runs) -> None:
    page.goto(runs.link)
    visit(page, "/system", "table")
    expect(page.get_by_text("No system is behind this page")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".tile")).to_have_text(["succeeded3"])
    expect(page.locator("main")).not_to_contain_text("Cache memory")


def test_a_run_without_a_round_says_so_alone_and_among_others(page: Page, runs: Runs) -> None:
    none: dict[str, object] = dict.fromkeys(("columns", "cost", "stats"), {})
    none |= {"num_rounds": 0, "next_after": -1, "ending": None}
    page.route(
        f"**/{runs.ids[2]}/curves**",
        lambda route: answer_changed(route, lambda answer: answer | none),
    )
    page.goto(runs.link)
    visit(page, f"/jobs/{runs.ids[2]}/curves", ".note")
    expect(page.get_by_text("No round has been made yet.")).to_be_visible()
    visit(page, f"/compare/{'/'.join(runs.ids)}", "canvas")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_legend_tells_what_is_drawn_and_the_bill_ends_at_what_was_spent(
    page: Page, runs: Runs
) -> None:
    page.goto(page_link(runs.url, runs.token, job_id=runs.ids[0]))
    told = page.locator(".u-legend").first.locator(".u-series", has_text="training").last
    before = told.inner_text()
    page.get_by_label("Smoothing").fill("0.9")
    expect(told).not_to_have_text(before)
    page.get_by_label("Along").select_option("usd")
    expect(page.locator(".u-legend").first).to_contain_text("Dollars$0.04")


def test_a_search_has_a_band_of_returns_and_its_noise_scale(page: Page, runs: Runs) -> None:
    def searched(answer: Any) -> Any:
        rounds = answer["columns"]["round"]
        deviations = [None, *[20.0] * (len(rounds) - 1)]  # a round without
        return answer | {"stats": {"return_std": deviations, "noise_scale": [9.0] * len(rounds)}}

    page.goto(runs.link)
    visit(page, f"/jobs/{runs.ids[0]}/curves", "canvas")
    expect(page.locator(".chart", has_text="Noise scale")).to_have_count(0)
    expect(page.locator(".u-series", has_text="deviation")).to_have_count(0)
    page.route("**/curves**", lambda route: answer_changed(route, searched))
    visit(page, f"/jobs/{runs.ids[1]}/curves", "canvas")
    expect(page.locator(".chart", has_text="Noise scale in directions")).to_contain_text("9")
    expect(page.locator(".u-series", has_text="deviation")).to_have_count(2)
    expect(page.locator(".u-series:visible", has_text="deviation")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")


def test_a_file_in_a_bucket_is_fetched_by_a_link_made_for_it(page: Page, runs: Runs) -> None:
    """A link is good for minutes: the one that came with the list may be void."""
    asked = itertools.count(1)

    def in_a_bucket(answer: Any) -> Any:
        url = f"{runs.url}/?link={next(asked)}"
        files = [{**file, "presigned": True, "url": url} for file in answer["files"]]
        return {**answer, "files": files}

    page.route("**/artifacts", lambda route: answer_changed(route, in_a_bucket))
    page.goto(runs.link)
    visit(page, f"/jobs/{runs.ids[0]}/files", "table")
    page.get_by_role("button", name="ledger.jsonl").click()
    page.wait_for_url("**/?link=2")
