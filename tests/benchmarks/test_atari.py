"""The verdict of the Atari study."""

from pathlib import Path
from typing import get_args

import pytest

from benchmarks.atari import GAMES, STEPS_PER_ROUND, Contestant, GameScores, SeedScores, Study, main


def seeds(contestant: Contestant, *scores: tuple[float, ...]) -> tuple[SeedScores, ...]:
    return tuple(
        SeedScores(
            contestant=contestant,
            env_id=GAMES[0],
            seed=seed,
            steps=STEPS_PER_ROUND,
            scores=row,
            train_s=1.0,
        )
        for seed, row in enumerate(scores, start=1)
    )


@pytest.mark.parametrize(("ours", "met"), [(150.0, True), (90.0, True), (89.0, False)])
def test_ours_must_reach_the_peers_mean_less_its_deviation(ours: float, met: bool) -> None:
    game = GameScores(
        env_id=GAMES[0],
        ours=seeds("ours", (ours, ours)),
        peer=seeds("stable-baselines3", (50.0, 130.0), (100.0, 120.0)),  # 90 and 110
    )
    assert game.means == (ours, 100.0)
    assert game.deviations == (0.0, 10.0)
    assert game.met is met


def test_a_seed_is_a_job_of_whole_rounds_of_1024_steps(tmp_path: Path) -> None:
    study = Study(steps=200_000, num_games=30, out=tmp_path)
    spec = study.spec(GAMES[0], seed=2)
    assert (spec.stop.max_rounds, spec.steps_per_actor, spec.actors.max) == (195, 128, 8)
    assert spec.resolved().episodes.go_on
    names = {study.kept(c, g, s) for c in get_args(Contestant) for g in GAMES for s in (1, 2)}
    assert len(names) == 8


def test_help_gives_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "python -m benchmarks.atari --seeds 3" in capsys.readouterr().out
