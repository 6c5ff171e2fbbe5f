"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from nitro.hints import RUNS as RUNS  # the default of RunsDir

RunsDir = Annotated[Path, typer.Option("--runs-dir", help="Folder of the local runs.")]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Run folder or job id; its beginning is enough if unique. One that is not here is "
        "fetched from the API that is named.",
    ),
]
Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN", help="Run folders or job ids, or how these begin."),
]
AsJsonList = Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Checkpoint = Annotated[
    Literal["newest", "best"] | None,
    typer.Option(
        "--checkpoint",
        help="Whose policy; `best` had the best evaluation in training. Default: newest, or best "
        "where training ended at its target.",
        show_default=False,
    ),
]
EnvironmentPackages = Annotated[
    list[str] | None,
    typer.Option(
        "--environment-package",
        metavar="NAME",
        help="Python package of your own that registers environments; repeatable; default: "
        "NITRO_ENVIRONMENT_PACKAGES.",
        show_default=False,
    ),
]
FromScratch = Annotated[
    bool,
    typer.Option(
        "--from-scratch",
        help="If the checkpoints are gone, run and pay for all rounds again.",
    ),
]
FreshSchedule = Annotated[
    bool,
    typer.Option(
        "--fresh-schedule",
        help="With more rounds: let the step size decay anew over them. Without it, it stays as it "
        "was in the last round.",
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        help="REST API; default: NITRO_API_URL, or the local system that uses --runs-dir.",
        show_default=False,
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Leave the job to `nitro up` or an API once it is admitted.",
    ),
]
