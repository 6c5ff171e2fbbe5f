"""`nitro scheduler`: train the agent of the scaling policy `minionsrl`.

Like the experiments, the training is part of the source tree only.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.cli.console import command
from nitro.cli.experiment_command import require_source
from nitro.cli.options import RUNS, ApiUrl, Assignments, RunsDir
from nitro.errors import CommandError

if TYPE_CHECKING:
    from pydantic import JsonValue

app = typer.Typer(
    help="Train the agent of the scaling policy `minionsrl`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Env = Annotated[
    str | None,
    typer.Argument(help="Environment of the real or recorded runs.", show_default=False),
]
Runs = Annotated[
    Path | None,
    typer.Option(help="Train on recorded runs: one run folder, or a folder of them."),
]


@app.callback()
def _group() -> None:
    """Keep `train` a subcommand although it is the only one."""


@command(
    app,
    "nitro scheduler train Hopper-v5 --runs runs",
    "nitro scheduler train --runs runs/hopper-v5-3f2a --target-return 600 -o hopper.json",
    "nitro scheduler train CartPole-v1 --episodes 20 --rounds 10 --actors 2:8",
    "nitro train --scaling minionsrl:agent.json",
    takes_fields=True,
)
def train(
    env: Env = None,
    *,
    runs: Runs = None,
    episodes: Annotated[int, typer.Option(help="Number of runs to learn from.", min=1)] = 100,
    assignments: Assignments = None,
    spec: Annotated[Path | None, typer.Option(help="YAML or JSON file of the job.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, draws and real runs.", min=0)] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write the agent to, as JSON.")
    ] = Path("agent.json"),
    as_json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
    api_url: ApiUrl = None,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Train a scheduler on recorded runs (--runs) or real ones, and report the cost.

    Ctrl-C ends it with the best agent so far.
    """
    require_source("torch")
    from experiments.minionsrl.command import train_and_write
    from nitro.spec.short_forms import written_out
    from nitro.spec.spec_file import build_spec, parsed_assignments

    if env is None and runs is None and spec is None:
        raise CommandError(
            "ENV: name an environment for real runs, or give --spec, or recorded runs with --runs"
        )
    given: dict[str, JsonValue] = {"seed": seed}
    if env is not None:
        given["env_id"] = env
    if runs is None and spec is None:
        given["evaluation.every_rounds"] = 1  # the agent looks at the newest evaluation
    given |= written_out(parsed_assignments(assignments or []), runs_dir)
    build = partial(build_spec, file=spec, options=given)
    train_and_write(
        build,
        env_id=env,
        runs=runs,
        episodes=episodes,
        seed=seed,
        output=output,
        as_json=as_json,
        api_url=api_url,
        runs_dir=runs_dir,
    )
