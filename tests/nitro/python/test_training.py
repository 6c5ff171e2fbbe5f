"""`nitro.train` and what it returns, through one real training run."""

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import gymnasium
import numpy as np
import pytest

import nitro
from shared.trajectory.seeds import actor_seed

_ROUNDS = 5
_SMALL: dict[str, Any] = {
    "samples_per_round": 256,
    "scaling": "fixed:2",
    "num_epochs": 2,
    "hyperparameters": {"hidden_sizes": [16]},
    "evaluation": {"every_rounds": 1, "episodes": 2},
    "checkpoint": {"keep": 1},
}
_OWN = """
import gymnasium

def make_pole(steps=500, render_mode=None):
    return gymnasium.make("CartPole-v1", max_episode_steps=steps, render_mode=render_mode)
"""


@pytest.fixture(scope="module")
def told() -> list[nitro.RoundLine]:
    """What `on_round` was called with."""
    return []


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, told: list[nitro.RoundLine]
) -> Iterator[nitro.Run]:
    """A run on an environment that is registered nowhere, in a file beside the script."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "my_pole.py").write_text(_OWN)
    sys.path.insert(0, str(folder))
    from my_pole import make_pole  # type: ignore[import-not-found]

    trained = nitro.train(
        make_pole,
        rounds=_ROUNDS,
        seed=1,
        runs_dir=folder / "runs",
        on_round=told.append,
        env_kwargs={"steps": 100},
        **_SMALL,
    )
    yield trained
    sys.path.remove(str(folder))


def _best(run: nitro.Run) -> int:
    """The round of the best checkpoint, from the record alone."""
    means = {
        line.plan.round: fmean(line.evaluation.returns) for line in run.rounds if line.evaluation
    }
    del means[0]  # of the initial policy, which has no checkpoint
    return max(means, key=lambda index: (means[index], index))


def test_a_run_begins_with_the_policy_of_another_and_goes_on(run: nitro.Run) -> None:
    best = nitro.load(run.folder, checkpoint="best")
    tiny = {"hyperparameters": {**_SMALL["hyperparameters"], "learning_rate": 1e-12}}
    begun = nitro.train(
        init_from=best,
        rounds=1,
        seed=9,
        runs_dir=run.folder.parent,
        env_kwargs={"steps": 50},
        **_SMALL | tiny,
    )
    assert begun.job.spec.env_id == run.job.spec.env_id
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(64, 4)).astype(np.float32)
    # A step so small changes no choice; the statistics have seen some more.
    same = best.policy.act(observations) == begun.policy.act(observations)
    assert same.mean() > 0.95
    assert begun.evaluations[0][1] == min(50.0, begun.evaluations[0][1])

    told: list[nitro.RoundLine] = []
    on = nitro.train(
        resume=begun,
        total_steps=begun.job.progress.env_steps + 1,  # a second round
        fresh_schedule=True,
        on_round=told.append,
        runs_dir=run.folder.parent,
        progress=False,
    )
    assert on.job_id == begun.job_id
    assert [line.plan.round for line in told] == [1]
    rates = [line.result.stats["learning_rate"] for line in on.rounds if line.result]
    assert rates == [1e-12, 1e-12]
    with pytest.raises(nitro.CommandError, match="resume: .* leave out seed"):
        nitro.train(resume=begun, seed=3, runs_dir=run.folder.parent)


def test_a_run_says_what_came_of_the_job(run: nitro.Run, told: list[nitro.RoundLine]) -> None:
    assert run.job.status == "succeeded"
    assert (run.job.spec.seed, run.job.spec.scaling.policy) == (1, "fixed")
    values = run.job.spec.hyperparameters
    assert (values["num_epochs"], values["hidden_sizes"]) == (2, (16,))
    made = [line for line in run.rounds if line.result]
    assert [line.plan.round for line in made] == [*range(_ROUNDS)]
    assert [line.result for line in told] == [line.result for line in made]
    assert len(run.returns) == _ROUNDS
    assert [index for index, _ in run.evaluations] == [*range(_ROUNDS + 1)]
    assert run.cost_usd == pytest.approx(run.job.spent_usd)
    assert run.job_id in repr(run)


def test_the_policy_acts_as_it_was_evaluated(run: nitro.Run) -> None:
    report = run.evaluate(episodes=3, seed=5)
    returns = []
    for index in range(3):
        env = gymnasium.make("CartPole-v1", max_episode_steps=100)
        seed = actor_seed(5, mode="later", round_index=_ROUNDS, actor_index=index)
        observation, _ = env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(run.policy.act(observation))
            total += float(reward)
            ended = terminated or truncated
        returns.append(total)
    assert report.returns == returns
    assert f"return {fmean(returns):.1f} ±" in str(report)


def test_a_batch_is_acted_on_like_its_observations(run: nitro.Run) -> None:
    observations = np.random.default_rng(0).normal(size=(7, 4))
    actions = run.policy.act(observations)
    assert actions.tolist() == [run.policy.act(row.tolist()) for row in observations]


def test_the_best_checkpoint_is_kept_and_loaded(run: nitro.Run) -> None:
    kept = {int(path.name) for path in (run.folder / "checkpoints").iterdir()}
    assert kept == {_best(run), _ROUNDS}
    best = nitro.load(run.job_id, runs_dir=run.folder.parent, checkpoint="best")
    assert best.evaluate(episodes=1).policy_version == _best(run)
    assert nitro.load(run.folder).evaluate(episodes=1).policy_version == _ROUNDS
    with pytest.raises(nitro.CommandError, match="checkpoint: must be newest or best"):
        nitro.load(run.folder, checkpoint="last")  # type: ignore[arg-type]


def test_picture_and_film_are_paths_that_a_notebook_shows(run: nitro.Run) -> None:
    picture = run.plot()
    assert picture == run.folder / "plots" / "run.png"
    assert (picture._repr_png_() or b"").startswith(b"\x89PNG")
    film = run.video()
    assert film.stat().st_size > 0
    assert "base64" in film._repr_html_()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"total_steps": 0}, "^total_steps: must be a whole number from 1"),
        ({"total_steps": 1e6, "rounds": 3}, "^total_steps: give it or rounds, not both"),
        ({"actors": "8-64"}, "^actors: "),
        ({"scaling": "most"}, "^scaling: must be one of"),
        ({"clip": 0.1, "hyperparameters": {"clip": 0.2}}, "^clip: is given twice"),
        ({"policy": "MlpPolicy"}, "^policy: no such field; the network depends on"),
        ({"processes": 0}, "^processes: must be a whole number from 1, got 0"),
        ({"on_round": 5}, "^on_round: must be a function of a round, got 5"),
        ({"api_url": 5}, "^api_url: must be a text"),
    ],
)
def test_a_wrong_argument_is_named_as_python_has_it_before_anything_starts(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(nitro.CommandError, match=message):
        nitro.train("CartPole-v1", **wrong)


def test_an_unknown_field_is_told_as_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(nitro.CommandError, match=r"sead: .*did you mean seed"):
        nitro.train("CartPole-v1", sead=1, runs_dir=tmp_path)
    with pytest.raises(nitro.CommandError, match="CartPole-v2.* did you mean CartPole-v1"):
        nitro.train("CartPole-v2", runs_dir=tmp_path)
    assert not list(tmp_path.iterdir())


class _Mine(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("raised", [None, _Mine, KeyboardInterrupt])
def test_a_job_stops_where_its_user_says_so(
    shared_system: nitro.LocalSystem,
    client: nitro.Client,
    tmp_path: Path,
    raised: type[BaseException] | None,
) -> None:
    seen: list[int] = []

    def on_round(line: nitro.RoundLine) -> bool:
        seen.append(line.plan.round)
        if len(seen) == 2 and raised is not None:
            raise raised
        return len(seen) < 2

    def train() -> nitro.Run:
        return nitro.train(
            "CartPole-v1",
            rounds=100_000,
            api_url=shared_system.api_url,
            token=shared_system.token,
            on_round=on_round,
            runs_dir=tmp_path,
            **_SMALL,
        )

    if raised is None:
        run = train()
        assert (run.job.status, run.job.stop_reason) == ("stopped", "user")
        assert len(run.returns) >= 2
        assert run.cost_usd > 0
        # Its files are those of the API, which this machine might not see.
        with pytest.raises(nitro.CommandError, match="are at its API"):
            run.evaluate()
    else:
        with pytest.raises(raised):
            train()
        newest = next(client.every_job())
        assert (newest.status, newest.stop_reason) == ("stopped", "user")
    assert seen == [0, 1]
