"""Time and accuracy of the curvature measurement, on real rounds of the paper's two networks.

Beside 100 Lanczos steps of PyHessian's kind, on the same samples and, for the MLP, on the whole
round as the paper's implementation has it, and beside SciPy's `eigsh` on our own products. The CNN
is measured on fewer samples than the detector takes, for PyHessian's kind to be done in seconds.
Which share of a round the curvature takes is measured by `training_throughput`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from benchmarks.actors.real_actor import RealActor
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers import pyhessian_kind
from benchmarks.records.result import Row, Series, Target
from learning.algorithms.ppo import Ppo
from learning.cpu.torch_settings import configure_torch
from learning.data.batch_building import on_policy_batch
from learning.detectors.detector import PolicySamples
from learning.detectors.hessian import HessianDetector
from learning.detectors.sample_choice import chosen_samples
from learning.detectors.surrogate import Objective, surrogate
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import policy_payload
from shared.contracts.detector_rule import DetectorRule
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.columns import Columns

TITLE = "Curvature of the surrogate objective, paper's MLP (Hopper-v5) and CNN (Space Invaders)"
_TIMES_PYHESSIAN = 6.0
_TOLERATED_PERCENT = 1.0


@dataclass(slots=True)
class Contender:
    """One way to find both ends of the spectrum, and what it found last."""

    find: Callable[[], tuple[float, float, int]]
    """Returns λmax, λmin and the number of products."""
    threads: int
    """Torch's, while it finds them."""
    lambda_max: float = 0.0
    lambda_min: float = 0.0
    products: int = 0

    def sample(self) -> float:
        """Find them once; return the seconds it took."""
        torch.set_num_threads(self.threads)
        start = time.perf_counter()
        self.lambda_max, self.lambda_min, self.products = self.find()
        return time.perf_counter() - start


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A policy whose curvature is measured, and how."""

    env_id: str
    num_actors: int
    num_epochs: int
    """Of the update before; real updates have 30."""
    rule: DetectorRule
    whole_round: bool
    """Whether the peer is measured on all samples of the round, too."""
    repeats: int

    def updated_policy(self, effort: Effort) -> tuple[ActorCritic, Columns[Tensor]]:
        """Return a policy after one update, and the samples of that update."""
        actor = RealActor(self.env_id)
        hyperparameters = PpoHyperparameters(num_epochs=effort.of(self.num_epochs, quick=1))
        algorithm = Ppo(actor.environment, hyperparameters, seed=0)
        actor.policy = load_policy(*policy_payload(algorithm.network))
        trajectories = actor.fragments(self.num_actors)
        batch = on_policy_batch(
            trajectories,
            algorithm.network,
            discount=hyperparameters.discount,
            gae_lambda=hyperparameters.gae_lambda,
        )
        algorithm.learn(trajectories)
        return algorithm.network, batch


SUBJECTS = {
    "MLP": Subject(
        env_id="Hopper-v5",
        num_actors=16,
        num_epochs=30,
        rule=DetectorRule(),
        whole_round=True,
        repeats=7,
    ),
    "CNN": Subject(
        env_id="ALE/SpaceInvaders-v5",
        num_actors=4,
        num_epochs=4,
        rule=DetectorRule(num_samples=128),
        whole_round=False,
        repeats=3,
    ),
}
"""By the name rows carry."""


def measure(effort: Effort) -> list[Row]:
    """Measure on each network's policy after its first update."""
    configure_torch()
    return [row for name, subject in SUBJECTS.items() for row in _rows(name, subject, effort)]


def _rows(name: str, subject: Subject, effort: Effort) -> list[Row]:
    progress(f"{name}: one round of rollouts and its update")
    network, batch = subject.updated_policy(effort)
    rule = subject.rule
    few, weights = chosen_samples(batch, rule, network.distribution)
    # The others take the same samples, each counting as much.
    drawn = batch.replaced(advantage=batch.advantage.clone())
    drawn.advantage[few] *= weights
    everything = torch.arange(batch.num_samples)
    threads = torch.get_num_threads()
    contenders = {
        "ours": Contender(lambda: _ours(network, batch, rule), threads),
        "same": _at_its_best(lambda: _pyhessian(network, drawn, few), threads),
        "eigsh": _at_its_best(lambda: _eigsh(network, drawn, few, rule), threads),
    }
    if subject.whole_round:
        contenders["whole"] = _at_its_best(lambda: _pyhessian(network, batch, everything), threads)
    contenders["ours"].sample()  # the others are warm from finding their threads
    progress(f"{name}: measuring its curvature")
    samplers = {name: contender.sample for name, contender in contenders.items()}
    samples = interleaved(samplers, repeats=effort.of(subject.repeats), warm_up=False)
    torch.set_num_threads(threads)
    rows = _time_rows(samples, len(few), batch.num_samples) + _value_rows(contenders)
    return [row.model_copy(update={"what": f"{name}: {row.what}"}) for row in rows]


def _at_its_best(find: Callable[[], tuple[float, float, int]], threads: int) -> Contender:
    """Return a contender with one thread or the learner's number, whichever is faster here."""
    candidates = [Contender(find, count) for count in {1, threads}]
    return min(candidates, key=lambda contender: contender.sample())


def _time_rows(samples: dict[str, tuple[float, ...]], few: int, whole: int) -> list[Row]:
    ours = _series("ours", "s", samples["ours"])
    pyhessian = f"PyHessian's kind, {pyhessian_kind.STEPS} steps"
    rows = [
        Row(
            what=f"time, same {few} samples",
            ours=ours,
            peer=_series(pyhessian, "s", samples["same"]),
            target=Target(of="ratio", bound="at_least", value=_TIMES_PYHESSIAN),
        ),
        Row(
            what=f"time, same {few} samples and products",
            ours=ours,
            peer=_series("SciPy eigsh BE", "s", samples["eigsh"]),
        ),
    ]
    if "whole" in samples:
        rows.append(
            Row(
                what=f"time, theirs on all {whole} samples",
                ours=ours,
                peer=_series(pyhessian, "s", samples["whole"]),
            )
        )
    return rows


def _value_rows(contenders: dict[str, Contender]) -> list[Row]:
    ours, eigsh_, reference = contenders["ours"], contenders["eigsh"], contenders["same"]
    rows = [
        Row(
            what="Hessian-vector products",
            ours=_series("ours", "products", (ours.products,)),
            peer=_series("SciPy eigsh BE", "products", (eigsh_.products,)),
        )
    ]
    for end, found, expected in (
        ("λmax", ours.lambda_max, reference.lambda_max),
        ("λmin", ours.lambda_min, reference.lambda_min),
    ):
        distance = 100 * abs(found - expected) / abs(expected)
        rows.append(
            Row(
                what=f"{end}: distance from {pyhessian_kind.STEPS} steps ({expected:.4g})",
                ours=_series("ours", "%", (distance,)),
                target=Target(of="ours", bound="at_most", value=_TOLERATED_PERCENT),
            )
        )
    return rows


def _ours(
    network: ActorCritic, batch: Columns[Tensor], rule: DetectorRule
) -> tuple[float, float, int]:
    curvature = HessianDetector(rule).measure(network, PolicySamples(batch=batch))
    if curvature is None:
        raise RuntimeError("the round has no curvature to measure")
    return curvature.lambda_max, curvature.lambda_min, curvature.matvecs


def _pyhessian(
    network: ActorCritic, batch: Columns[Tensor], samples: torch.Tensor
) -> tuple[float, float, int]:
    return (*pyhessian_kind.extreme_eigenvalues(network, batch, samples), pyhessian_kind.STEPS)


def _eigsh(
    network: ActorCritic, batch: Columns[Tensor], samples: torch.Tensor, rule: DetectorRule
) -> tuple[float, float, int]:
    objective = Objective(
        network,
        lambda parameters: surrogate(
            network,
            parameters,
            observation=batch.observation[samples],
            action=batch.action[samples],
            advantage=batch.advantage[samples],
        ),
    )
    products = 0

    def product(vector: NDArray[np.float32]) -> NDArray[np.float32]:
        nonlocal products
        products += 1
        direction = torch.from_numpy(np.ascontiguousarray(vector.reshape(-1), np.float32))
        return objective.hessian_product(direction).numpy()

    shape = (objective.size, objective.size)
    operator = LinearOperator(shape, matvec=product, dtype=np.float32)
    start = np.random.default_rng(0).standard_normal(objective.size).astype(np.float32)
    values = eigsh(
        operator, k=2, which="BE", tol=rule.tolerance, v0=start, return_eigenvectors=False
    )
    return float(values.max()), float(values.min()), products


def _series(name: str, unit: str, samples: tuple[float, ...]) -> Series:
    return Series(name=name, unit=unit, better="lower", samples=samples)
