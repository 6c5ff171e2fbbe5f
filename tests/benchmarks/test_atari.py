"""The verdict of the Atari study."""

from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.atari import GAMES, STEPS_PER_ROUND, Contestant, GameScores, SeedScores, Study, main
from benchmarks.references import SeedTrainer


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


def test_a_seed_of_another_job_or_with_other_games_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Contestant] = []

    def scores(study: Study, contestant: Contestant, seed: int) -> SeedScores:
        made.append(contestant)
        return SeedScores(
            contestant=contestant,
            env_id=GAMES[0],
            seed=seed,
            steps=study.steps,
            scores=(1.0,) * study.num_games,
            train_s=1.0,
            digest=study.digest(contestant, GAMES[0], seed),
        )

    monkeypatch.setattr(SeedTrainer, "opened", lambda *_, **__: nullcontext())
    monkeypatch.setattr(Study, "ours", lambda study, _, __, seed: scores(study, "ours", seed))
    peer: Contestant = "stable-baselines3"
    monkeypatch.setattr(Study, "peer", lambda study, _, seed: scores(study, peer, seed))
    command = [GAMES[0], "--seeds", "1", "--out", str(tmp_path), "--num-games"]
    assert main([*command, "2"]) == main([*command, "2"]) == 0
    assert made == ["ours", peer]
    assert main([*command, "3"]) == 0
    assert made == ["ours", peer] * 2
    changed = Study(steps=200_000, num_games=3, out=tmp_path).spec(GAMES[0], 1)
    changed = changed.model_copy(update={"hyperparameters": {"clip": 0.3}})
    monkeypatch.setattr(Study, "spec", lambda *_: changed)
    assert main([*command, "3"]) == 0
    assert made == [*["ours", peer] * 2, "ours"]


def test_help_gives_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "python -m benchmarks.atari --seeds 3" in capsys.readouterr().out
