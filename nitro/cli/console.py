"""How commands end: an error is lines on stderr and an exit code."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from nitro.errors import EXIT_INTERRUPTED, CommandError

P = ParamSpec("P")
R = TypeVar("R")


def examples(*commands: str) -> str:
    """Return a help page's last lines: one command each."""
    return "\n\n".join(["Examples:", *(f"  $ {command}" for command in commands)])


def reported(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a command's `CommandError` into lines on stderr and its exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except CommandError as error:
            for line in str(error).splitlines():
                typer.echo(line, err=True)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return run


def show(renderable: object) -> None:
    """Print a table."""
    from rich.console import Console

    Console().print(renderable)
