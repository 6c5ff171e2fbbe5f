"""The best checkpoint stays beside the newest, also where rounds overlap or a learner dies."""

from itertools import count
from pathlib import Path

import pytest

from services.learner.record.best import evaluated_checkpoint
from shared.contracts.rounds import EvaluationResult, RoundLine, RoundPlan, RoundRequest
from tests.services.learner.made_rounds import deliver_episode, plan
from tests.services.learner.scripted_scaler import ScriptedScaler, deliver_all, job, serving
from tests.services.learner.test_worker import Fuse, Killed, Learner

_JOBS = count()
_ROUNDS = 7
_WORTH = (9.0, 1.0, 2.0, 6.0, 6.0, 3.0, 2.0, 1.0, 1.0, 0.0)
"""Return of the episodes beside each round, and beside the plans that end the job."""


def _launch(scaler: ScriptedScaler, made: RoundPlan, request: RoundRequest) -> None:
    deliver_all(scaler, made.model_copy(update={"num_evaluations": 0}), request)
    for index in range(made.num_evaluations):
        deliver_episode(
            scaler.cache,
            made.job_id,
            index,
            round_index=made.round,
            policy_version=made.policy_version,
            episode_return=_WORTH[made.round],
        )


def _train(cache_url: str, runs: Path, *, kill_at: int | None = None, **changes: object) -> Fuse:
    """Train to the end, by a second learner if the first one dies."""
    fuse = Fuse(kill_at)
    made = job(f"best-{next(_JOBS)}", checkpoint={"keep": 1}, **changes)
    with serving(made, cache_url, rounds=_ROUNDS) as scaler:
        scaler.launch, scaler.changes = _launch, {"num_evaluations": 2}
        if kill_at is not None:
            with pytest.raises(Killed):
                Learner(scaler, cache_url, runs, fuse).run()
        Learner(scaler, cache_url, runs, fuse).run()
        assert scaler.finished[0].status == "succeeded", scaler.finished[0].error
    (runs / made.job_id).rename(runs / "run")
    return fuse


def _kept(runs: Path) -> list[str]:
    return sorted(path.name for path in (runs / "run" / "checkpoints").iterdir())


def test_the_best_stays_beside_the_newest_also_if_the_learner_dies(
    cache_url: str, tmp_path: Path
) -> None:
    # Round 0 has the initial policy, which has no checkpoint; of equals the newest counts.
    for name, kill_at in (("whole", None), ("killed", 90)):
        runs = tmp_path / name
        runs.mkdir()
        _train(cache_url, runs, kill_at=kill_at)
        assert _kept(runs) == ["000004", "000007"]


def test_where_rounds_overlap_a_policy_is_kept_until_it_is_evaluated(
    cache_url: str, tmp_path: Path
) -> None:
    _train(cache_url, tmp_path, algorithm="impala", hyperparameters={}, rounds_in_flight=3)
    # Round 4 was opened with the policy of two rounds: three are open at a time.
    assert _kept(tmp_path) == ["000002", "000005", "000006", "000007"]


@pytest.mark.parametrize("returns", [(), (5.0,)])
def test_an_evaluation_that_lacks_episodes_says_nothing(returns: tuple[float, ...]) -> None:
    made = plan("job", round_index=3, num_evaluations=2)
    evaluation = EvaluationResult(policy_version=3, returns=returns, lengths=(1,) * len(returns))
    line = RoundLine(plan=made, result=None, curvature=None, evaluation=evaluation)
    assert evaluated_checkpoint(line, job("job").spec) is None
