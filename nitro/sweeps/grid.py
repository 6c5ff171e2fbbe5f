"""From a sweep's specification to its rows. Pure: the same specification gives the same rows."""

import copy
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.hints import RUNS
from nitro.spec.scaling_option import parse_scaling
from nitro.spec.spec_file import merged, parse_actors, says
from nitro.spec.total_steps import planned_steps
from nitro.spec.train_spec import train_spec
from nitro.sweeps.rows import Row
from nitro.sweeps.spec import Fields, SweepSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.stop_rule import MAX_ROUNDS, NO_CAP_USD

MOST_ROWS = 10_000
"""Most jobs of a sweep; more is a typo."""
_ALONE = "default"
"""Name of the only setting if nothing is varied."""


def expand(spec: SweepSpec, *, runs_dir: Path = RUNS) -> list[Row]:
    """Return the rows of a grid, seed by seed, so that an interrupted sweep can be compared.

    Args:
        spec: The sweep; not a search.
        runs_dir: Folder of the runs that a scaling policy names.

    Raises:
        CommandError: A job is invalid, two settings have the same name, or there are too many
            rows.
    """
    settings = settings_of(spec)
    number = len(spec.seeds) * len(spec.environments) * len(settings)
    if number > MOST_ROWS:
        raise CommandError(f"a sweep has at most {MOST_ROWS:,} jobs, and this one {number:,}")
    return [
        row_of(spec, env_id, name, fields, seed=seed, runs_dir=runs_dir)
        for seed in spec.seeds
        for env_id in spec.environments
        for name, fields in settings.items()
    ]


def kinds_of(spec: SweepSpec, *, runs_dir: Path = RUNS) -> list[Row]:
    """Return a row for each environment and setting; a search has one, without its values.

    Raises:
        CommandError: As for `expand`.
    """
    first = spec.model_copy(update={"seeds": spec.seeds[:1]})
    if spec.search is None:
        return expand(first, runs_dir=runs_dir)
    seed = first.seeds[0]
    return [row_of(first, spec.environments[0], "trials", {}, seed=seed, runs_dir=runs_dir)]


def settings_of(spec: SweepSpec) -> dict[str, Fields]:
    """Return the fields of each setting by name: named settings times varied values."""
    named = spec.settings or {"": {}}
    found: dict[str, Fields] = {}
    for (name, fields), varied in itertools.product(named.items(), [*_combinations(spec.vary)]):
        told = ", ".join(filter(None, [name, label(varied)])) or _ALONE
        if told in found:
            raise CommandError(f"two settings have the name {told!r}: a value is given twice")
        found[told] = {**fields, **varied}
    return found


def label(fields: Mapping[str, JsonValue]) -> str:
    """Label values by the last part of their paths.

    >>> label({"hyperparameters.learning_rate": 0.0003, "preset": "paper"})
    'learning_rate=0.0003, preset=paper'
    """
    return ", ".join(f"{path.rpartition('.')[2]}={_told(value)}" for path, value in fields.items())


def row_of(
    spec: SweepSpec,
    env_id: str,
    setting: str,
    fields: Mapping[str, JsonValue],
    *,
    seed: int,
    runs_dir: Path = RUNS,
) -> Row:
    """Return one row: a job with the sweep's fields and those of its setting.

    Raises:
        CommandError: The job is wrong; names the setting.
    """
    options = {**_options(spec, fields, runs_dir), "env_id": env_id, "seed": seed}
    try:
        job, end_steps = _job(options, spec.total_steps)
    except CommandError as error:
        raise CommandError(f"{env_id}, {setting}: {error}", exit_code=error.exit_code) from error
    job = job.model_copy(update={"tags": (*job.tags, spec.tag)})
    return Row(env_id=env_id, setting=setting, seed=seed, spec=job, end_steps=end_steps)


def _job(options: Fields, total_steps: int | None) -> tuple[JobSpec, int | None]:
    """Return a job with this many steps, and the steps at which to end it, if necessary.

    If a round's steps depend on the number of actors, the job gets enough rounds for any number. It
    is ended after its steps, and evaluates every round, because the last one is unknown.
    """
    if total_steps is None:
        return train_spec(options=options), None
    job = train_spec(options=options)
    if planned_steps(job) is not None or says(options, "stop", "max_rounds"):
        return train_spec(options=options, total_steps=total_steps), None
    fewest = job.actors.min * job.steps_of(job.actors.min)
    rounds = min(MAX_ROUNDS, -(-total_steps // fewest))
    lasting = {**options, "stop.max_rounds": rounds}
    if not says(options, "evaluation", "every_rounds"):
        lasting["evaluation.every_rounds"] = 1
    return train_spec(options=lasting), total_steps


def _options(spec: SweepSpec, fields: Mapping[str, JsonValue], runs_dir: Path) -> Fields:
    """Return a job's fields by group, with short forms expanded and without a cap.

    Raises:
        CommandError: A short form is wrong, or the job has a budget.
    """
    options = merged(file=None, options=copy.deepcopy({**spec.job, **fields}))
    scaling, actors = options.get("scaling"), options.get("actors")
    if isinstance(scaling, str):
        options["scaling"] = parse_scaling(scaling, runs_dir=runs_dir, option="scaling")
    if isinstance(actors, int | str):
        options["actors"] = parse_actors(str(actors))
    if says(options, "stop", "budget_usd"):
        raise CommandError("stop.budget_usd: use the sweep's budget_usd, which jobs share")
    return {**options, "stop.budget_usd": NO_CAP_USD}


def _combinations(vary: Mapping[str, list[JsonValue]]) -> Iterator[Fields]:
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))


def _told(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
