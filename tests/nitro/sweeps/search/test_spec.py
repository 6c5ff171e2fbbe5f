"""What may be asked of a search, and what it needs."""

import importlib.util
from pathlib import Path

import pytest
from pydantic import ValidationError

from nitro.errors import CommandError
from nitro.sweeps.asking import parse_range, searched
from nitro.sweeps.folder import Asked
from nitro.sweeps.search.spec import SearchSpec
from nitro.sweeps.spec import SweepSpec
from nitro.sweeps.sweeping import begin

RANGE = {"steps_per_actor": {"low": 16, "high": 64, "whole": True}}


@pytest.mark.parametrize("text", ["field", "field=1", "field=a:b", "=1:2", "field=1:2:up"])
def test_anything_but_a_range_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--search: must look like"):
        parse_range(text)


def test_options_make_a_search() -> None:
    found = searched(["a.b=1:8:log:int"], rungs="1e4,2e4", trials=4, keep=None)
    assert found == {
        "fields": {"a.b": {"low": 1.0, "high": 8.0, "log": True, "whole": True}},
        "rungs": [10_000, 20_000],
        "trials": 4,
    }
    assert searched([], rungs=None, trials=None) is None


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"fields": {}}, "fields"),
        ({"fields": {"a": {"low": 2, "high": 1}}}, "must be below"),
        ({"fields": {"a": {"low": 0, "high": 1, "log": True}}}, "above 0"),
        ({"fields": RANGE, "rungs": [20, 10]}, "ascend"),
        ({"fields": RANGE, "keep": 1.0}, "keep"),
    ],
)
def test_what_is_wrong_is_named(search: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SearchSpec.model_validate(search)


def test_without_optuna_its_sampler_is_refused_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("nitro.sweeps.search.sampling.find_spec", lambda name: None)
    search = {"fields": RANGE, "sampler": "tpe"}
    spec = SweepSpec.model_validate({"environments": ["CartPole-v1"], "search": search})
    with pytest.raises(CommandError, match=r"pip install 'nitro-rl\[optuna\]'"):
        begin(tmp_path, Asked(spec=spec))
    assert [*tmp_path.iterdir()] == []
