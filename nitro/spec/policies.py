"""`nitro policies`: every scaling policy with its parameters."""

from inspect import cleandoc

from pydantic.fields import FieldInfo
from rich.table import Table
from rich.text import Text

from nitro.spec.scaling_option import FORMS
from shared.contracts.scaling_spec import POLICIES


def policies_table() -> Table:
    """One block per policy: what it does, how it is written, and what can be set."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("policy", style="bold", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("", overflow="fold")
    forms = {form.split("[")[0].split(":")[0]: form for form in FORMS}
    for name, model in POLICIES.items():
        table.add_row(name, "", Text(cleandoc(model.__doc__ or "").replace("\n", " ")))
        table.add_row("", "", Text(f"--scaling {forms[name]}", style="dim"))
        for field, info in model.model_fields.items():
            if field != "policy":
                description = " ".join((info.description or "").split())
                table.add_row(f"  {field}", _default(info), Text(description))
    return table


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    return "none" if info.default is None else str(info.default)
