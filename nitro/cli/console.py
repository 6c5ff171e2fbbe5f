"""What makes a function a command: examples in its help, and errors as lines and an exit code."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from nitro.errors import EXIT_INTERRUPTED, CommandError

P = ParamSpec("P")
R = TypeVar("R")


def command(
    app: typer.Typer, *examples: str, name: str | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a command, with examples at the end of its help.

    Its `CommandError` becomes lines on stderr and an exit code.
    """

    def add(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except CommandError as error:
                from nitro.tables import plain

                for line in str(error).splitlines():
                    typer.echo(plain(line), err=True)
                raise typer.Exit(error.exit_code) from None
            except KeyboardInterrupt:
                typer.echo("interrupted", err=True)
                raise typer.Exit(EXIT_INTERRUPTED) from None

        epilog = "\n\n".join(["Examples:", *(f"  $ {example}" for example in examples)])
        return app.command(name, epilog=epilog)(run)

    return add


def show(renderable: object) -> None:
    """Print a table."""
    from rich.console import Console

    Console().print(renderable)
