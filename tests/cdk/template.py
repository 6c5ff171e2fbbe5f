"""A synthesised stack, as the tests read it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk.app import build_app
from cdk.containers import REPOSITORY
from shared.deployment.config import ACCOUNT_CONTEXT_KEY, CONTEXT_KEY

Properties = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Synthesised:
    """A cloud assembly with one stack."""

    folder: Path
    name: str
    template: dict[str, Any]

    def of_type(self, kind: str) -> dict[str, Properties]:
        """Properties of all resources of a type, by logical id."""
        return {
            name: resource.get("Properties", {})
            for name, resource in self.template["Resources"].items()
            if resource["Type"] == kind
        }

    def only(self, kind: str) -> Properties:
        """Properties of the one resource of a type."""
        found = self.of_type(kind)
        assert len(found) == 1, f"{kind}: {sorted(found)}"
        return next(iter(found.values()))

    def named(self, kind: str, prefix: str) -> Properties:
        """Properties of the one resource of a type whose logical id begins like that."""
        found = [p for name, p in self.of_type(kind).items() if name.startswith(prefix)]
        assert len(found) == 1, f"{kind} {prefix}: {len(found)}"
        return found[0]

    def output(self, name: str) -> str:
        """Value of an output, as it will read."""
        return text(self.template["Outputs"][name]["Value"])

    def report(self) -> dict[str, Any]:
        """What the checks found."""
        path = self.folder / "validation-report.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


Variant = Callable[..., Synthesised]
"""Makes a stack that differs from `cdk.json` in the fields it is given."""


def synthesise(
    folder: Path,
    *,
    fields: Mapping[str, object] | None = None,
    answer: Mapping[str, object] | None = None,
) -> Synthesised:
    """Write an assembly and read its template; findings of the checks raise."""
    described = json.loads((REPOSITORY / "cdk.json").read_text(encoding="utf-8"))["context"]
    context: dict[str, object] = {CONTEXT_KEY: described[CONTEXT_KEY] | dict(fields or {})}
    if answer is not None:
        context[ACCOUNT_CONTEXT_KEY] = dict(answer)
    app = build_app(context=context, outdir=str(folder))
    return read(folder, app.synth().stacks[0].stack_name)


def read(folder: Path, name: str) -> Synthesised:
    """Read an assembly that was written."""
    path = folder / f"{name}.template.json"
    return Synthesised(folder=folder, name=name, template=json.loads(path.read_text("utf-8")))


def text(value: object) -> str:
    """Write a value of a template as one line, references as `<LogicalId>` or `<Id.Attribute>`."""
    match value:
        case str():
            return value
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(text(part) for part in parts)
        case {"Fn::Sub": pattern}:
            return str(pattern)
    return json.dumps(value)
