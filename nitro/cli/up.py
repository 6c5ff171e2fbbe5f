"""`nitro up`: the local system in the foreground."""

from collections.abc import Callable, Mapping
from pathlib import Path

from nitro.cli.interrupts import Interrupts
from nitro.local.system import LocalSystem

_CHECK_S = 0.5


def run_until_interrupted(
    runs_dir: Path,
    *,
    port: int,
    processes: int | None,
    cache_url: str | None,
    actor_variables: Mapping[str, str],
    interrupts: Interrupts,
    say: Callable[[str], object],
) -> None:
    """Run the local system until Ctrl-C.

    Raises:
        CommandError: It cannot start, or one of its processes ended.
    """
    with LocalSystem(
        runs_dir,
        api_port=port,
        lasting=True,
        processes=processes,
        cache_url=cache_url,
        actor_variables=actor_variables,
    ) as system:
        system.wait_ready()
        interrupts.armed = True  # before the greeting, which says that Ctrl-C ends it
        say(_greeting(system))
        while not interrupts.asked:
            system.check()
            interrupts.pause(_CHECK_S)
        say("stopping; running jobs go on from their checkpoints when it is up again")


def _greeting(system: LocalSystem) -> str:
    return (
        f"API    {system.api_url}\n"
        f"token  {system.token_path}\n"
        f"logs   {system.logs}\n\n"
        f'  curl -H "Authorization: Bearer $(cat {system.token_path})" {system.api_url}/v1/jobs\n\n'
        "To see a fault, such as the next three actors lost (`{}` ends all):\n\n"
        f'  curl -X PUT -H "Authorization: Bearer $(cat {system.lambda_token_path})" '
        f"{system.lambda_url}/emulator/faults -d '{{\"crash_next\": 3}}'\n\n"
        "Ctrl-C ends it."
    )
