"""Atari games learnt beside Stable-Baselines3 with the same hyper-parameters.

    python -m benchmarks.atari --seeds 3 --steps 200000

Both have rounds of eight actors or environments with 128 steps each, and games go on from round to
round. Ours trains through the whole local system. What is compared is the raw score of whole games
that the final policy plays with sampled actions, apart from training. Games are the ones without
sticky actions, as the scores of the library are.

Every finished seed is one JSON file below `--out`: the same command goes on where it was. A seed of
another job, or with another number of games, is made again.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Literal

import numpy as np
from pydantic import computed_field
from rich.console import Console
from rich.table import Table

from benchmarks.environment import Environment, describe_environment
from benchmarks.measurement import progress
from benchmarks.peers.interpreters import PeerSettings, peer_python
from benchmarks.references import SeedTrainer, positive, spec_digest
from nitro.errors import EXIT_INTERRUPTED
from nitro.runs.checkpoints import read_policy
from shared.contracts.job_spec import EnvironmentRef, JobSpec
from shared.contracts.message import Count, Message, NonNegativeFloat, Number
from shared.environments.building import make_environment
from shared.environments.games import whole_games
from shared.policy.numpy_policy import NumpyPolicy

GAMES = ("QbertNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4")
NUM_ACTORS = 8
STEPS_PER_ACTOR = 128
STEPS_PER_ROUND = NUM_ACTORS * STEPS_PER_ACTOR
Contestant = Literal["ours", "stable-baselines3"]
_SCRIPT = Path(__file__).with_name("peers") / "stable_baselines3_atari.py"
_RESULTS = Path(__file__).with_name("results") / "atari"
_RUNS = Path("runs/atari")
_BUDGET_USD = 1000.0
"""More than any of these runs would cost: money is not what is measured."""


class SeedScores(Message):
    """What one seed's final policy scored."""

    contestant: Contestant
    env_id: str
    seed: Count
    steps: Count
    scores: tuple[Number, ...]
    """Raw, of whole games with sampled actions."""
    train_s: NonNegativeFloat
    digest: str = ""
    """What tells our job from others, its preset's values included; empty for the peer."""
    about: dict[str, str] = {}


class GameScores(Message):
    """One game's seeds of both contestants."""

    env_id: str
    ours: tuple[SeedScores, ...]
    peer: tuple[SeedScores, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def means(self) -> tuple[float, float]:
        """Means over the seeds' means: ours, the peer's."""
        return fmean(_means(self.ours)), fmean(_means(self.peer))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def deviations(self) -> tuple[float, float]:
        """Their deviations, with the number of seeds below the root: ours, the peer's."""
        return pstdev(_means(self.ours)), pstdev(_means(self.peer))

    @computed_field  # type: ignore[prop-decorator]
    @property
    def met(self) -> bool:
        """Whether our mean is at least the peer's less its deviation."""
        return self.means[0] >= self.means[1] - self.deviations[1]


class AtariResult(Message):
    """All games."""

    command: str
    environment: Environment
    games: tuple[GameScores, ...]


def _means(seeds: Sequence[SeedScores]) -> list[float]:
    return [fmean(seed.scores) for seed in seeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """How long to train and how much to play."""

    steps: int
    num_games: int
    out: Path

    def spec(self, env_id: str, seed: int) -> JobSpec:
        """Return our job of one seed."""
        rounds = max(1, self.steps // STEPS_PER_ROUND)
        return JobSpec.model_validate(
            {
                "env_id": env_id,
                "preset": "standard",
                "seed": seed,
                "steps_per_actor": STEPS_PER_ACTOR,
                "actors": {"min": NUM_ACTORS, "max": NUM_ACTORS},
                "scaling": {"policy": "fixed", "num_actors": NUM_ACTORS},
                "episodes": {"horizon": "limit"},
                "stop": {"max_rounds": rounds, "budget_usd": _BUDGET_USD},
                "evaluation": {"every_rounds": 0},
                "checkpoint": {"keep": 1},
                # With a fixed number of actors nobody acts on the curvature.
                "detector": {"num_samples": 1, "max_matvecs": 2},
            }
        )

    def ours(self, trainer: SeedTrainer, env_id: str, seed: int) -> SeedScores:
        """Train one seed through the local system and play with its final policy.

        Raises:
            RuntimeError: The job did not end well.
        """
        start = time.perf_counter()
        found = trainer.train(self.spec(env_id, seed))
        train_s = time.perf_counter() - start
        _, policy = read_policy(trainer.runs_dir / found.job_id)
        return SeedScores(
            contestant="ours",
            env_id=env_id,
            seed=seed,
            steps=found.env_steps,
            scores=tuple(play(env_id, policy, seed=10_000 + seed, num_games=self.num_games)),
            train_s=train_s,
            digest=self.digest("ours", env_id, seed),
        )

    def peer(self, env_id: str, seed: int) -> SeedScores:
        """Train one seed of Stable-Baselines3 and play with its final policy.

        Raises:
            RuntimeError: The peer failed.
        """
        # -I: neither our packages nor the user's can shadow the peer's.
        command = [str(peer_python(PeerSettings())), "-I", str(_SCRIPT), env_id]
        command += [str(number) for number in (self.steps, seed, self.num_games)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the peer ended with {done.returncode}; its words stand above")
        answer = json.loads(done.stdout)
        return SeedScores.model_validate(
            {
                "contestant": "stable-baselines3",
                "env_id": env_id,
                "seed": seed,
                "steps": self.steps,
                **answer,
                "scores": tuple(answer["scores"]),
            }
        )

    def digest(self, contestant: Contestant, env_id: str, seed: int) -> str:
        """Return the digest that a finished seed of this study has."""
        return spec_digest(self.spec(env_id, seed)) if contestant == "ours" else ""

    def kept(self, contestant: Contestant, env_id: str, seed: int) -> Path:
        """Return where a finished seed is kept; files without a shape are of one actor a round."""
        shape = f"-{NUM_ACTORS}x{STEPS_PER_ACTOR}" if contestant == "ours" else ""
        return self.out / f"{env_id}-{contestant}{shape}-{self.steps}-{seed}.json"


def play(env_id: str, policy: NumpyPolicy, *, seed: int, num_games: int) -> list[float]:
    """Return the raw scores of whole games with sampled actions; equal seeds give equal games."""
    env = whole_games(make_environment(EnvironmentRef(env_id=env_id)))
    rng = np.random.default_rng(seed)
    scores = []
    for game in range(num_games):
        observation, _ = env.reset(seed=seed * 1000 + game)
        score, ended = 0.0, False
        while not ended:
            action, _ = policy.sample(observation[np.newaxis], rng)
            observation, reward, terminated, truncated, _ = env.step(int(action[0]))
            score, ended = score + float(reward), terminated or truncated
        scores.append(score)
    env.close()
    return scores


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, save it and compare; returns 1 if a seed could not be trained."""
    options = _parser().parse_args(arguments)
    try:
        if not options.quick:
            return _run(options, out=options.out, runs_dir=options.runs_dir)
        options.games, options.steps = options.games[:1], STEPS_PER_ROUND
        options.seeds, options.num_games = 1, 1
        with tempfile.TemporaryDirectory() as folder:
            return _run(options, out=Path(folder) / "out", runs_dir=Path(folder) / "runs")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(options: argparse.Namespace, *, out: Path, runs_dir: Path) -> int:
    environment = describe_environment()
    study = Study(steps=options.steps, num_games=options.num_games, out=out)
    out.mkdir(parents=True, exist_ok=True)
    threads = {"learner": {"NITRO_TORCH_THREADS": str(options.threads)}}
    with SeedTrainer.opened(runs_dir, environment=threads) as trainer:
        try:
            games = tuple(_game(study, trainer, env_id, options) for env_id in options.games)
        except RuntimeError as error:
            progress(str(error))
            return 1
    result = AtariResult(command=_command(options), environment=environment, games=games)
    summary = out / f"atari-{options.steps}.json"
    summary.write_text(result.model_dump_json(indent=1) + "\n", encoding="utf-8")
    Console().print(_table(result))
    progress(f"saved {summary}")
    return 0


def _game(
    study: Study, trainer: SeedTrainer, env_id: str, options: argparse.Namespace
) -> GameScores:
    seeds = range(1, options.seeds + 1)
    ours = [_seed(study, trainer, "ours", env_id, seed) for seed in seeds]
    peer = [_seed(study, trainer, "stable-baselines3", env_id, seed) for seed in seeds]
    return GameScores(env_id=env_id, ours=tuple(ours), peer=tuple(peer))


def _seed(
    study: Study, trainer: SeedTrainer, contestant: Contestant, env_id: str, seed: int
) -> SeedScores:
    kept = study.kept(contestant, env_id, seed)
    if kept.is_file():
        before = SeedScores.model_validate_json(kept.read_bytes())
        same = before.digest == study.digest(contestant, env_id, seed)
        if same and len(before.scores) == study.num_games:
            return before
    progress(f"{env_id}, {contestant}, seed {seed}")
    ours = contestant == "ours"
    found = study.ours(trainer, env_id, seed) if ours else study.peer(env_id, seed)
    kept.write_text(found.model_dump_json() + "\n", encoding="utf-8")
    progress(f"  mean score {fmean(found.scores):.1f}, trained in {found.train_s:.0f} s")
    return found


def _command(options: argparse.Namespace) -> str:
    return (
        f"python -m benchmarks.atari {' '.join(options.games)} --seeds {options.seeds} "
        f"--steps {options.steps} --num-games {options.num_games} --threads {options.threads}"
    )


def _table(result: AtariResult) -> Table:
    table = Table(title="Atari: raw scores of whole games", title_justify="left")
    for heading in ("game", "ours", "Stable-Baselines3", "at least its mean - std"):
        table.add_column(heading)
    for game in result.games:
        cells = [f"{m:.1f} ± {d:.1f}" for m, d in zip(game.means, game.deviations, strict=True)]
        table.add_row(game.env_id, *cells, "yes" if game.met else "NO")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.atari",
        description="Train games through the whole local system and beside Stable-Baselines3.",
        epilog="example: python -m benchmarks.atari --seeds 3 --steps 200000",
    )
    parser.add_argument("games", nargs="*", metavar="ENV", default=list(GAMES))
    parser.add_argument("--seeds", type=positive, default=3, help="trains seeds 1 to this")
    parser.add_argument("--steps", type=positive, default=200_000, help="agent steps per seed")
    parser.add_argument(
        "--num-games", type=positive, default=30, help="played with the final policy"
    )
    parser.add_argument("--threads", type=positive, default=1, help="of the learner's update")
    parser.add_argument("--runs-dir", type=Path, default=_RUNS, help="where jobs stay")
    parser.add_argument("--out", type=Path, default=_RESULTS, help="folder for the JSON")
    parser.add_argument("--quick", action="store_true", help="smoke run; saves nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
