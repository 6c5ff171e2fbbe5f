"""A new algorithm and a new detector, by the registries alone, as docs/extending.md says.

The algorithm is REINFORCE with a critic that never learns: Williams, "Simple statistical
gradient-following algorithms for connectionist reinforcement learning", Machine Learning 8, 1992.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch import Tensor

from functions.actor.rollout import sample_fragment
from learning.algorithms.algorithm import Algorithm, learn_round
from learning.algorithms.on_policy import OnPolicy
from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.algorithms.registry import BUILDERS, build_algorithm
from learning.data.batch_building import on_policy_batch
from learning.detectors.detector import Measurement, PolicySamples
from learning.detectors.registry import DETECTORS, build_detector
from learning.detectors.surrogate import leaves
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload, build_network, policy_payload
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.contracts.jobs import Job
from shared.contracts.message import PositiveFloat
from shared.contracts.rollouts import RolloutTask
from shared.environments.building import make_environment
from shared.environments.describing import describe
from shared.hyperparameters.common import CommonHyperparameters
from shared.hyperparameters.presets import ALGORITHMS, AlgorithmTraits
from shared.policy.numpy_policy import load_policy
from shared.trajectory.columns import Columns
from shared.trajectory.seeds import actor_seed
from shared.trajectory.trajectory import Trajectory

CARTPOLE = EnvironmentRef(env_id="CartPole-v1")
STEPS, ACTORS, ROUNDS = 256, 4, 12


class ReinforceHyperparameters(CommonHyperparameters):
    learning_rate: PositiveFloat = 1.0


class Reinforce(OnPolicy):
    def __init__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: ReinforceHyperparameters,
        /,
        *,
        seed: int,
        device: torch.device,
        **_: object,
    ) -> None:
        self._hyperparameters = hyperparameters
        self._network = build_network(environment, hyperparameters, seed=seed, device=device)
        self._batch: Columns[Tensor] | None = None

    replay = None

    @property
    def network(self) -> ActorCritic:
        return self._network

    def policy_payload(self) -> PolicyPayload:
        arrays, metadata = policy_payload(self._network)
        return arrays, metadata | {"action_mapping": self._hyperparameters.action_mapping}

    def learn(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        # With lambda 1 advantages are discounted returns, less a value that never changes.
        batch = on_policy_batch(
            trajectories,
            self._network,
            discount=self._hyperparameters.discount,
            gae_lambda=1.0,
        )
        parameters = leaves(self._network, policy_only=True)
        outputs = self._network.outputs_at(parameters, batch.observation)
        log_prob = self._network.distribution.log_prob(outputs, batch.action)
        loss = -(batch.advantage * log_prob).mean()
        gradients = torch.autograd.grad(loss, [*parameters.values()])
        views = self._network.views_of(self._network.flat)
        for name, gradient in zip(parameters, gradients, strict=True):
            views[name].sub_(self._hyperparameters.learning_rate * gradient)
        self._batch = batch
        return PolicyUpdate(stats={"loss": loss.item()})

    def samples(self) -> PolicySamples | None:
        return None if self._batch is None else PolicySamples(batch=self._batch)

    def state(self) -> tuple[StateArrays, StateScalars]:
        views = self._network.views_of(self._network.flat)
        return {name: view.detach().cpu().numpy().copy() for name, view in views.items()}, {}

    def load_state(self, arrays: StateArrays, _: StateScalars) -> None:
        for name, view in self._network.views_of(self._network.flat).items():
            view.copy_(torch.from_numpy(np.array(arrays[name])))


class EntropyDetector:
    """Says how far the policy is from deciding: its mean entropy, by name."""

    def __init__(self, rule: DetectorRule) -> None:
        self._num_samples = rule.num_samples

    def measure(self, policy: ActorCritic, samples: PolicySamples) -> Measurement | None:
        outputs = policy.policy_outputs(samples.batch.observation[: self._num_samples])
        return {"entropy": float(policy.distribution.entropy(outputs).mean())}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = ReinforceHyperparameters(hidden_sizes=(32,), initialisation="orthogonal")
    traits = AlgorithmTraits(presets={"paper": paper}, on_policy=True)
    monkeypatch.setitem(ALGORITHMS, "reinforce", traits)
    monkeypatch.setitem(BUILDERS, "reinforce", Reinforce)
    monkeypatch.setitem(DETECTORS, "entropy", EntropyDetector)


def _job() -> Job:
    spec = JobSpec.model_validate(
        {**CARTPOLE.model_dump(), "algorithm": "reinforce", "detector": {"name": "entropy"}}
    )
    return Job(
        job_id="toy", spec=spec, environment=describe(CARTPOLE), status="running", created_at=0.0
    )


def _round(algorithm: Algorithm, index: int) -> list[Trajectory]:
    policy = load_policy(*algorithm.policy_payload())
    with ExitStack() as leaving:
        env = make_environment(CARTPOLE)
        leaving.callback(env.close)
        return [
            sample_fragment(
                RolloutTask(
                    mode="sample",
                    job_id="toy",
                    round=index,
                    attempt=0,
                    actor_index=actor,
                    policy_version=index,
                    env=CARTPOLE,
                    steps=STEPS,
                    seed=actor_seed(0, mode="sample", round_index=index, actor_index=actor),
                ),
                [env],
                policy,
            )
            for actor in range(ACTORS)
        ]


@pytest.mark.usefixtures("registered")
def test_an_algorithm_and_a_detector_are_added_without_editing_a_file() -> None:
    job = _job()
    assert job.spec.open_rounds == 1
    algorithm = build_algorithm(job, device=torch.device("cpu"))
    detector = build_detector(job.spec.detector)
    returns, entropies = [], []
    for index in range(ROUNDS):
        trajectories = _round(algorithm, index)
        learn_round(algorithm, trajectories)
        samples = algorithm.samples()
        assert samples is not None
        assert algorithm.network is not None
        measured = detector.measure(algorithm.network, samples)
        assert isinstance(measured, dict)
        entropies.append(measured["entropy"])
        returns.append(np.mean(np.concatenate([t.episode_returns for t in trajectories])))
    assert np.mean(returns[-3:]) > 1.4 * np.mean(returns[:3])
    assert entropies[-1] < entropies[0]
