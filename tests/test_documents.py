"""What the documents list is all there is, and no more; what they tell to type exists."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from typer.exceptions import Exit, TyperException
from typer.main import get_command

import nitro
from nitro.cli.main import app
from services.learner.record.tracking import LearnerMetrics
from services.scaler.metrics import Metrics
from shared.contracts.field_errors import known_fields
from tests.documents import DOCUMENTS, ROOT, Command, commands, show

DOCS = ROOT / "docs"
PACKAGES = "nitro|services|functions|learning|shared|cdk|benchmarks|experiments|tests"
COMMANDS = [command for page in DOCUMENTS for command in commands(page)]
SHELL = {"cp", "curl", "export", "git", "mkdir", "tensorboard"}
NEEDING = {"aws": "needs AWS", "docker": "needs Docker"}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(_PROJECT["optional-dependencies"])


def _published(text: bytes) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in text_string_to_metric_families(text.decode())
        if not family.name.endswith("_created")
    }


def test_operations_names_every_metric() -> None:
    learner = CollectorRegistry()
    LearnerMetrics(learner)
    published = _published(Metrics().render()) | _published(generate_latest(learner))
    named = re.findall(
        r"nitro_(?:scaler|learner)_[a-z_]+", (DOCS / "operations.md").read_text(encoding="utf-8")
    )
    assert set(named) == published
    assert len(published) > 15


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_name_files_and_modules_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(rf"[`\s]((?:{PACKAGES}|docs|containers|examples)/[\w./-]*)", text)
    missing = [path for path in named if not (ROOT / path.rstrip(".")).exists()]
    dotted = re.findall(rf"(?:`|-m )(?!cdk)((?:{PACKAGES})(?:\.\w+)+)", text)
    missing += [module for module in dotted if not _is_there(module)]
    assert not missing


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_documents_lead_to_files_of_the_repository(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    paths = [link.partition("#")[0] for link in links if "://" not in link]
    assert [path for path in paths if not (page.parent / path).exists()] == []


def test_python_in_documents_names_what_there_is() -> None:
    blocks = [
        block
        for page in DOCUMENTS
        for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    ]
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom | ast.Import):
                line = ast.unparse(node)
                if line.startswith("from nitro.integrations."):
                    _require_defined(node)
                elif re.match(rf"(?:from|import) (?:{PACKAGES})\b", line):
                    exec(line, {})
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "nitro":
                assert node.attr in nitro.__all__


def _require_defined(node: ast.ImportFrom | ast.Import) -> None:
    """Look names up in the source: their modules import libraries that are not installed here."""
    assert isinstance(node, ast.ImportFrom)
    assert node.module is not None
    source = (ROOT / node.module.replace(".", "/")).with_suffix(".py").read_text("utf-8")
    defined = {each.name for each in ast.parse(source).body if isinstance(each, ast.ClassDef)}
    assert {alias.name for alias in node.names} <= defined


@pytest.mark.parametrize("command", COMMANDS, ids=show)
def test_a_command_that_a_document_shows_exists(command: Command) -> None:
    program, *arguments = command.words
    if program in NEEDING:
        assert command.marker == NEEDING[program], "say so in a comment above the block"
    elif program == "nitro":
        parse(arguments, whole=command.whole)
    elif program == "make":
        assert arguments[0] in TARGETS
    elif program == "python" and arguments[0].endswith(".py"):
        assert (ROOT / arguments[0]).is_file()
    elif program == "python":
        module, *rest = arguments[arguments.index("-m") + 1 :]
        if rest and (ROOT / module / f"{rest[0]}.py").is_file():
            module = f"{module}.{rest[0]}"  # a study, which has options of its own
        require_options(module, [word for word in arguments if word.startswith("--")])
    elif program == "pip":
        assert set(re.findall(r"\.\[(\w+)\]", " ".join(arguments))) <= EXTRAS
    else:
        assert program in SHELL


@pytest.mark.parametrize("line", ["nitro teach", "nitro train --round 3", "nitro jobs show A B"])
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises((TyperException, KeyError)):
        parse(line.split()[1:], whole=True)


def parse(arguments: list[str], *, whole: bool) -> dict[str, object]:
    """Let the command line read the arguments, and run nothing; return what they say.

    Raises:
        TyperException: They make no sense to the command.
        KeyError: There is no such command.
    """
    command, path = get_command(app), "nitro"
    while (known := getattr(command, "commands", None)) and arguments and arguments[0][0] != "-":
        usual = getattr(command, "usual", None)
        if usual is not None and arguments[0] not in known:
            arguments = [usual, *arguments]
        command, path, arguments = known[arguments[0]], f"{path} {arguments[0]}", arguments[1:]
    if known and not whole:
        return {}  # a group of commands is named, not typed
    try:
        return command.make_context(path, [*arguments]).params
    except Exit:
        return {}  # --help and --version end here
    except TyperException as error:
        lacks = str(error).startswith("Missing") or "requires an argument" in str(error)
        if whole or not lacks:
            raise
        return {}


def require_options(module: str, options: list[str]) -> None:
    """Make sure that there is a module, and that it reads these options."""
    path = ROOT / module.replace(".", "/")
    source = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    text = source.read_text("utf-8")
    assert not [option for option in options if f'"{option}"' not in text]


def _is_there(dotted: str) -> bool:
    """Whether there is such a package, module, or name in one of these."""
    path = ROOT / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    homes = path.parent.with_suffix(".py"), path.parent / "__init__.py"
    return any(home.exists() and path.name in home.read_text(encoding="utf-8") for home in homes)


def test_the_glossary_has_one_meaning_a_term_and_fields_that_exist() -> None:
    text = (DOCS / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[1:]
    assert len(set(terms)) == len(terms) > 40
    known = known_fields(algorithm="ppo", policy="nitro")
    assert set(re.findall(r"`((?:stop|episodes|actors|detector)\.[a-z_]+)`", text)) <= set(known)
