"""MkDocs' hooks: pages made from the code, and links that lead out of `docs/`.

The reference is never written by hand. It comes from what `nitro --help`, `nitro fields`,
`nitro presets` and `nitro policies` print, and from the API's own description.
"""

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from experiments.catalogue import NAMES

ROOT = Path(__file__).parents[1]
_FROM_ABROAD = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?https?://""")
_FOUND_LAST = ("decisions/", "results/", "environments-kept")
"""Pages that a search puts behind the others: whoever searches wants to know how, not why."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> None:
    """List a page for each experiment and each decision."""
    decisions = sorted(path.stem for path in Path(config.docs_dir, "decisions").glob("*.md"))
    listed = {
        "Results": ["references", "first_results", "memory", "observations", *NAMES],
        "Decisions": decisions,
    }
    nav: list[dict[str, Any]] = config.nav or []
    for section in nav:
        for title, names in listed.items():
            if title in section:
                section[title] += [f"{title.lower()}/{name}.md" for name in names]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made from the code.

    Some stand in for a page of the repository, which says where its content is.
    """
    for path, text in reference_pages().items():
        page = File.generated(config, f"reference/{path}", content=text)
        if (stub := files.get_file_from_path(page.src_uri)) is not None:
            files.remove(stub)
        files.append(page)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Carry files outside of `docs/` into the site where a page shows or links them."""
    if page.file.src_uri.startswith(_FOUND_LAST):
        page.meta["search"] = {"boost": 0.2}
    folder = posixpath.dirname(page.file.src_uri)

    def replace(link: re.Match[str]) -> str:
        mark, text, target = link.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if ":" in target or target.startswith("#") or path.startswith("docs/"):
            return link[0]
        source = ROOT / path
        if not source.exists():
            raise PluginError(f"{page.file.src_uri}: there is no {path}")
        if source.is_dir() or source.suffix == ".md":
            return text
        name = f"files/{path}"
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(source)))
        return f"{mark}[{text}]({posixpath.relpath(name, folder or '.')})"

    return _LINK.sub(replace, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Refuse a page that needs a network."""
    del config
    if found := _FROM_ABROAD.search(output):
        raise PluginError(f"{page.file.src_uri}: needs a network: {found[0]}")


def reference_pages() -> dict[str, str]:
    """Return the pages made from the code, by their names."""
    description = openapi()
    return {
        "cli.md": "\n\n".join(_cli()),
        "fields.md": "\n\n".join(_fields()),
        "names.md": "\n\n".join(_names_elsewhere()),
        "presets.md": "\n\n".join(_presets()),
        "policies.md": "\n\n".join(_policies()),
        "rest.md": "\n\n".join(_rest(description)),
        "openapi.json": json.dumps(description, indent=1),
    }


def _cli() -> Iterator[str]:
    from typer.main import get_command

    from nitro.cli.main import app

    yield "# Command line\n\nThe same text as `--help` of each command."
    yield from _commands(get_command(app), "nitro")


def _commands(command: Any, name: str) -> Iterator[str]:
    """Describe a command of click, or all commands of a group."""
    if hasattr(command, "commands"):
        for part, child in command.commands.items():
            yield from _commands(child, f"{name} {part}")
        return
    options = [param for param in command.params if param.param_type_name == "option"]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join((name, *(_argument(argument) for argument in arguments)))
    yield f"## `{name}`"
    yield cleandoc(command.help or "")
    yield f"```text\n{usage}{' [OPTIONS]' if options else ''}\n```"
    rows = [(f"`{_argument(argument)}`", argument.help or "", "") for argument in arguments]
    rows += [(_names(option), option.help or "", _default(option)) for option in options]
    if rows:
        yield _table(("", "meaning", "default"), rows)
    examples = re.findall(r"\$ (.+)", command.epilog or "")
    if examples:
        yield "```sh\n" + "\n".join(examples) + "\n```"


def _argument(argument: Any) -> str:
    shown: str = argument.metavar or argument.name.upper()
    return shown if argument.required else f"[{shown}]"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _default(option: Any) -> str:
    shown = option.default is not None and option.show_default and not option.is_flag
    return f"`{option.default}`" if shown else ""


def _fields() -> Iterator[str]:
    from nitro.spec.fields import field_rows

    yield (
        "# Fields of a job\n\n`nitro fields` prints them. Each is an option, such as "
        "`--detector.num-samples 512`, and a key in a `--spec` file and in a REST request. "
        "Hyper-parameters are listed in [Presets](presets.md): they are options without a group, "
        "such as `--clip 0.1`."
    )
    rows = [
        (f"`{row.name}`", f"`{json.dumps(row.default)}`", row.allowed, row.meaning)
        for row in field_rows()
    ]
    yield _table(("field", "default", "may be", "meaning"), rows)


def _names_elsewhere() -> Iterator[str]:
    from shared.contracts.familiar_names import CLEANRL, FAMILIAR, RLLIB, SB3

    yield (
        "# Names from other libraries\n\nWhat Stable-Baselines3, CleanRL and RLlib call it, and "
        "what it is here. Errors about unknown fields and options say the same."
    )
    rows = [
        (
            f"`{each.name}`",
            *("yes" if library in each.libraries else "" for library in (SB3, CLEANRL, RLLIB)),
            f"`{each.here}`" if each.is_field else each.here,
        )
        for each in FAMILIAR
        if each.libraries
    ]
    yield _table(("name", SB3, CLEANRL, RLLIB, "here"), rows)


def _presets() -> Iterator[str]:
    from nitro.spec.presets import preset_reports

    yield "# Presets\n\nEvery hyper-parameter with its source. `nitro presets` prints them."
    for report in preset_reports():
        images = ", images" if report.images else ""
        yield f"## {report.algorithm}, {report.preset}{images}"
        rows = [
            (f"`{row.name}`", f"`{json.dumps(row.value)}`", row.source, row.meaning)
            for row in report.hyperparameters
        ]
        others = ", ".join(f"{env} {horizon}" for env, horizon in report.horizons.items())
        meaning = f"Not a hyper-parameter, but the field's value here. {others}".strip()
        rows.append(("`episodes.horizon`", f"`{json.dumps(report.horizon)}`", "", meaning))
        yield _table(("name", "value", "source", "meaning"), rows)


def _policies() -> Iterator[str]:
    from nitro.spec.scaling_option import FORMS
    from shared.contracts.scaling_spec import POLICIES

    yield (
        "# Parameters of scaling policies\n\n`nitro policies` prints them. "
        "[Scaling policies](../policies.md) has the formulas."
    )
    for name, model in POLICIES.items():
        yield f"## `{name}`\n\n{cleandoc(model.__doc__ or '')}"
        yield f"```text\n--scaling {FORMS.get(name, name)}\n```"
        rows = [
            (
                f"`{field}`",
                "required" if info.is_required() else f"`{json.dumps(info.default)}`",
                " ".join((info.description or "").split()),
            )
            for field, info in model.model_fields.items()
            if field != "policy"
        ]
        if rows:
            yield _table(("parameter", "default", "meaning"), rows)


def openapi() -> dict[str, Any]:
    """Return the description that a scaler serves at `/openapi.json`."""
    from fastapi import FastAPI

    from services.scaler.api.routes import api_routes
    from services.scaler.wiring import Components

    app = FastAPI(title="Nitro scaler", version="1")
    # Routes reach the parts when they are called, and nobody calls them here.
    app.routes.extend(api_routes(cast(Components, None)))
    return app.openapi()


def _rest(description: dict[str, Any]) -> Iterator[str]:
    yield (
        "# REST API\n\nEvery call but `/healthz`, `/readyz` and `/openapi.json` needs the header "
        "`Authorization: Bearer TOKEN`. A viewer's token is for GET alone. A wrong request is "
        "answered with a problem document (RFC 9457) that names the fields. "
        "[openapi.json](openapi.json) has every message in full."
    )
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            yield f"## `{method.upper()} {path}`"
            yield route.get("description", route.get("summary", ""))
            parameters = [
                (f"`{p['name']}`", p["in"], p.get("description", ""))
                for p in route.get("parameters", ())
            ]
            if parameters:
                yield _table(("parameter", "in", "meaning"), parameters)
            content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
            if body := _names_of(content.get("schema", {})):
                yield f"Body: {body}"
            answers = [
                (f"`{status}`", answer["description"], _answer(answer))
                for status, answer in route["responses"].items()
            ]
            yield _table(("status", "when", "message"), answers)


def _answer(answer: dict[str, Any]) -> str:
    schemas = [content.get("schema", {}) for content in answer.get("content", {}).values()]
    return ", ".join(dict.fromkeys(filter(None, map(_names_of, schemas))))


def _names_of(schema: dict[str, Any]) -> str:
    """Return the names of the messages that a schema refers to."""
    return ", ".join(f"`{name}`" for name in re.findall(r"schemas/(\w+)", json.dumps(schema)))


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return a text that stays in its cell: a bar inside of code is no border."""
    return re.sub(r"(`[^`]*`)|\|", lambda found: found[1] or r"\|", " ".join(text.split()))
