"""Pre-training of the scheduler's agent: it learns where there is something to learn."""

import json
import random
import signal
import threading
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from experiments.minionsrl.episode import SchedulingEpisode
from experiments.minionsrl.network import MAX_CHOICES, MinionsTrainer, discounted
from experiments.minionsrl.real_runs import RealRuns
from experiments.minionsrl.training import TrainedScheduler, train_scheduler
from nitro.cli.interrupts import Interrupts
from nitro.cli.main import app
from nitro.client.client import NitroClient
from nitro.errors import EXIT_INTERRUPTED, EXIT_USAGE, CommandError
from nitro.hints import Place
from nitro.local.access import Api
from nitro.local.system import LocalSystem
from nitro.runs.reading import read_run
from nitro.spec.scaling_option import read_agent
from services.scaler.api.guard import JOB_BODY_BYTES
from shared.contracts.job_spec import JobSpec
from shared.contracts.minions_agent import (
    MinionsAgent,
    SchedulerState,
    choice_probabilities,
    drawn_count,
)
from tests.experiments.minionsrl.test_practice_runs import other_run
from tests.nitro.cli.training.test_train import read_until, started
from tests.nitro.conftest import TINY
from tests.nitro.process_table import eventually
from tests.nitro.synthetic_run import JOB_ID, write_run

STATE = SchedulerState(
    round_index=1.0,
    learner_loss=0.1,
    mean_return=0.5,
    kl=0.0,
    learner_s=0.2,
    actor_s=0.3,
    remaining_usd=1.0,
)


def _with_returns(returns: list[float]) -> tuple[float, ...]:
    """Rewards whose discounted sums these are."""
    following = [*returns[1:], 0.0]
    return tuple(g - 0.99 * later for g, later in zip(returns, following, strict=True))


class Bandit:
    """Rounds that are all alike, in which four actors are best."""

    scales = (1.0,) * 8
    num_choices = 6

    def play(self, agent: MinionsAgent, index: int) -> SchedulingEpisode:
        chance = random.Random(index)
        probabilities = choice_probabilities(agent, STATE)
        choices = tuple(drawn_count(probabilities, chance.random()) for _ in range(64))
        return SchedulingEpisode(
            states=(STATE,) * 64,
            choices=choices,
            rewards=_with_returns([-float(abs(choice - 4)) for choice in choices]),
            duration_s=1.0,
            cost_usd=0.25,
            best_return=None,
        )


def test_it_finds_the_best_choice_and_adds_up_what_that_took() -> None:
    told: list[int] = []
    trained = train_scheduler(
        Bandit(),
        name="bandit",
        episodes=60,
        seed=1,
        recorded_usd=2.0,
        progress=lambda index, _: told.append(index),
    )
    report = trained.report
    assert told == list(range(60))
    assert (report.episodes, report.rounds, report.run_s) == (60, 60 * 64, 60.0)
    assert (report.run_usd, report.recorded_usd) == (15.0, 2.0)
    assert report.last_reward > report.first_reward
    assert report.best_reward >= report.last_reward
    probabilities = choice_probabilities(trained.agent, STATE)
    assert probabilities.index(max(probabilities)) == 3


class Interrupted(Bandit):
    """The same, until somebody has seen enough."""

    def __init__(self, after: int) -> None:
        self._after = after

    def play(self, agent: MinionsAgent, index: int) -> SchedulingEpisode:
        if index == self._after:
            raise KeyboardInterrupt
        return super().play(agent, index)


def test_an_interrupt_keeps_what_was_learned_until_then() -> None:
    def trained(source: Bandit, episodes: int) -> TrainedScheduler:
        return train_scheduler(
            source, name="", episodes=episodes, seed=2, progress=lambda _, __: None
        )

    cut, whole = trained(Interrupted(3), 10), trained(Bandit(), 3)
    assert (cut.report.episodes, cut.report.interrupted) == (3, True)
    assert (whole.report.episodes, whole.report.interrupted) == (3, False)
    assert cut.agent == whole.agent
    with pytest.raises(KeyboardInterrupt):
        trained(Interrupted(0), 10)


def test_an_interrupted_command_writes_the_best_agent_so_far(tmp_path: Path) -> None:
    spec, output = tmp_path / "job.json", tmp_path / "agent.json"
    spec.write_text(json.dumps(TINY))
    options = ("--spec", str(spec), "-o", str(output), "--runs-dir", str(tmp_path / "runs"))
    with started("scheduler", "train", *options, "--episodes", "1000", "--json") as process:
        read_until(process, "run 1 of 1000")
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=120)
    assert process.returncode == EXIT_INTERRUPTED, errors
    report = json.loads(said)
    assert report["interrupted"]
    assert f"interrupted after {report['episodes']} of 1000 runs; {output} has" in errors
    assert read_agent(output).num_choices == 2


def test_equal_seeds_train_equal_agents_and_leave_torchs_own_state_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, two = (
        train_scheduler(Bandit(), name="", episodes=3, seed=2, progress=lambda _, __: None).agent
        for _ in range(2)
    )
    assert one == two
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_loss_is_the_formula() -> None:
    trainer = MinionsTrainer(num_choices=3, scales=(1.0,) * 8, seed=0)
    agent = trainer.agent()
    log_probs = torch.log(torch.tensor(choice_probabilities(agent, STATE)))
    # Two rounds, the same state: the critic's value is unknown here but enters twice the same way.
    rewards = [1.0, -2.0]
    returns = torch.tensor(discounted(rewards))
    loss = trainer.learn([STATE, STATE], [1, 3], rewards)
    entropy = -(log_probs.exp() * log_probs).sum()

    def expected(value: float) -> float:
        advantage = returns - value
        policy = -(log_probs[torch.tensor([0, 2])] * advantage).mean()
        smooth = torch.nn.functional.smooth_l1_loss(torch.full((2,), value), returns)
        return float(policy + 0.5 * smooth - 0.01 * entropy)

    # Some value of a freshly made critic explains the loss.
    values = [value / 1000 for value in range(-1000, 1001)]
    assert min(abs(expected(value) - loss) for value in values) < 1e-3


def test_returns_are_discounted_by_hand() -> None:
    assert discounted([1.0, 2.0, 4.0]) == pytest.approx([1 + 0.99 * (2 + 0.99 * 4), 5.96, 4.0])
    assert discounted([]) == []


def test_the_command_writes_an_agent_and_says_what_it_cost(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", rounds=6)
    output = tmp_path / "agent.json"
    arguments = [
        *("scheduler", "train", "--runs", str(tmp_path / "runs"), "--episodes", "2"),
        *("--actors", "2:16", "--target-return", "300", "-o", str(output), "--json"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["source"], report["episodes"]) == ("recorded", 2)
    assert report["run_usd"] > 0
    assert report["recorded_usd"] > 0
    agent = read_agent(output)
    assert agent.num_choices == 16
    shown = CliRunner().invoke(
        app, ["train", "--scaling", f"minionsrl:{output}", "--actors", "2:16", "--dry-run"]
    )
    assert json.loads(shown.stdout)["scaling"]["policy"] == "minionsrl"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--actors", "8:81"], "actors.max: 81 exceeds 80, the most an agent can choose"),
        (["-o", "none/agent.json"], "--output none/agent.json: must be a file in a folder"),
        (["--runs", "none"], "--runs none: holds no run with a finished round"),
        (["--set", "seed"], "--set: must look like path=value"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    write_run(tmp_path, rounds=2)
    result = CliRunner().invoke(
        app, ["scheduler", "train", "--runs", str(tmp_path), "--episodes", "1", *arguments]
    )
    assert result.exit_code == EXIT_USAGE
    assert complaint in result.output


def test_real_runs_are_made_of_a_named_environment_only(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result = CliRunner().invoke(app, ["scheduler", "train", "--runs-dir", str(runs)])
    assert result.exit_code == EXIT_USAGE
    assert "ENV: name an environment for real runs" in result.output
    assert not runs.exists()


def test_the_runs_of_the_named_environment_are_learned_from(tmp_path: Path) -> None:
    write_run(tmp_path, rounds=3)
    other_run(tmp_path, name="short", env_id="Hopper-v5", rounds=1)
    other_run(tmp_path, name="a-walk", env_id="Walker2d-v5")
    arguments = [
        *("scheduler", "train", "--runs", str(tmp_path), "--episodes", "1"),
        *("-o", str(tmp_path / "agent.json")),
    ]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == EXIT_USAGE
    assert "holds runs of Hopper-v5, Walker2d-v5" in refused.output
    result = CliRunner().invoke(app, [*arguments, "Hopper-v5", "--json"])
    assert result.exit_code == 0, result.output
    assert "left out, with fewer than 2 rounds: short" in result.stderr
    one_run = sum(line.amount_usd for line in read_run(tmp_path / JOB_ID).ledger)
    assert json.loads(result.stdout)["recorded_usd"] == pytest.approx(one_run)


def test_the_largest_agent_can_be_sent() -> None:
    agent = MinionsTrainer(num_choices=MAX_CHOICES, scales=(1.0,) * 8, seed=0).agent()
    assert len(agent.model_dump_json()) < JOB_BODY_BYTES - 16_384
    assert agent.num_choices == MAX_CHOICES == 80


def test_real_runs_are_scheduled_by_the_agent_and_read_back(
    system: LocalSystem, client: NitroClient, tiny_job: JobSpec
) -> None:
    episodes: list[SchedulingEpisode] = []
    with Interrupts() as interrupts:
        source = RealRuns(
            Api(client=client, system=system, place=Place()), tiny_job, interrupts=interrupts
        )
        trained = train_scheduler(
            source, name="real", episodes=2, seed=0, progress=lambda _, e: episodes.append(e)
        )
    assert (trained.report.episodes, trained.report.rounds) == (2, 4)
    assert trained.report.run_usd == pytest.approx(sum(e.cost_usd for e in episodes))
    assert trained.report.run_usd > 0
    for episode in episodes:
        assert all(1 <= choice <= 2 for choice in episode.choices)
        assert episode.states[1].learner_s > 0
        assert episode.best_return is not None


def test_a_real_run_that_is_stopped_from_elsewhere_teaches_nothing(
    system: LocalSystem, client: NitroClient, endless_job: JobSpec
) -> None:
    def stop() -> None:
        with NitroClient(system.api_url, system.token) as other:
            eventually(lambda: any(job.round for job in other.every_job(status="running")))
            for job in other.every_job(status="running"):
                other.stop(job.job_id)

    somebody = threading.Thread(target=stop)
    with Interrupts() as interrupts:
        source = RealRuns(
            Api(client=client, system=system, place=Place()), endless_job, interrupts=interrupts
        )
        somebody.start()
        with pytest.raises(CommandError, match="was stopped from elsewhere"):
            train_scheduler(source, name="real", episodes=1, seed=0, progress=lambda *_: None)
    somebody.join()
