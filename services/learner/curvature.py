"""How strongly the objective curves at the new policy: the detector's measurement.

Extreme eigenvalues of the Hessian of the policy surrogate objective (Nitro paper, section 5.1), in
the convention of a function to be maximised and over the policy's parameters only; a job's
`DetectorRule` can ask for another objective. The gradient noise of the surrogate comes with it. All
this reads the policy and the round's samples, and changes neither; it draws nothing from any global
random state.
"""

import logging
import time
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from services.learner.actor_critic import ActorCritic
from services.learner.algorithms.minibatch import Minibatch
from services.learner.algorithms.policy_terms import clipped_slope
from services.learner.batch import TrainingBatch
from services.learner.gradient_noise import Shares
from services.learner.halved_surrogate import Samples, half_multiplications, halved_surrogate
from services.learner.lanczos import LanczosResult, MatVec, extreme_eigenvalues
from services.learner.mlp_network import MlpActorCritic
from services.learner.recording import Recorder, Work, recorder
from services.learner.sample_choice import SampleChoice, chosen_samples
from services.learner.second_half import AcrossProcesses, SecondHalf, second_process_pays
from services.learner.second_lane import Lane, second_lane
from services.learner.second_process import SecondProcess, SecondProcessLostError, Side
from services.learner.surrogate import policy_point
from services.learner.total_loss import NegativeTotalLoss
from services.learner.trajectory_noise import noise_choice, noise_shares
from shared.contracts import Curvature, GradientNoise
from shared.job_spec import DetectorRule
from shared.ppo_hyperparameters import PpoHyperparameters

_LOG = logging.getLogger(__name__)

FIRST_PROBE_SEED = 0
"""Of the first starting vector: the same in every round, so that rounds differ by their data only.
"""


class Objective(Protocol):
    """A function to be maximised, at a point, as far as Lanczos has to know it."""

    size: int
    """Number of parameters."""

    def gradient(self) -> Tensor:
        """Return its gradient # [size], not to be written to."""

    def hessian_product(self, direction: Tensor) -> Tensor:
        """Return its Hessian times `direction`, both # [size]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTerms:
    """What objectives other than the surrogate at ratio 1 depend on."""

    hyperparameters: PpoHyperparameters
    kl_coefficient: float


def measure_curvature(
    network: ActorCritic,
    batch: TrainingBatch,
    *,
    rule: DetectorRule,
    loss: LossTerms | None = None,
    process: SecondProcess | None = None,
) -> Curvature | None:
    """Return the curvature at the network's present policy, or None where there is none.

    Args:
        network: The policy after the round's update.
        batch: The round's samples.
        rule: Of which objective, and how many samples and products to spend.
        loss: The algorithm's; needed for the objectives `behaviour` and `total_loss`.
        process: May work on half of the samples; changes no bit.

    Returns:
        None when the Hessian is not finite (a policy that diverged) or zero (no advantages).

    Raises:
        ValueError: The objective needs a loss the algorithm does not have.
    """
    start = time.perf_counter()
    chosen = chosen_samples(batch, rule, network.distribution).on(batch.observation.device)
    # Of the whole loss the values' part curves without advantages, too.
    if rule.objective != "total_loss" and not bool(batch.advantage[chosen.indices].any()):
        return None
    try:
        result, noise = _measured(network, batch, chosen, rule, loss, process)
    except FloatingPointError:
        return None
    if result.lambda_max == result.lambda_min == 0.0:
        return None
    return Curvature(
        lambda_max=result.lambda_max,
        lambda_min=result.lambda_min,
        residual=result.residual,
        matvecs=result.matvecs,
        num_samples=len(chosen.indices),
        gradient_noise=noise,
        elapsed_s=time.perf_counter() - start,
    )


_Measured = tuple[LanczosResult, GradientNoise | None]


def _measured(
    network: ActorCritic,
    batch: TrainingBatch,
    chosen: SampleChoice,
    rule: DetectorRule,
    loss: LossTerms | None,
    process: SecondProcess | None,
) -> _Measured:
    """Measure with whatever works beside us.

    Raises:
        FloatingPointError: The Hessian is not finite.
    """
    count = len(chosen.indices)
    alone = rule.objective == "total_loss" or not second_process_pays(network, count)
    if process is not None and not alone and process.offers():
        try:
            return _across_processes(network, batch, chosen, rule, loss, process)
        except SecondProcessLostError as error:
            _LOG.warning("going on without a second process", extra={"why": str(error)})
    device = network.flat.device
    # The total loss is not halved, and on a GPU nothing is.
    halved = rule.objective != "total_loss" and device.type == "cpu"
    work = half_multiplications(network, count) if halved else 0
    compared = noise_choice(batch, rule)
    # The objective is made where its products are recorded: autograd goes back on the same stream.
    with second_lane(work, device) as lane, recorder(device) as recording:
        noise = compared.noise(noise_shares(network, batch, compared, lane))
        objective = _objective(network, batch, chosen, rule, loss, lane)
        return _widest_spectrum(objective, network.flat, rule, recording), noise


def _across_processes(
    network: ActorCritic,
    batch: TrainingBatch,
    chosen: SampleChoice,
    rule: DetectorRule,
    loss: LossTerms | None,
    process: SecondProcess,
) -> _Measured:
    """Measure the surrogate, half of each product in the second process.

    Raises:
        FloatingPointError: The Hessian is not finite.
        SecondProcessLostError: The process ended.
    """
    assert isinstance(network, MlpActorCritic), "of others nothing is done in a second process"
    point = policy_point(network)
    first, second = _surrogate_samples(network, batch, chosen, rule, loss).halves()
    compared = noise_choice(batch, rule)
    some, others = compared.samples(batch).halves()
    both_compare = compared.is_halved(network)

    def here(side: Side) -> tuple[LanczosResult | FloatingPointError, Shares | None]:
        shares = None
        if both_compare:
            steps = AcrossProcesses(point, some, side)
            shares = steps.shares(compared.num_trajectories)
            steps.end()
        objective = AcrossProcesses(point, first, side)
        found: LanczosResult | FloatingPointError
        try:
            found = _widest_spectrum(objective, network.flat, rule, None)
        except FloatingPointError as error:
            found = error  # not raised, as the other process did nothing wrong
        objective.end()
        return found, shares

    there = SecondHalf.of(point, (others, second) if both_compare else (second,))
    (found, shares), _ = process.both(here, there)
    if isinstance(found, FloatingPointError):
        raise found
    return found, compared.noise(shares or noise_shares(network, batch, compared, None))


def _widest_spectrum(
    objective: Objective, like: Tensor, rule: DetectorRule, recording: Recorder | None
) -> LanczosResult:
    """Return the outermost eigenvalues of all probes: each lies inside the true spectrum."""
    # The surrogate's gradient and Hessian are sums over the same scores: decision 019.
    lean = objective.gradient()
    product: MatVec = objective.hessian_product
    if recording is not None:
        product = _ReplayedProduct(objective, recording)
    results = [
        extreme_eigenvalues(
            product,
            objective.size,
            max_matvecs=rule.max_matvecs,
            tolerance=rule.tolerance,
            seed=FIRST_PROBE_SEED + probe,
            lean=lean,
            device=like.device,
            dtype=like.dtype,
        )
        for probe in range(rule.probes)
    ]
    return LanczosResult(
        lambda_max=max(result.lambda_max for result in results),
        lambda_min=min(result.lambda_min for result in results),
        residual=max(result.residual for result in results),
        matvecs=sum(result.matvecs for result in results),
    )


class _ReplayedProduct:
    """Products with an objective's Hessian, from the second on out of a recording."""

    def __init__(self, objective: Objective, recording: Recorder) -> None:
        self._objective = objective
        self._recording = recording
        self._direction: Tensor | None = None
        self._replay: Work | None = None

    def __call__(self, direction: Tensor) -> Tensor:
        """Return the Hessian times `direction` # [size]; good until the next call."""
        if self._direction is None:
            self._direction = direction.clone()
            return self._objective.hessian_product(self._direction)
        kept = self._direction.copy_(direction)
        if self._replay is None:
            self._product = torch.empty_like(kept)
            self._replay = self._recording.record(
                lambda: self._product.copy_(self._objective.hessian_product(kept))
            )
        self._replay()
        return self._product


def _objective(
    network: ActorCritic,
    batch: TrainingBatch,
    chosen: SampleChoice,
    rule: DetectorRule,
    loss: LossTerms | None,
    lane: Lane | None,
) -> Objective:
    if rule.objective != "total_loss":
        samples = _surrogate_samples(network, batch, chosen, rule, loss)
        return halved_surrogate(network, samples, lane)
    indices = chosen.indices  # which all count alike
    loss = _required(loss, rule)
    return NegativeTotalLoss(
        network,
        Minibatch(
            observation=batch.observation[indices],
            action=batch.action[indices],
            advantage=batch.advantage[indices],
            value_target=batch.value_target[indices],
            log_prob=batch.log_prob[indices],
            outputs=batch.outputs[indices],
            value=batch.value[indices],
        ),
        loss.hyperparameters,
        kl_coefficient=loss.kl_coefficient,
    )


def _surrogate_samples(
    network: ActorCritic,
    batch: TrainingBatch,
    chosen: SampleChoice,
    rule: DetectorRule,
    loss: LossTerms | None,
) -> Samples:
    """Return what the surrogate is over.

    In the advantages' place are ratios other than 1, and how much samples count.
    """
    indices, weights = chosen
    if rule.objective == "surrogate":
        slope = batch.advantage[indices]
    else:
        clip = _required(loss, rule).hyperparameters.clip
        slope = _behaviour_slope(network, batch, indices, clip=clip)
    return Samples(batch.observation[indices], batch.action[indices], slope * weights)


def _required(loss: LossTerms | None, rule: DetectorRule) -> LossTerms:
    if loss is None:
        raise ValueError(
            f"detector.objective is {rule.objective!r}, which is defined for ppo only: use "
            "'surrogate' with this algorithm"
        )
    return loss


def _behaviour_slope(
    network: ActorCritic, batch: TrainingBatch, indices: Tensor, *, clip: float
) -> Tensor:
    """Return what takes the advantages' place when ratios are to the policy that sampled # [n].

    With r = pi_theta / pi_old the Hessian of A r with respect to the policy's outputs is
    A r (H + g g^T), and 0 where the clipped branch counts: that of the surrogate at ratio 1 with
    A r, or 0, for A.
    """
    with torch.no_grad():
        outputs = network.policy_outputs(batch.observation[indices])
        log_prob = network.distribution.log_prob(outputs, batch.action[indices])
        ratio = torch.exp(log_prob - batch.log_prob[indices])
        return clipped_slope(ratio, batch.advantage[indices], clip)
