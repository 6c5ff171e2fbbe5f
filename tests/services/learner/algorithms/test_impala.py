"""IMPALA as a whole: every batch once, in order, by the policy gradient."""

import numpy as np
import pytest

from services.learner.algorithms.impala import build_impala
from shared.impala_hyperparameters import STANDARD, ImpalaHyperparameters
from tests.services.learner.algorithms.off_policy_rounds import IMPALA, learner, round_of
from tests.services.learner.trajectories import CONTINUOUS, DISCRETE


def test_every_batch_is_used_once_in_the_order_it_came() -> None:
    made = learner(CONTINUOUS, IMPALA)
    for k in range(3):
        made.add(round_of(made, CONTINUOUS, k, num_actors=2))
    made.advance(10)
    lags = []
    while made.ready:
        assert made.has_fresh
        lags.append(made.update().stats["policy_lag_mean"])
    assert lags == [10.0, 9.0, 8.0]


@pytest.mark.parametrize(("minibatch_size", "steps"), [(65536, 1), (96, 1), (48, 2), (30, 4)])
def test_each_sample_is_in_one_gradient_step(minibatch_size: int, steps: int) -> None:
    made = learner(CONTINUOUS, IMPALA.model_copy(update={"minibatch_size": minibatch_size}))
    made.add(round_of(made, CONTINUOUS, 0, num_actors=2))
    assert made.update().stats["num_minibatches"] == steps
    assert made.state()[1]["adam_step"] == steps


@pytest.mark.parametrize(
    "hyperparameters",
    [
        ImpalaHyperparameters(hidden_sizes=(16,), train_batch_size=96, learning_rate=2e-2),
        STANDARD.model_copy(
            update={
                "hidden_sizes": (16,),
                "train_batch_size": 96,
                "learning_rate": 5e-3,
                "minibatch_size": 24,
                "observation_normalisation": False,
                "learning_rate_decay": "none",
            }
        ),
    ],
    ids=["sum", "mean"],
)
def test_it_learns_which_action_pays_from_stale_trajectories(
    hyperparameters: ImpalaHyperparameters,
) -> None:
    """The reward is 1 + the action's number: after some batches the last action is taken."""
    hyperparameters = hyperparameters.model_copy(update={"discount": 0.5})
    made = build_impala(DISCRETE, hyperparameters, seed=1)
    stale = round_of(made, DISCRETE, 0, num_actors=2)
    for k in range(1, 40):
        made.add(stale)
        stale = round_of(made, DISCRETE, k, num_actors=2)
        made.update()
        made.advance(k)
    assert np.mean([t.action.mean() for t in stale]) > 1.6  # 1 at random
