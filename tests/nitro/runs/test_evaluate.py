from pathlib import Path

import gymnasium
import numpy as np
import pytest

from nitro.errors import CommandError
from nitro.runs.evaluate import evaluate_run
from shared.trajectory.seeds import Purpose, actor_seed
from tests.nitro.checkpoints import LEFT, RIGHT, stubborn_policy, write_checkpoint
from tests.nitro.synthetic_run import JOB_ID, job


def played(
    action: int, *, version: int, episodes: int, seed: int, mode: Purpose = "later"
) -> list[float]:
    """The same episodes, played with Gymnasium alone."""
    returns = []
    env = gymnasium.make("CartPole-v1")
    for index in range(episodes):
        env.reset(seed=actor_seed(seed, mode=mode, round_index=version, actor_index=index))
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    env.close()
    return returns


def test_the_newest_policy_plays_the_episodes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, next_round=3, policy=stubborn_policy(LEFT))
    folder = write_checkpoint(tmp_path, next_round=4, policy=stubborn_policy(RIGHT))
    report = evaluate_run(folder, episodes=5, seed=11)
    expected = played(RIGHT, version=4, episodes=5, seed=11)
    assert report.returns == expected
    assert report.lengths == expected  # CartPole pays 1 per step
    assert report.policy_version == 4
    assert report.mean_return == pytest.approx(np.mean(expected))
    assert report.std_return == pytest.approx(np.std(expected))
    assert (report.min_return, report.max_return) == (min(expected), max(expected))


def test_equal_seeds_give_equal_episodes_and_others_do_not(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, next_round=1, policy=stubborn_policy(LEFT))
    first = evaluate_run(folder, episodes=8, seed=0)
    assert evaluate_run(folder, episodes=8, seed=0) == first
    assert evaluate_run(folder, episodes=8, seed=1).returns != first.returns


def test_the_episodes_are_none_of_the_jobs_own_evaluation(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, next_round=1, policy=stubborn_policy(LEFT))
    seed = job().spec.seed
    own = played(LEFT, version=1, episodes=8, seed=seed, mode="evaluate")
    assert evaluate_run(folder, episodes=8, seed=seed).returns != own


def test_a_run_without_checkpoint_says_so(tmp_path: Path) -> None:
    folder = tmp_path / JOB_ID
    folder.mkdir()
    (folder / "job.json").write_text(job().model_dump_json())
    with pytest.raises(CommandError, match="no checkpoint yet"):
        evaluate_run(folder, episodes=1, seed=0)
    with pytest.raises(CommandError, match="episodes: must be 1 or more, got 0"):
        evaluate_run(folder, episodes=0, seed=0)


def test_a_damaged_checkpoint_is_named_with_the_fix(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, next_round=1, policy=stubborn_policy(LEFT))
    path = folder / "checkpoints" / "000001" / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    with pytest.raises(CommandError, match=r"000001/policy\.safetensors is damaged.*delete"):
        evaluate_run(folder, episodes=1, seed=0)


def test_a_policy_of_another_environment_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, next_round=1, policy=stubborn_policy(LEFT))
    spec = job().spec.model_copy(update={"env_id": "Acrobot-v1"})
    (folder / "job.json").write_text(job(spec=spec).model_dump_json())
    with pytest.raises(CommandError, match="Acrobot-v1"):
        evaluate_run(folder, episodes=1, seed=0)
