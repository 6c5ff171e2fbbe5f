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
        help="Run folder or job id; a unique prefix is enough. A missing run is fetched from the "
        "chosen API.",
    ),
]
Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN", help="Run folders, or job ids or their prefixes."),
]
AsJsonList = Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Checkpoint = Annotated[
    Literal["newest", "best"] | None,
    typer.Option(
        "--checkpoint",
        help="Checkpoint to use; `best` had the best evaluation in training. Default: newest, or "
        "best if training ended at its target.",
        show_default=False,
    ),
]
EnvironmentPackages = Annotated[
    list[str] | None,
    typer.Option(
        "--environment-package",
        metavar="NAME",
        help="Your Python package that registers environments; repeatable; default: "
        "NITRO_ENVIRONMENT_PACKAGES.",
        show_default=False,
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Set any field of the job, as JSON or YAML; repeatable. Fields are options, too, such "
        "as `--algorithm sac` or `--detector.num-samples 512`: see `nitro fields` and `nitro "
        "presets`.",
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
        help="With more rounds: restart the decay of the step size. Otherwise it stays as in the "
        "last round.",
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        "--api-url",
        help="REST API; default: NITRO_API_URL, or the local system of --runs-dir.",
        show_default=False,
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Return once `nitro up` or an API has admitted the job.",
    ),
]
