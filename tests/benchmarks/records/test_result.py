import json
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from benchmarks.environment import Environment, describe_environment
from benchmarks.records.result import Result, Row, Series, Target, percentile


def series(
    *samples: float, unit: str = "s", better: Literal["higher", "lower"] = "lower"
) -> Series:
    return Series(name="x", unit=unit, better=better, samples=samples)


def environment() -> Environment:
    return describe_environment()


def test_ratio_of_rates_is_ours_over_the_peers_pair_by_pair() -> None:
    ours = series(10.0, 30.0, 20.0, unit="steps/s", better="higher")
    peer = series(5.0, 10.0, 20.0, unit="steps/s", better="higher")
    ratios = Row(what="w", ours=ours, peer=peer).ratios
    assert ratios is not None
    assert (ratios.min, ratios.median, ratios.max) == (1.0, 2.0, 3.0)


def test_ratio_of_times_is_the_peers_over_ours() -> None:
    ratios = Row(what="w", ours=series(2.0), peer=series(6.0)).ratios
    assert ratios is not None
    assert ratios.median == 3.0


def test_a_slow_minute_that_hits_both_leaves_the_ratio_alone() -> None:
    ratios = Row(what="w", ours=series(1.0, 5.0), peer=series(4.0, 20.0)).ratios
    assert ratios is not None
    assert ratios.min == ratios.max == 4.0


@pytest.mark.parametrize(
    ("bound", "value", "met"),
    [("at_least", 3.0, True), ("at_least", 3.1, False), ("at_most", 3.0, True)],
)
def test_target_of_the_ratio_is_held_against_its_median(
    bound: Literal["at_least", "at_most"], value: float, met: bool
) -> None:
    target = Target(of="ratio", bound=bound, value=value)
    row = Row(what="w", ours=series(2.0, 2.0, 2.0), peer=series(2.0, 6.0, 60.0), target=target)
    assert row.met is met


def test_target_of_our_own_value_ignores_the_peer() -> None:
    target = Target(of="ours", bound="at_most", value=0.5)
    assert Row(what="w", ours=series(0.4), peer=series(0.1), target=target).met is True
    assert Row(what="w", ours=series(0.6), peer=series(9.0), target=target).met is False


def test_without_a_target_nothing_is_met_or_missed() -> None:
    assert Row(what="w", ours=series(1.0)).met is None


def test_a_target_of_the_ratio_needs_a_peer() -> None:
    with pytest.raises(ValidationError, match="needs a peer"):
        Row(what="w", ours=series(1.0), target=Target(of="ratio", bound="at_least", value=1.0))


def test_unpaired_samples_are_refused() -> None:
    with pytest.raises(ValidationError, match="2 samples of x cannot be paired with 1"):
        Row(what="w", ours=series(1.0, 2.0), peer=series(1.0))


def test_different_units_are_refused() -> None:
    with pytest.raises(ValidationError, match="different things"):
        Row(what="w", ours=series(1.0), peer=series(1.0, unit="ms"))


def test_percentile_is_the_sample_that_the_share_does_not_exceed() -> None:
    hundred = tuple(float(i) for i in range(100, 0, -1))
    assert percentile(hundred, 0.99) == 99.0
    assert percentile((7.0,), 0.99) == 7.0
    assert Series(name="x", unit="s", better="lower", samples=hundred, statistic="p99").value == 99


def test_result_is_saved_with_samples_ratios_target_and_machine(tmp_path: Path) -> None:
    target = Target(of="ratio", bound="at_least", value=2.0)
    row = Row(what="w", ours=series(1.0, 2.0), peer=series(4.0, 4.0), target=target)
    result = Result(name="demo", title="Demo", command="c", environment=environment(), rows=(row,))
    path = result.save(tmp_path / "new")
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == "demo.json"
    assert saved["rows"][0]["ours"]["samples"] == [1.0, 2.0]
    assert saved["rows"][0]["ours"]["value"] == 1.5
    assert saved["rows"][0]["ratios"] == {"min": 2.0, "median": 3.0, "max": 4.0}
    assert saved["rows"][0]["target"]["value"] == 2.0
    assert saved["rows"][0]["met"] is True
    assert saved["environment"]["libraries"]["torch"].startswith("2.")
    assert saved["environment"]["num_cpus"] >= 1


def test_environment_names_no_machine_user_or_folder() -> None:
    import getpass
    import platform

    text = environment().model_dump_json()
    assert str(Path.cwd()) not in text
    assert f'"{platform.node()}"' not in text
    assert f'"{getpass.getuser()}"' not in text
