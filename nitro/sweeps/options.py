"""Options of `nitro sweep`, as its help has them."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

_job = partial(typer.Option, rich_help_panel="What to train", show_default=False)
_searching = partial(typer.Option, rich_help_panel="Search", show_default=False)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the sweep.")]
Parallel = Annotated[
    str,
    typer.Option(
        metavar="auto|N",
        help="Jobs at once; auto: one per core of this machine.",
        rich_help_panel="Where",
    ),
]
Budget = Annotated[
    float | None,
    _job(help="Hard cap on the projected AWS cost of all jobs together.", min=0.0001),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show jobs, minutes and dollars; train nothing.")
]
Form = Annotated[
    Literal["text", "markdown", "latex", "csv"], typer.Option("--format", help="Of the table.")
]
Picture = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="A .png, .pdf or .svg to draw.", show_default=False),
]

Environments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ENV...", help="Gymnasium environments.", show_default=False),
]
Spec = Annotated[Path | None, _job(help="YAML or JSON file of a sweep; options win.")]
Seeds = Annotated[str | None, _job(metavar="N|FROM-TO|N,N,...", help="N is 1 to N; default: 5.")]
Vary = Annotated[
    list[str] | None,
    _job(metavar="FIELD=a,b", help="Values of a field of the job; repeatable: a grid."),
]
TotalSteps = Annotated[
    str | None, _job(metavar="STEPS", help="Environment steps of each job, such as 1e6.")
]
SweepName = Annotated[str | None, _job(help="Name of the sweep.")]

Search = Annotated[
    list[str] | None,
    _searching(
        metavar="FIELD=LOW:HIGH[:log][:int]",
        help="Search for the best value of a field; repeatable.",
    ),
]
Trials = Annotated[int | None, _searching(help="Number of trials; default: 16.", min=1)]
Sampler = Annotated[
    str | None, _searching(metavar="random|tpe", help="tpe is Optuna's; default: random.")
]
Batch = Annotated[
    int | None,
    _searching(help="Trials sampled together; default: all, or a quarter with tpe.", min=1),
]
Rungs = Annotated[
    str | None,
    _searching(
        metavar="STEPS,STEPS,...",
        help="Steps at which all trials pause, and the best are promoted.",
    ),
]
Keep = Annotated[float | None, _searching(help="Share that is promoted; default: 0.5.")]
Finalists = Annotated[
    int | None, _searching(help="Best trials to train with fresh seeds; default: 1.", min=0)
]
FinalSeeds = Annotated[int | None, _searching(help="Seeds of each finalist; default: 10.", min=1)]
SearchSeed = Annotated[
    int | None, _searching(help="Seed of the sampled values; default: 0.", min=0)
]
