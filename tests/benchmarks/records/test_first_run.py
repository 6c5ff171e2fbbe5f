"""Seeds of the starting job summed up, against the runs' own records."""

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.environment import describe_environment
from benchmarks.first_run import first_run_spec, parser
from benchmarks.records.first_run import (
    FirstRunResult,
    first_run_seed,
    first_run_table,
    summed_up,
)
from nitro.runs.reading import read_run
from nitro.spec.starting_job import train_spec
from tests.nitro.synthetic_run import rendered, write_run


def test_a_seed_is_what_its_folder_says(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    found = first_run_seed(run)
    means = [fmean(evaluation.returns) for _, evaluation in run.evaluations]
    assert (found.first_return, found.final_return) == (means[0], means[-1])
    assert found.best_return == max(means)
    assert [mean for _, mean in found.curve] == means
    assert found.curve[0][0] == 0
    assert found.curve[-1][0] == found.env_steps
    assert found.steps_per_s == pytest.approx(found.env_steps / found.wall_s)


@pytest.mark.parametrize(("returns", "met"), [((90, 2500, 9e3), True), ((9e3, 2499, 1), False)])
def test_it_is_the_median_that_counts(
    tmp_path: Path, returns: tuple[float, ...], met: bool
) -> None:
    run = read_run(write_run(tmp_path))
    seeds = [first_run_seed(run).model_copy(update={"final_return": each}) for each in returns]
    found = summed_up(run.job, seeds, command="again", environment=describe_environment())
    assert (found.median_final_return, found.met) == (sorted(returns)[1], met)
    assert FirstRunResult.model_validate_json(found.model_dump_json()) == found
    assert ("yes" if met else "NO") in rendered(first_run_table(found))


def test_what_is_measured_is_what_nitro_train_begins_from() -> None:
    spec = first_run_spec(parser().parse_args([]), 3)
    assert spec == train_spec(options={"seed": 3})
    other = first_run_spec(parser().parse_args(["--set", "scaling.policy=auto"]), 3)
    assert other.scaling.policy == "auto"
