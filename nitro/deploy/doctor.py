"""`nitro doctor`: check whether this machine, or an AWS account, can run Nitro."""

import json
import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nitro.cli.console import show
from nitro.cli.options import RUNS, AsJson, RunsDir
from nitro.deploy.findings import Finding, any_wrong, findings_table
from nitro.errors import EXIT_FAILED, CommandError

if TYPE_CHECKING:
    from shared.deployment.config import NitroConfig

EXAMPLES = (
    "nitro doctor",
    "nitro doctor --aws",
    "nitro doctor --aws --region eu-west-1 --json",
)
CONFIG_FILE = "cdk.json"
CONTEXT_FILE = "cdk.context.json"


def doctor(
    *,
    aws: Annotated[
        bool, typer.Option("--aws", help="Check the AWS account instead of this machine.")
    ] = False,
    region: Annotated[
        str | None,
        typer.Option(help="With --aws: region; default: that of cdk.json or your AWS settings."),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            help="With --aws: folder of cdk.json. The answer goes into cdk.context.json there."
        ),
    ] = Path(),
    as_json: AsJson = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Check whether Nitro can run here, or on AWS, and give advice if it cannot."""
    findings = (
        _examine_account(folder, region=region, as_json=as_json)
        if aws
        else _examine_machine(runs_dir, as_json=as_json)
    )
    if any_wrong(findings):
        raise typer.Exit(EXIT_FAILED)


def record_answer(path: Path, answer: dict[str, object]) -> None:
    """Put the account's answer into the CDK context, and keep all other entries.

    Raises:
        CommandError: The file is not a context, or cannot be written.
    """
    from shared.deployment.config import ACCOUNT_CONTEXT_KEY

    try:
        context = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not isinstance(context, dict):
            raise CommandError(f"{path}: is not a CDK context (a JSON object): move it away")
        context[ACCOUNT_CONTEXT_KEY] = answer
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(context, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        partial.replace(path)
    except ValueError as error:
        raise CommandError(f"{path}: is not JSON ({error}): repair or remove it") from error
    except OSError as error:
        raise CommandError(f"{path}: cannot be written: {error.strerror}") from error


def read_deployment(path: Path) -> "NitroConfig":
    """Return the deployment of `cdk.json`, or the default one without that file.

    Raises:
        CommandError: The file is wrong, or cannot be read.
    """
    from shared.deployment.config import CONTEXT_KEY, ConfigError, read_config

    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return read_config(content.get("context", {}).get(CONTEXT_KEY, {}))
    except ConfigError as error:
        raise CommandError(f"{path}: {error}") from None
    except (OSError, ValueError, AttributeError) as error:
        raise CommandError(f"{path}: cannot be read as a CDK configuration: {error}") from error


def _examine_machine(runs_dir: Path, *, as_json: bool) -> list[Finding]:
    from nitro.deploy.machine_checks import check_machine

    findings = check_machine(runs_dir)
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}))
    else:
        show(findings_table(findings, title="This machine"))
    return findings


def _examine_account(folder: Path, *, region: str | None, as_json: bool) -> list[Finding]:
    from nitro.deploy.account import ask_account
    from nitro.deploy.account_checks import check_account, startable
    from nitro.deploy.stack_costs import (
        busy_usd_per_hour,
        costs_table,
        idle_usd_per_month,
        stack_costs,
    )
    from shared.deployment.machines import GPU_QUOTA, LEARNER_START_S

    config = read_deployment(folder / CONFIG_FILE)
    account = ask_account(
        region=region or config.region,
        zones=config.availability_zones,
        linked=config.endpoint != "none",
        instance_types=config.learner_instance_types,
    )
    findings = check_account(account, config)
    machines = startable(account, config)
    costs = stack_costs(config, learner_instance=next(iter(machines), None))
    answer: dict[str, object] = {
        "offered_instance_types": list(machines),
        "lambda_concurrency": None if account.lambda_limits is None else account.lambda_limits[0],
        "zone_ids": account.zone_ids,
        "gpu_vcpus": account.vcpus.get(GPU_QUOTA),
        "checked_at": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
    }
    record_answer(folder / CONTEXT_FILE, answer)
    if as_json:
        report = {
            "region": account.region,
            "findings": [asdict(finding) for finding in findings],
            "answer": answer,
            "idle_usd_per_month": round(idle_usd_per_month(costs), 4),
            "busy_usd_per_hour": round(busy_usd_per_hour(costs), 4),
            "costs": [asdict(item) for item in costs],
            "learner_start_s": LEARNER_START_S,
        }
        typer.echo(json.dumps(report))
    else:
        show(findings_table(findings, title=f"AWS account, {account.region}"))
        show(costs_table(costs, prices=config.price_table))
    return findings
