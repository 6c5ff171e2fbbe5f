"""A decorator for commands: examples in the help, errors as lines and an exit code."""

import functools
import os
import select
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from nitro.cli.training.field_options import FAMILIAR_OPTIONS, PATHS
from nitro.errors import EXIT_INTERRUPTED, EXIT_UNREAD, CommandError

P = ParamSpec("P")
R = TypeVar("R")


class _TakesFields(TyperCommand):
    """A command with an option for every field of a job, in addition to its own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments."""
        args = [_ours(arg) for arg in args]
        try:
            return super().parse_args(ctx, [*args])  # which empties its list
        except TyperException as error:
            _, is_unknown, option = error.message.partition("No such option: ")
            if not is_unknown:
                raise
            from nitro.spec.fields import option_field, option_hint

            field = (PATHS[option], None) if option in PATHS else option_field(option)
            if field is None:
                error.message += option_hint(option)
                raise
        return self.parse_args(ctx, _as_set(args, option, *field))


def command(
    app: typer.Typer, *examples: str, name: str | None = None, takes_fields: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a command, with examples at the end of its help.

    Its `CommandError` becomes lines on stderr and an exit code.

    Args:
        app: Its group.
        *examples: Lines for its help.
        name: Its name, if it is not the function's.
        takes_fields: Whether every field of a job is an option, too. The function must have the
            option `--set`.
    """
    kind = _TakesFields if takes_fields else TyperCommand

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
                typer.echo("ended: the output pipe was closed", err=True)
                raise typer.Exit(EXIT_UNREAD) from None

        epilog = "\n\n".join(["Examples:", *(f"  $ {example}" for example in examples)])
        return app.command(name, epilog=epilog, cls=kind)(run)

    return add


def _ours(arg: str) -> str:
    """Return an argument with our name in place of another library's.

    >>> _ours("--lr=0.1"), _ours("--seed")
    ('--learning-rate=0.1', '--seed')
    """
    option, *value = arg.split("=", 1)
    return "=".join((FAMILIAR_OPTIONS.get(option, option), *value))


def _as_set(args: list[str], option: str, path: str, flag: str | None) -> list[str]:
    """Return the arguments with `--set` in place of an option.

    >>> _as_set(["CartPole-v1", "--seed", "1", "--json"], "--seed", "seed", None)
    ['CartPole-v1', '--set', 'seed=1', '--json']

    Args:
        args: The arguments.
        option: Stands somewhere among them.
        path: Of its field.
        flag: The value of an option without one.

    Raises:
        typer.BadParameter: It has no value, and is not a flag.
    """
    at = next(index for index, arg in enumerate(args) if arg.partition("=")[0] == option)
    before, (arg, *after) = args[:at], args[at:]
    _, is_joined, value = arg.partition("=")
    if not is_joined and flag is not None:
        value = flag
    elif not is_joined:
        if not after or after[0].startswith("--"):
            raise typer.BadParameter("give a value", param_hint=option)
        value, *after = after
    return [*before, "--set", f"{path}={value}", *after]


def _silence_unread() -> bool:
    """Discard unread output, on which the interpreter's last flush would fail.

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
