"""The CDK app: `python -m cdk.app`, alone or called by the `cdk` command line.

Exit codes: 0 when the assembly is written, 2 when the context cannot be deployed (the message
names what to change).
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from aws_cdk import App, Environment, Tags, Validations
from cdk_nag import AwsSolutionsChecks

from cdk.acknowledged import acknowledge_findings
from cdk.containers import REPOSITORY
from cdk.stack import NitroStack
from shared.deployment.config import (
    ACCOUNT_CONTEXT_KEY,
    CONTEXT_KEY,
    ConfigError,
    NitroConfig,
    check_concurrency,
    check_partition,
    read_account,
    read_config,
)

_CANNOT_SYNTHESISE = 2


def build_app(*, context: Mapping[str, object] | None = None, outdir: str | None = None) -> App:
    """Return the app with its one stack and its checks.

    Args:
        context: Overrides of what `cdk.json` says; the command line's `-c` wins over both.
        outdir: Where the assembly goes; None is where the command line wants it.

    Raises:
        ConfigError: The context describes nothing that can be deployed.
    """
    app = App(context=_file_context() | dict(context or {}), outdir=outdir)
    config = read_config(app.node.try_get_context(CONTEXT_KEY))
    account = read_account(app.node.try_get_context(ACCOUNT_CONTEXT_KEY))
    region = config.region or os.environ.get("CDK_DEFAULT_REGION")
    if region is not None:
        check_partition(region)
    check_concurrency(config, account)
    learner_types = config.learner_types(account)
    stack = NitroStack(
        app,
        config.name,
        config=config,
        learner_types=learner_types,
        zones=config.zones(account),
        env=Environment(account=config.account, region=config.region) if config.account else None,
    )
    Tags.of(stack).add("nitro:stack", config.name)
    _warn(stack, config, region, learner_types)
    acknowledge_findings(stack, stack.stores, stack.families.values())
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


def configured() -> NitroConfig:
    """Return the configuration in the context on disk.

    Raises:
        ConfigError: It is not a valid deployment.
    """
    return read_config(_file_context().get(CONTEXT_KEY))


def main(arguments: Sequence[str]) -> int:
    """Write the cloud assembly, into the folder named if one is; return the exit code."""
    try:
        app = build_app(outdir=arguments[0] if arguments else None)
    except ConfigError as error:
        sys.stderr.write(f"cannot deploy this: {error}\n")
        return _CANNOT_SYNTHESISE
    app.synth()
    return 0


def _file_context() -> dict[str, object]:
    """Return the context on disk, so that a run without the command line writes the same."""
    context: dict[str, object] = dict(
        json.loads((REPOSITORY / "cdk.json").read_text(encoding="utf-8"))["context"]
    )
    recorded = REPOSITORY / "cdk.context.json"
    if recorded.is_file():
        context |= json.loads(recorded.read_text(encoding="utf-8"))
    return context


def _warn(
    stack: NitroStack, config: NitroConfig, region: str | None, learner_types: tuple[str, ...]
) -> None:
    """Print warnings that do not stop the synthesis."""
    if config.learner_instance_types and not learner_types:
        Validations.of(stack).add_warning(
            "nitro:no-gpu",
            f"the account can start none of {', '.join(config.learner_instance_types)}: the stack "
            "has no learner with a GPU and refuses jobs that need one (nitro doctor --aws)",
        )
    table = config.price_table
    if region is not None and region != table.region:
        Validations.of(stack).add_warning(
            "nitro:prices",
            f"bills and budgets use the prices of {table.region}, but the stack is for {region}: "
            "higher prices there exceed budgets; set `prices` (docs/operations.md)",
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
