"""The report holds what the JSON says, and leaves people's words alone."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.catalogue import NAMES, load
from experiments.going_on import with_horizon
from experiments.grid import LeftOut
from experiments.reporting.figure import draw, num_columns, series_colours
from experiments.reporting.findings import Claim, Panel, Series, Summary, Surface, Table
from experiments.reporting.report import write_report
from experiments.store import Store
from nitro.cli.main import app
from nitro.errors import EXIT_USAGE, CommandError
from tests.experiments.made_up import MACHINE

SUMMARY = Summary(
    name="policies",
    title="Policies",
    paper="Figure 15",
    command="nitro experiment run policies --seeds 2",
    quick=False,
    seeds=2,
    cells=4,
    left_out=(LeftOut(what="impact on Hopper-v4", why="not there"),),
    environment=MACHINE,
    measured_on=("2 x one, commit abc", "4 x two, commit ef", "2 x one, commit def"),
    panels=(
        Panel(
            title="lines",
            x_label="x",
            y_label="y",
            series=(Series(label="a", x=(0, 1), y=(1, 2), low=(0, 1), high=(2, 3)),),
        ),
        Panel(
            title="bars",
            x_label="",
            y_label="y",
            kind="bar",
            series=(Series(label="a", x=(0,), y=(1,), low=(0.5,), high=(2,)),),
            categories=("Hopper",),
        ),
        Panel(
            title="points",
            x_label="",
            y_label="y",
            kind="point",
            series=(Series(label="a", x=(0,), y=(1,), low=(0.5,), high=(2,)),),
            categories=("Hopper",),
        ),
        Surface(title="s", x_label="", y_label="", z_label="z", axis=(-1, 1), z=((0, 1), (1, 2))),
    ),
    tables=(Table(title="T", columns=("a", "b"), rows=(("x|y", 0.123456), (None, 3))),),
    claims=(Claim(paper="P", ours="O", verdict="holds"),),
)


def pages(docs: Path) -> None:
    """Write pages to be filled."""
    (docs / "results").mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (docs / "results" / f"{name}.md").write_text(marked(name))
    (docs / "results.md").write_text(marked("overview"))


def marked(name: str) -> str:
    return f"words\n<!-- begin {name} -->\nold\n<!-- end {name} -->\nmore words\n"


def texts(docs: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in docs.rglob("*.md")}


def test_pages_are_filled_and_filled_again_alike(tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    Store(out, load("policies"), quick=False).write_summary(SUMMARY)
    pages(docs)
    assert write_report(docs, out) == 1
    filled = texts(docs)
    text = filled["policies.md"]
    assert "Measured on 2 x one, commit abc, def; 4 x two, commit ef." in text
    assert "| P | O | holds |" in text
    assert "| x\\|y | 0.1235 |" in text
    assert "impact on Hopper-v4: not there" in text
    assert "nitro experiment run actors`" in filled["actors.md"]  # what to do about a missing one
    assert "| [`policies`](results/policies.md) | " in filled["results.md"]
    assert "4 runs, 2 seeds" in filled["results.md"]
    for page in filled.values():
        assert page.startswith("words\n")
        assert page.endswith("\nmore words\n")
        assert "\nold\n" not in page
    write_report(docs, out)
    assert texts(docs) == filled


def test_a_page_has_the_same_experiment_with_another_horizon_as_well(tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    experiment = load("policies")
    Store(out, experiment, quick=False).write_summary(SUMMARY)
    longer = with_horizon(experiment, "limit")
    changed = {"name": longer.name, "title": longer.title, "command": longer.command}
    Store(out, longer, quick=False).write_summary(SUMMARY.model_copy(update=changed))
    pages(docs)
    write_report(docs, out)
    before, _, after = texts(docs)["policies.md"].partition(f"### {longer.title}")
    assert "Made by `nitro experiment run policies --seeds 2`" in before
    assert "Made by `nitro experiment run policies --horizon limit`" in after
    assert "policies-limit/policies-limit.png" in after


def test_links_lead_from_the_pages_to_the_results_wherever_both_are(tmp_path: Path) -> None:
    out = tmp_path / "results"
    store = Store(out, load("policies"), quick=False)
    store.write_summary(SUMMARY)
    draw(SUMMARY, store.summary_path)
    for docs in (tmp_path / "docs", tmp_path / "docs" / "deep"):
        pages(docs)
        write_report(docs, out)
        found = [
            page.parent / link
            for page in (docs / "results").glob("*.md")
            for link in re.findall(r"\]\((.+?)\)", page.read_text())
        ]
        assert len(found) == 1
        assert all(path.is_file() for path in found), found


def test_where_one_page_has_no_markers_all_are_left_alone(tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    Store(out, load("policies"), quick=False).write_summary(SUMMARY)
    pages(docs)
    (docs / "results.md").write_text("nothing here")
    before = texts(docs)
    with pytest.raises(CommandError, match="begin overview"):
        write_report(docs, out)
    assert texts(docs) == before


@pytest.mark.parametrize(("name", "why"), [("missing", "is no folder"), ("", "holds no results")])
def test_without_results_the_pages_are_left_alone(tmp_path: Path, name: str, why: str) -> None:
    docs = tmp_path / "docs"
    pages(docs)
    before = texts(docs)
    arguments = ["experiment", "report", "--out", str(tmp_path / name), "--docs", str(docs)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == EXIT_USAGE
    assert f"--out {tmp_path / name}: {why}" in result.output
    assert texts(docs) == before


def test_a_picture_follows_from_the_json_alone(tmp_path: Path) -> None:
    again = Summary.model_validate_json(SUMMARY.model_dump_json())
    assert again == SUMMARY
    first = draw(SUMMARY, tmp_path / "a.json").read_bytes()
    assert first == draw(again, tmp_path / "b.json").read_bytes()
    assert first.startswith(b"\x89PNG")


def test_a_label_has_one_colour_in_all_panels_and_its_own_in_each() -> None:
    def panel(labels: str) -> Panel:
        series = tuple(Series(label=label, x=(0.0,), y=(1.0,)) for label in labels)
        return Panel(title="T", x_label="x", y_label="y", series=series)

    shown = ["abc", "cd", "efad", "g", "hijklmno"]
    panels = (*map(panel, shown[:2]), SUMMARY.panels[-1], *map(panel, shown[2:]))
    colours = series_colours(SUMMARY.model_copy(update={"panels": panels}))
    assert sorted(colours) == sorted(set("".join(shown)))
    for labels in shown:
        assert len({colours[label] for label in labels}) == len(labels)


@pytest.mark.parametrize(
    ("cells", "seeds", "made"), [(1, 1, "1 run, 1 seed"), (12, 3, "12 runs, 3 seeds")]
)
def test_how_many_runs_there_are_is_said_in_words(cells: int, seeds: int, made: str) -> None:
    assert SUMMARY.model_copy(update={"cells": cells, "seeds": seeds}).made == made


@pytest.mark.parametrize(
    ("titles", "columns"),
    [("aabbcc", 4), ("aaabbb", 3), ("abc", 3), ("aab", 3), ("aa", 3), ("", 3)],
)
def test_two_panels_of_one_title_share_a_row(titles: str, columns: int) -> None:
    assert num_columns([*titles]) == columns
