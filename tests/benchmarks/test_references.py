"""What a command of reference runs saves, and under which name."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks.records.reference import SeedResult, seed_result
from benchmarks.references import SeedTrainer, main
from nitro.runs.reading import read_run
from shared.contracts.job_spec import JobSpec
from tests.nitro.synthetic_run import write_run


class _Trainer:
    """Has every seed trained but those that fail."""

    def __init__(self, found: SeedResult) -> None:
        self._found = found
        self.failing: set[int] = set()
        self.specs: list[JobSpec] = []

    def train(self, spec: JobSpec) -> SeedResult:
        self.specs.append(spec)
        if spec.seed in self.failing:
            raise RuntimeError(f"seed {spec.seed} failed")
        return self._found


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Trainer:
    made = _Trainer(seed_result(read_run(write_run(tmp_path))))
    monkeypatch.setattr(SeedTrainer, "opened", lambda *_, **__: nullcontext(made))
    return made


def run(tmp_path: Path, *options: str) -> tuple[int, list[str]]:
    """Run the command; return its exit status and what is saved."""
    out = tmp_path / "out"
    folders = ["--runs-dir", str(tmp_path), "--out", str(out)]
    status = main(["Hopper-v4", "--seeds", "2", *options, *folders])
    return status, sorted(path.name for path in out.glob("*"))


def test_only_a_complete_result_is_saved_and_none_is_replaced_by_less(
    trainer: _Trainer, tmp_path: Path
) -> None:
    trainer.failing = {2}
    assert run(tmp_path) == (1, [])
    trainer.failing = set()
    name = "hopper-v4-ppo-standard-2x1024-limit.json"
    assert run(tmp_path) == (0, [name])
    before = (tmp_path / "out" / name).read_bytes()
    trainer.failing = {1}
    assert run(tmp_path) == (1, [name])
    assert (tmp_path / "out" / name).read_bytes() == before


def test_the_name_tells_horizon_and_steps_where_they_are_not_cleanrls(
    trainer: _Trainer, tmp_path: Path
) -> None:
    assert run(tmp_path, "--horizon", "fragment")[1] == ["hopper-v4-ppo-standard.json"]
    names = run(tmp_path, "--horizon", "fragment", "--steps", "200000")[1]
    assert names == ["hopper-v4-ppo-standard-200000.json", "hopper-v4-ppo-standard.json"]
    assert {spec.episodes.horizon for spec in trainer.specs} == {"fragment"}


def test_the_horizon_is_the_presets_unless_it_is_given(trainer: _Trainer, tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, "--preset", "paper")
    assert [spec.episodes.horizon for spec in trainer.specs] == ["limit"] * 2 + ["fragment"] * 2
