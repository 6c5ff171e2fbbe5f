"""What makes a function a command: examples in its help, and errors as lines and an exit code."""

import functools
import os
import select
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from nitro.errors import EXIT_INTERRUPTED, EXIT_UNREAD, CommandError

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
            except BrokenPipeError:
                if not _silence_unread():
                    raise  # of another pipe
                typer.echo("ended, as nobody reads the output any more", err=True)
                raise typer.Exit(EXIT_UNREAD) from None

        epilog = "\n\n".join(["Examples:", *(f"  $ {example}" for example in examples)])
        return app.command(name, epilog=epilog)(run)

    return add


def _silence_unread() -> bool:
    """Send what nobody reads nowhere, as the interpreter's last flush would complain of it.

    Returns:
        Whether there was any.
    """
    streams = (sys.stdout.fileno(), sys.stderr.fileno())
    unread = [descriptor for descriptor in streams if _is_unread(descriptor)]
    for descriptor in unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return bool(unread)


def _is_unread(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def show(renderable: object) -> None:
    """Print a table."""
    from nitro.tables import Output

    Output().print(renderable)
