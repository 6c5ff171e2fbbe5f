"""`nitro experiment`: the paper's evaluation, and ours, as commands.

The experiments are part of the source tree and are not installed with this package.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from nitro.cli.console import command, show
from nitro.errors import CommandError

app = typer.Typer(
    help="Run the paper's experiments, and plot and report their results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_NEEDED = ("scipy", "matplotlib", "torch")
_RESULTS = Path("experiments/results")
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `nitro experiment list` shows it.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of all results.")]


def require_source(*needed: str) -> None:
    """Require the source tree and the packages of its experiments.

    Raises:
        CommandError: One is missing; says how to install it.
    """
    missing = [name for name in ("experiments", "benchmarks") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"no package {missing[0]!r}: experiments come with the source tree, "
            "not with the installed package; run this in a clone (pip install -e '.[experiments]')"
        )
    if absent := [name for name in needed if find_spec(name) is None]:
        raise CommandError(f"this needs {', '.join(absent)}: pip install -e '.[experiments]'")


@command(app, "nitro experiment list", name="list")
def list_experiments(*, out: Out = _RESULTS) -> None:
    """List the experiments and their results."""
    require_source()
    from experiments.catalogue import experiments_table

    show(experiments_table(out))


@command(
    app,
    "nitro experiment run actors --quick",
    "nitro experiment run policies --seeds 10",
    "nitro experiment run policies --seeds 10 --parallel 4 --out /data/results",
    "nitro experiment run policies --only-made",
    "nitro experiment run actors --horizon limit",
)
def run(
    name: Name,
    *,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each condition; default: the experiment's.", min=1)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smoke test of a few tiny runs.")
    ] = False,
    out: Out = _RESULTS,
    parallel: Annotated[
        int | None, typer.Option(help="Jobs at once; default: one per core.", min=1)
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            help=(
                "Length of training episodes: limit (the environment's own) or steps. Results are "
                "in NAME-HORIZON."
            )
        ),
    ] = None,
    only_made: Annotated[
        bool, typer.Option("--only-made", help="Run nothing; summarise the existing runs.")
    ] = False,
) -> None:
    """Run an experiment, or continue it. Ctrl-C stops its jobs after their current updates."""
    require_source(*_NEEDED)
    from experiments.command import run_and_draw

    run_and_draw(
        name,
        seeds=seeds,
        quick=quick,
        out=out,
        parallel=parallel,
        only_made=only_made,
        horizon=horizon,
    )


@command(app, "nitro experiment plot policies", "nitro experiment plot actors --horizon limit")
def plot(
    name: Name,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Use the --quick run.")] = False,
    horizon: Annotated[
        str | None, typer.Option(help="Use the run with this horizon: limit or steps.")
    ] = None,
    out: Out = _RESULTS,
) -> None:
    """Redraw an experiment's figure from its JSON."""
    require_source(*_NEEDED)
    from experiments.command import draw_again

    typer.echo(str(draw_again(name, quick=quick, out=out, horizon=horizon)))


@command(app, "nitro experiment report")
def report(
    *,
    out: Out = _RESULTS,
    docs: Annotated[
        Path, typer.Option("--docs", metavar="DIR", help="Folder of the pages to fill.")
    ] = Path("docs"),
) -> None:
    """Write every experiment's tables and claims into its page of the documentation."""
    require_source(*_NEEDED)
    from experiments.reporting.report import write_report

    typer.echo(f"{docs}: {write_report(docs, out)} experiments with results")
