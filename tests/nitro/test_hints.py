"""Commands that are suggested: each is typed as it stands, wherever the user works."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from nitro.cli.main import app
from nitro.cli.training.seeds import _next as next_of_seeds
from nitro.cli.training.train import _left as left
from nitro.client.client import NitroClient
from nitro.dashboard.page_link import shown_link
from nitro.hints import Place
from nitro.local.access import Api
from nitro.runs.seeds import SeedSummary
from nitro.runs.summary import going_on, next_commands, summarise
from shared.contracts.job_spec import JobSpec
from tests.documents import ROOT
from tests.nitro.synthetic_run import cost, job
from tests.test_documents import parse

PLACES = [
    Place(),
    Place(runs_dir=Path("/data/my runs's")),
    Place(runs_dir=Path("$HOME"), environment_packages=("my_envs", "arm:make")),
    Place(runs_dir=Path("runs/of me"), api_url="https://host:8443"),
]
SOURCES = [
    path
    for package in ("nitro", "services", "functions", "learning", "shared", "experiments")
    for path in sorted((ROOT / package).rglob("*.py"))
]
GROUP = get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = sorted(GROUP.commands)
MENTION = re.compile(rf"\bnitro (?:{'|'.join(COMMANDS)})\b")
RECORDED = {"experiments/catalogue.py", "experiments/experiment.py"}
"""Their commands stand in the JSON of results, and name nothing but studies of ours."""
QUOTED = re.compile(r"`(nitro [^`]+)`")


def suggested(place: Place) -> Iterator[str]:
    """Yield every command that is composed for a place."""
    with NitroClient("http://127.0.0.1:1", "a") as client:
        unended = left("a-1", Api(client=client, place=place))
    for line in unended.splitlines():
        yield line.partition("with: ")[2]
    for reason in ("user", "budget", "max_wall"):
        spec = JobSpec.model_validate({"stop": {"max_wall_s": 60}})
        stopped = job(status="stopped", stop_reason=reason, spec=spec)
        yield going_on(stopped, wall_s=70.0, place=place) or "nothing"
    for preset in ("paper", "standard"):
        ended = job(spec=JobSpec.model_validate({"preset": preset, "env_id": "ALE/Pong-v5"}))
        yield from (command for command, _ in next_commands(ended, place))
    summary = summarise(job(), (), cost(), run_dir=None)
    seeds = [SeedSummary(**dict(summary), seed=seed, training_return=None) for seed in (1, 2)]
    yield from (command for command, _ in next_of_seeds(seeds, place))
    page = shown_link("http://host", "secret", private=False, place=place, job_id="a-1")
    yield page.partition("with: ")[2].removesuffix(")")
    for words in (("export", "a-1", "--out", "policy"), ("up",), ("check-env", "A-v0")):
        yield place.command(*words)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: str(place.runs_dir))
def test_every_suggested_command_is_read_as_it_was_meant(place: Place) -> None:
    for line in suggested(place):
        words = shlex.split(line)
        assert "$" not in line or "'$HOME'" in line
        if words[0].startswith("NITRO_API_URL="):
            assert words.pop(0) == f"NITRO_API_URL={place.api_url}"
        assert Path(words[0]).name == "nitro"
        given = parse(words[1:], whole=True)
        assert given.get("runs_dir", place.runs_dir) == place.runs_dir, line
        assert given.get("api_url", place.api_url) == place.api_url, line
        packages = given.get("environment_packages", list(place.environment_packages)) or []
        assert packages == list(place.environment_packages), line


def texts(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield a file's strings that are no docstring, and whether values are put into each."""
    source = path.read_text("utf-8")
    tree = ast.parse(source if MENTION.search(source) else "")
    expressions = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in expressions:
            continue
        if isinstance(node.value, str):
            yield node.value, id(node) in inside


def test_no_message_composes_a_command_by_itself() -> None:
    """A value in a command needs quotes, and its place: `Place.command` adds both."""
    composed = []
    for path in SOURCES:
        for text, is_part in texts(path):
            told = QUOTED.sub("", text)
            if is_part and MENTION.search(told) and str(path.relative_to(ROOT)) not in RECORDED:
                composed.append(f"{path.relative_to(ROOT)}: {text}")
            for command in QUOTED.findall(text):
                parse(shlex.split(command)[1:], whole=False)
    assert composed == []
