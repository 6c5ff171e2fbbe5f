"""`--scaling POLICY[:ARGUMENT]`: the short form of a scaling policy with its main parameter."""

from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from statistics import fmean

from pydantic import JsonValue, ValidationError
from pydantic.fields import FieldInfo
from rich.table import Table
from rich.text import Text

from nitro.errors import CommandError
from nitro.runs.reading import find_run, read_run
from nitro.spec.spec_file import SCALING, JsonObject, assign_all, field_errors, refusal
from shared.contracts.minions_agent import MinionsAgent
from shared.contracts.scaling_spec import POLICIES, FixedScaling, Policy

FORMS = {
    "nitro": "nitro[:artifact]",
    "fixed": "fixed:N",
    "auto": "auto",
    "random": "random[:MEAN|:RUN]",
    "kungfu": "kungfu[:N]",
    "marginal": "marginal[:USD_PER_HOUR]",
    "hydrozoa": "hydrozoa[:N]",
    "minionsrl": "minionsrl:FILE",
    "reward_window": "reward_window[:N]",
    "schedule": "schedule:N,N,...|:RUN",
}
"""The short forms. N is `every_rounds` for `kungfu` and `hydrozoa`, and the window for
`reward_window`. RUN is a run to repeat or to average. USD_PER_HOUR is the value of an hour.
"""


def scaling_name(scaling: Policy) -> str:
    """Return a policy's name, and the number of actors where it is fixed."""
    return f"fixed:{scaling.num_actors}" if isinstance(scaling, FixedScaling) else scaling.policy


def parse_scaling(text: str, *, runs_dir: Path, option: str = "--scaling") -> JsonObject:
    """Read a policy and its argument.

    Args:
        text: `POLICY` or `POLICY:ARGUMENT`.
        runs_dir: Folder in which to look up a RUN by its id.
        option: Its name in messages.

    Raises:
        CommandError: There is no such policy, its argument is invalid, or a named file or run is
            unreadable.
    """
    policy, colon, argument = text.partition(":")
    if policy not in POLICIES or (colon and not argument):
        raise CommandError(f"{option}: must be one of {', '.join(FORMS.values())}, got {text!r}")
    if not argument:
        return {"policy": policy}
    if policy not in _ARGUMENTS:
        raise CommandError(f"{option} {policy}: takes no argument; set its fields with --set")
    read, field = _ARGUMENTS[policy]
    try:
        return {"policy": policy, field: read(argument, runs_dir)}
    except ValueError as error:
        raise CommandError(f"{option} {policy}: {error}") from error


def build_scaling(
    text: str | None, *, num_actors: int | None, assignments: list[str], runs_dir: Path
) -> Policy:
    """Return the policy of a `nitro jobs scale` command.

    Raises:
        CommandError: Not exactly one of policy and number is given, or a field is wrong.
    """
    if (text is None) == (num_actors is None):
        raise CommandError("give either --policy, such as hydrozoa, or --actors, to pin a number")
    if text is None:
        raw: JsonObject = FixedScaling(policy="fixed").model_dump(mode="json")
        raw["num_actors"] = num_actors
    else:
        raw = parse_scaling(text, runs_dir=runs_dir, option="--policy")
    # Like `nitro train`, where the policy is part of the job.
    assign_all(raw, assignments, form="name=value", within="scaling.")
    try:
        return SCALING.validate_python(raw)
    except ValidationError as error:
        model = POLICIES.get(str(raw["policy"]))
        raise refusal(error, known=[*model.model_fields] if model else []) from error


def read_agent(path: Path) -> MinionsAgent:
    """Read an agent from `nitro scheduler train`.

    Raises:
        CommandError: The file is unreadable or not an agent.
    """
    try:
        return MinionsAgent.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        wrong = field_errors(error)[0]
        raise CommandError(f"{path}: is not an agent: {wrong.field}: {wrong.message}") from error


def _whole(argument: str, _: Path) -> JsonValue:
    if not (argument.isascii() and argument.isdecimal()):
        raise ValueError(f"must be followed by a whole number, got {argument!r}")
    return int(argument)


def _convention(argument: str, _: Path) -> JsonValue:
    if argument not in ("paper", "artifact"):
        raise ValueError(f"must be followed by paper or artifact, got {argument!r}")
    return argument


def _mean(argument: str, runs_dir: Path) -> JsonValue:
    try:
        return float(argument)
    except ValueError:
        return fmean(_counts_of(argument, runs_dir))


def _dollars(argument: str, _: Path) -> JsonValue:
    try:
        return float(argument)
    except ValueError:
        raise ValueError(f"must be followed by dollars an hour, got {argument!r}") from None


def _agent(argument: str, _: Path) -> JsonValue:
    dumped: JsonValue = read_agent(Path(argument)).model_dump(mode="json")
    return dumped


def _counts(argument: str, runs_dir: Path) -> JsonValue:
    parts = argument.split(",")
    if all(part.isascii() and part.isdecimal() for part in parts):
        return [int(part) for part in parts]
    return [*_counts_of(argument, runs_dir)]


def _counts_of(run: str, runs_dir: Path) -> list[int]:
    """Return a run's number of actors in each round."""
    rounds = read_run(find_run(run, runs_dir)).rounds
    counts = [line.plan.num_actors for line in rounds if line.result is not None]
    if not counts:
        raise CommandError(f"{run}: has no round, so no numbers of actors")
    return counts


_ARGUMENTS: dict[str, tuple[Callable[[str, Path], JsonValue], str]] = {
    "nitro": (_convention, "convention"),
    "fixed": (_whole, "num_actors"),
    "random": (_mean, "mean_actors"),
    "kungfu": (_whole, "every_rounds"),
    "marginal": (_dollars, "value_of_time_usd_per_hour"),
    "hydrozoa": (_whole, "every_rounds"),
    "minionsrl": (_agent, "agent"),
    "reward_window": (_whole, "window"),
    "schedule": (_counts, "num_actors"),
}


def policies_table() -> Table:
    """Return the output of `nitro policies`: each policy's purpose, short form and parameters."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("policy", style="bold", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("", overflow="fold")
    for name, model in POLICIES.items():
        table.add_row(name, "", Text(cleandoc(model.__doc__ or "").replace("\n", " ")))
        table.add_row("", "", Text(f"--scaling {FORMS.get(name, name)}", style="dim"))
        for field, info in model.model_fields.items():
            if field != "policy":
                description = " ".join((info.description or "").split())
                table.add_row(f"  {field}", _default(info), Text(description))
    return table


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    return "none" if info.default is None else str(info.default)
