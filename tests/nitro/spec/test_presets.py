"""`nitro presets`: complete, with a source for every value."""

import pytest

from nitro.errors import CommandError
from nitro.spec.presets import PresetReport, preset_reports, preset_table
from nitro.spec.train_spec import train_spec
from shared.contracts.jobs import resolve_for
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.hyperparameters.presets import ALGORITHMS, complete_sets
from tests.nitro.synthetic_run import rendered

REPORTS = preset_reports()


def test_every_preset_is_shown_once_with_all_its_values() -> None:
    shown = {(r.algorithm, r.preset, r.images): r for r in REPORTS}
    assert len(shown) == len(REPORTS) == len(complete_sets()) + len(complete_sets(images=True))
    for sets, images in ((complete_sets(), False), (complete_sets(images=True), True)):
        for (algorithm, preset), values in sets.items():
            rows = shown[algorithm, preset, images].hyperparameters
            assert {row.name: row.value for row in rows} == values.model_dump(mode="json")


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: f"{r.algorithm}-{r.preset}-{r.images}")
def test_every_value_has_a_meaning_and_a_source_of_its_own(report: PresetReport) -> None:
    for row in report.hyperparameters:
        assert row.source, row.name
        assert row.meaning.endswith("."), row.name
        for text in (row.source, row.meaning):
            assert "Paper:" not in text, row.name
            assert "Standard:" not in text, row.name


def test_sources_are_told_apart() -> None:
    paper, standard = (
        {row.name: row for row in preset_reports("ppo", preset)[0].hyperparameters}
        for preset in ("paper", "standard")
    )
    assert paper["clip"].source == "Table 1"
    assert paper["clip"].value == PpoHyperparameters().clip
    assert paper["hidden_sizes"].source == "section 8.1"
    assert standard["clip"].source == "CleanRL"
    assert standard["clip"].meaning == paper["clip"].meaning
    assert paper["clip"].meaning.startswith("The probability ratio is clipped")


def test_an_environment_shows_what_a_job_begins_from_there_and_why() -> None:
    (report,) = preset_reports("CartPole-v1", algorithm="ppo")
    rows = {row.name: row for row in report.hyperparameters}
    spec = train_spec(options={"env_id": "CartPole-v1"}).resolved()
    environment = describe(spec.environment_ref)
    assert {name: row.value for name, row in rows.items()} == resolve_for(
        spec, environment
    ).model_dump(mode="json")
    assert rows["observation_normalisation"].source.startswith("classic control")
    assert rows["clip"].source == "CleanRL"
    assert report.training["stop.max_rounds"] == spec.stop.max_rounds
    assert rendered(preset_table(report), width=200).startswith("CartPole-v1: ppo, preset standard")


def test_an_environment_shows_all_algorithms_that_can_learn_it() -> None:
    discrete = [report.algorithm for report in preset_reports("CartPole-v1")]
    assert discrete == ["ppo", "impact", "impala", "ars", "es"]
    reports = {report.algorithm: report for report in preset_reports("Hopper-v5")}
    assert [*reports] == [*ALGORITHMS]
    ars = {row.name: row for row in reports["ars"].hyperparameters}
    assert (ars["top_directions"].value, ars["reward_offset"].value) == (4, 1.0)
    assert ars["step_size"].source.startswith("arXiv 1803.07055")
    assert reports["ars"].training == {"stop.max_env_steps": 7_000_000, "scaling.num_actors": 8}
    assert (reports["ars"].learner, reports["sac"].training["steps_per_actor"]) == ("cpu", 32)


def test_one_algorithm_or_one_preset_can_be_asked_for() -> None:
    assert {r.algorithm for r in preset_reports("ppo")} == {"ppo"}
    assert {r.preset for r in preset_reports(preset="paper")} == {"paper"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trpo", None), "NAME: must be one of ppo, .* got 'trpo'"),
        ((None, "tuned"), "--preset: must be one of paper, standard, got 'tuned'"),
        (("CartPoles-v1", None), "env_id 'CartPoles-v1'.*did you mean CartPole"),
        (("CartPole-v1", "paper"), "--preset: environments have specific values only in standard"),
    ],
)
def test_unknown_names_are_refused(arguments: tuple[str | None, str | None], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        preset_reports(*arguments)


@pytest.mark.parametrize(
    ("name", "algorithm", "message"),
    [
        ("CartPole-v1", "sac", "--algorithm: must be one of ppo, .*, es in CartPole-v1, got 'sac'"),
        ("ppo", "sac", "--algorithm: is for an environment"),
    ],
)
def test_an_algorithm_that_does_not_fit_is_refused(name: str, algorithm: str, message: str) -> None:
    with pytest.raises(CommandError, match=message):
        preset_reports(name, algorithm=algorithm)


def test_the_table_shows_values_as_json_and_words_as_they_are() -> None:
    text = rendered(preset_table(preset_reports("ppo", "standard")[0]), width=200)
    assert text.startswith("ppo, preset standard")
    for part in ("[64, 64]", " clipped_step ", " true ", " 0.0003 "):
        assert part in text
