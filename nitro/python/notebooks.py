"""A notebook's definitions as the source of a module: actors can import only files."""

import ast
import importlib
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any


class NotWritableError(Exception):
    """A needed object has no source."""


def notebook_source(maker: Callable[..., Any]) -> str | None:
    """Return Python source of a function or class and its dependencies.

    Returns:
        None if a dependency has no source, such as an object computed in a cell.
    """
    try:
        defined = [*_defined(maker.__name__, vars(sys.modules["__main__"]), set())]
    except NotWritableError:
        return None
    return "\n".join((found_modules(), *defined))


def found_modules() -> str:
    """Return Python source that reproduces this process's module path."""
    folders = [str(Path(folder).absolute()) for folder in sys.path if Path(folder).is_dir()]
    return (
        "import sys\n\n"
        f"folders = {folders!r}\n"
        "sys.path += [folder for folder in folders if folder not in sys.path]\n"
    )


def _defined(name: str, cells: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """Yield the definition of a name in the cells, after its dependencies."""
    if name in seen or name not in cells:
        return
    seen.add(name)
    value = cells[name]
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if isinstance(value, ModuleType):
        yield f"import {value.__name__}\n{name} = sys.modules[{value.__name__!r}]\n"
    elif module == "__main__" and isinstance(value, type | FunctionType):
        tree, source = _definition(value)
        for used in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
            yield from _defined(used, cells, seen)
        yield f"\n{source}\n"
    elif module and getattr(importlib.import_module(module), qualname, None) is value:
        yield f"from {module} import {qualname} as {name}\n"
    else:
        yield f"{name} = {_literal(value)}\n"


def _definition(value: type[Any] | FunctionType) -> tuple[ast.stmt, str]:
    """Return the newest definition of a class or function, parsed and as source."""
    functions = [value] if inspect.isfunction(value) else [*vars(value).values()]
    codes = [each.__code__ for each in functions if inspect.isfunction(each)]
    for file in dict.fromkeys(code.co_filename for code in codes):
        source = "".join(linecache.getlines(file))
        try:
            statements = ast.parse(source).body
        except SyntaxError:
            continue
        for statement in reversed(statements):
            if getattr(statement, "name", None) == value.__name__:
                decorators = getattr(statement, "decorator_list", [])
                first = min(each.lineno for each in (statement, *decorators))
                return statement, "\n".join(source.splitlines()[first - 1 : statement.end_lineno])
    raise NotWritableError(value.__name__)


def _literal(value: object) -> str:
    text = repr(value)
    try:
        if ast.literal_eval(text) == value:
            return text
    except (ValueError, SyntaxError):
        pass
    raise NotWritableError(text)
