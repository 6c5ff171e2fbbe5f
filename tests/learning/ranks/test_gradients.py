"""A group of one rank, in this process: what a rank does, without the others."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from learning.algorithms import network_steps
from learning.algorithms.network_steps import NetworkSteps
from learning.data.batch_building import on_policy_batch
from learning.losses.ppo import PpoRule
from learning.networks.building import build_network
from learning.ranks.group import RankGroup, RankGroupError
from shared.hyperparameters.ppo import STANDARD
from shared.trajectory.columns import Columns
from tests.learning.trajectories import DISCRETE, make_trajectory
from tests.learning.updates.replaying import always

PPO = STANDARD.model_copy(update={"hidden_sizes": (8, 7), "num_epochs": 2, "minibatch_size": 25})


@pytest.fixture
def group(tmp_path: Path) -> RankGroup:
    return RankGroup.opened(
        tmp_path / "meeting",
        rank=0,
        size=1,
        device=torch.device("cpu"),
        start_timeout_s=60.0,
        timeout_s=60.0,
    )


def _steps() -> tuple[NetworkSteps, Columns[Tensor]]:
    network = build_network(DISCRETE, PPO, seed=5)
    trajectories = [make_trajectory(DISCRETE, network, actor_index=i) for i in range(2)]
    batch = on_policy_batch(trajectories, network, discount=0.99, gae_lambda=0.95)
    network.flatten(torch.float64)
    return NetworkSteps(network, PPO), batch


def _taken(group: RankGroup | None) -> tuple[dict[str, float], torch.Tensor]:
    steps, batch = _steps()
    columns = {name: getattr(batch, name).double() for name in ("observation", "advantage")}
    for name in ("value_target", "value", "log_prob", "outputs", "behaviour_log_prob"):
        columns[name] = getattr(batch, name).double()
    batch = Columns(action=batch.action, **columns).of_trajectories(2)
    rule = PpoRule(hyperparameters=PPO, kl_coefficient=0.2)
    generator = torch.Generator().manual_seed(1)
    told = steps.take(batch, rule, generator=generator, group=group)
    return told, steps.adam.parameters


@pytest.mark.parametrize("recorded", [False, True])
def test_a_group_of_one_takes_the_steps_of_none(
    group: RankGroup, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """With steps as on a GPU, too: there they are not recorded in a group."""
    if recorded:
        monkeypatch.setattr(network_steps, "recorder", always)
    told, parameters = _taken(group)
    expected, alone = _taken(None)
    torch.testing.assert_close(parameters, alone, rtol=1e-13, atol=1e-14)
    assert told == pytest.approx(expected, rel=1e-12)


def test_a_rank_that_waits_for_others_in_vain_says_so(tmp_path: Path) -> None:
    with pytest.raises(RankGroupError, match=r"(?i)time"):
        RankGroup.opened(
            tmp_path / "meeting",
            rank=0,
            size=2,
            device=torch.device("cpu"),
            start_timeout_s=0.2,
            timeout_s=0.2,
        )
