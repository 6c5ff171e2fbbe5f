"""Where several ranks begin to pay: an update by each number of them beside the learner alone.

    python -m benchmarks ranks

Samples are made up: what an update takes depends on their number and form. On a CPU the learner
alone has its second process, as in a real job. On a machine with several GPUs each rank has one.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.records.result import Row, Series
from learning.algorithms.network_steps import NetworkSteps
from learning.cpu.second_process import SecondProcess, second_process
from learning.cpu.torch_settings import configure_torch
from learning.losses.ppo import PpoRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import build_network
from learning.ranks.ranks import Ranks
from shared.contracts.environment_spec import (
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    ObservationSpec,
)
from shared.hyperparameters.ppo import STANDARD, STANDARD_IMAGES, PpoHyperparameters
from shared.service.cores import usable_cores
from shared.trajectory.columns import Columns

TITLE = "Updates by several ranks beside the learner alone"
_MOST_RANKS = 4
_PASSES = 1
_VECTORS = EnvironmentSpec(
    env_id="Hopper-v5",
    observation=ObservationSpec(shape=(11,), dtype="float32"),
    action=ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3),
    max_episode_steps=1000,
    versions={},
)
_IMAGES = EnvironmentSpec(
    env_id="ALE/Pong-v5",
    observation=ObservationSpec(shape=(4, 84, 84), dtype="uint8", frame_stack=4),
    action=DiscreteActionSpec(n=6),
    max_episode_steps=None,
    versions={},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A network, and how it is learned."""

    name: str
    environment: EnvironmentSpec
    hyperparameters: PpoHyperparameters
    num_samples: int
    minibatch_sizes: tuple[int, ...]


def _dense(width: int, *minibatch_sizes: int) -> _Subject:
    return _Subject(
        name=f"2 x {width}",
        environment=_VECTORS,
        hyperparameters=STANDARD.model_copy(update={"hidden_sizes": (width, width)}),
        num_samples=4096,
        minibatch_sizes=minibatch_sizes,
    )


_SUBJECTS = (
    _dense(64, 64, 512, 4096),
    _dense(256, 64, 512, 4096),
    _dense(1024, 4096),
    _Subject(
        name="CNN",
        environment=_IMAGES,
        hyperparameters=STANDARD_IMAGES,
        num_samples=256,
        minibatch_sizes=(256,),
    ),
)


def measure(effort: Effort) -> list[Row]:
    """Measure every network and size of minibatches, with as many ranks as the machine has for."""
    configure_torch()
    on_gpu = torch.cuda.device_count() > 1
    device = torch.device("cuda" if on_gpu else "cpu")
    most = min(_MOST_RANKS, torch.cuda.device_count() if on_gpu else usable_cores())
    with ExitStack() as leaving:
        helper = second_process(device)
        if helper is not None:
            leaving.callback(helper.close)
        numbers = [number for number in (2, 4) if number <= max(2, most)]
        ranks = [leaving.enter_context(Ranks(number, on_gpu=on_gpu)) for number in numbers]
        return [
            row
            for subject in _SUBJECTS[: effort.of(len(_SUBJECTS), quick=1)]
            for size in subject.minibatch_sizes
            for row in _rows(subject, size, ranks, helper, device, effort)
        ]


def _rows(
    subject: _Subject,
    size: int,
    ranks: Sequence[Ranks],
    helper: SecondProcess | None,
    device: torch.device,
    effort: Effort,
) -> list[Row]:
    progress(f"{subject.name}: minibatches of {size}")
    change = {"minibatch_size": size, "num_epochs": _PASSES}
    hyperparameters = subject.hyperparameters.model_copy(update=change)
    subject = replace(subject, hyperparameters=hyperparameters)
    learners = {"1": _Learner(subject, device, helper, None)}
    learners |= {str(each.number): _Learner(subject, device, None, each) for each in ranks}
    taken = interleaved(
        {name: learner.sample for name, learner in learners.items()}, repeats=effort.of(3)
    )
    alone = _series("the learner alone", taken.pop("1"))
    return [
        Row(
            what=f"{subject.name}, minibatches of {size:,}: {name} ranks",
            ours=_series(f"{name} ranks", samples),
            peer=alone,
        )
        for name, samples in taken.items()
    ]


def _series(name: str, samples: tuple[float, ...]) -> Series:
    return Series(name=name, unit="ms", better="lower", samples=samples)


class _Learner:
    """One way to take an update's steps."""

    def __init__(
        self,
        subject: _Subject,
        device: torch.device,
        helper: SecondProcess | None,
        ranks: Ranks | None,
    ) -> None:
        hyperparameters = subject.hyperparameters
        network = build_network(subject.environment, hyperparameters, seed=0, device=device)
        self._device = device
        self._rule = PpoRule(hyperparameters=hyperparameters, kl_coefficient=0.0)
        self._generator = torch.Generator().manual_seed(0)
        self._batch = _batch(subject, network)
        build = NetworkSteps.beside(helper) if ranks is None else ranks.steps
        self._steps = build(network, subject.environment, hyperparameters)

    def sample(self) -> float:
        """Update once; return the milliseconds it took."""
        start = time.perf_counter()
        self._steps.take(self._batch, self._rule, generator=self._generator)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return 1000.0 * (time.perf_counter() - start)


def _batch(subject: _Subject, network: ActorCritic) -> Columns[Tensor]:
    """Return made-up samples, with actions of the policy."""
    generator, number = torch.Generator().manual_seed(1), subject.num_samples
    form = subject.environment.observation
    if form.is_image:
        observation = torch.randint(
            256, (number, *form.shape), generator=generator, dtype=torch.uint8
        )
    else:
        observation = torch.randn(number, *form.shape, generator=generator)
    observation = observation.to(network.flat.device)
    taken = subject.environment.action
    if isinstance(taken, DiscreteActionSpec):
        action = torch.randint(taken.n, (number,), generator=generator)
    else:
        assert isinstance(taken, ContinuousActionSpec), "there are two subjects"
        action = torch.randn(number, len(taken.low), generator=generator)
    action = action.to(network.flat.device)
    noise = torch.randn(number, generator=generator).to(network.flat.device)
    with torch.no_grad():
        outputs = network.policy_outputs(observation)
        log_prob = network.distribution.log_prob(outputs, action)
    return Columns(
        observation=observation,
        action=action,
        advantage=noise,
        value_target=noise,
        value=torch.zeros_like(noise),
        log_prob=log_prob,
        outputs=outputs,
        behaviour_log_prob=log_prob,
    )
