"""Curvature of the objective at the new policy: the paper's detector.

Extreme eigenvalues of the Hessian of the policy surrogate objective (Nitro paper, section 5.1), in
the convention of a function to be maximised and over the policy's parameters only; a job's
`DetectorRule` can ask for another objective. The gradient noise of the surrogate comes with it.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from learning.data.batch import picked
from learning.detectors.detector import PolicySamples
from learning.detectors.fragment_noise import fragment_noise
from learning.detectors.gradient_noise import trajectory_noise
from learning.detectors.lanczos import LanczosResult, MatVec, extreme_eigenvalues
from learning.detectors.sample_choice import chosen_samples
from learning.detectors.surrogate import Objective, Parameters, surrogate
from learning.losses.loss_terms import LossRule
from learning.losses.policy_terms import clipped_objective
from learning.losses.ppo import PpoRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.cuda_graphs import Recorder, Work, recorder
from shared.contracts.detector_rule import DetectorRule, ObjectiveName
from shared.contracts.rounds import Curvature
from shared.trajectory.columns import Columns

FIRST_PROBE_SEED = 0
"""Of the first starting vector: the same in every round, so that rounds differ only in their data.
"""


class HessianDetector:
    """Measures both ends of a Hessian's spectrum, and the gradient noise: a `Detector`."""

    def __init__(self, rule: DetectorRule) -> None:
        """Set the job's rule: objective, number of samples and number of products."""
        self._rule = rule

    def measure(self, policy: ActorCritic, samples: PolicySamples) -> Curvature | None:
        """Return the curvature at the present policy, and the gradient noise.

        Returns:
            None when the Hessian is not finite (a policy that diverged) or zero (no advantages).

        Raises:
            ValueError: The objective needs a loss the algorithm does not have.
        """
        start, batch = time.perf_counter(), samples.batch
        choice = chosen_samples(batch, self._rule, policy.distribution)
        chosen = choice.on(batch.observation.device)
        minibatch = picked(batch, chosen.indices)
        # The values' part of the whole loss has curvature even without advantages.
        if self._rule.objective != "total_loss" and not bool(minibatch.advantage.any()):
            return None
        function = _objective_function(
            self._rule.objective, policy, minibatch, chosen.weights, samples.rule
        )
        try:
            # The objective is made where its products are recorded: autograd goes back on the
            # stream that it came on.
            with recorder(policy.flat.device) as recording:
                whole = self._rule.objective == "total_loss"
                objective = Objective(policy, function, policy_only=not whole)
                found = self._widest_spectrum(objective, policy.flat, recording)
        except FloatingPointError:
            return None
        if found.lambda_max == found.lambda_min == 0.0:
            return None
        return Curvature(
            lambda_max=found.lambda_max,
            lambda_min=found.lambda_min,
            residual=found.residual,
            matvecs=found.matvecs,
            num_samples=len(chosen.indices),
            gradient_noise=trajectory_noise(
                policy, batch, num_trajectories=self._rule.num_trajectories
            ),
            fragment_noise=(
                None if samples.start is None else fragment_noise(policy, batch, samples.start)
            ),
            elapsed_s=time.perf_counter() - start,
        )

    def _widest_spectrum(
        self, objective: Objective, like: Tensor, recording: Recorder | None
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
                max_matvecs=self._rule.max_matvecs,
                tolerance=self._rule.tolerance,
                seed=FIRST_PROBE_SEED + probe,
                lean=lean,
                device=like.device,
                dtype=like.dtype,
            )
            for probe in range(self._rule.probes)
        ]
        return LanczosResult(
            lambda_max=max(result.lambda_max for result in results),
            lambda_min=min(result.lambda_min for result in results),
            residual=max(result.residual for result in results),
            matvecs=sum(result.matvecs for result in results),
        )


def _objective_function(
    name: ObjectiveName,
    policy: ActorCritic,
    minibatch: Columns[Tensor],
    weights: Tensor,
    rule: LossRule | None,
) -> Callable[[Parameters], Tensor]:
    """Return the objective of that name as a function of the policy's parameters.

    Raises:
        ValueError: The rule is not PPO's, and the objective needs one that is.
    """
    observation, action, advantage = minibatch.observation, minibatch.action, minibatch.advantage
    if name == "surrogate":
        return lambda parameters: surrogate(
            policy,
            parameters,
            observation=observation,
            action=action,
            advantage=advantage * weights,
        )
    if not isinstance(rule, PpoRule):
        raise ValueError(
            f"detector.objective is {name!r}, which is defined for ppo only: use 'surrogate' with "
            "this algorithm"
        )

    def behaviour(parameters: Parameters) -> Tensor:
        outputs = policy.outputs_at(parameters, observation)
        log_ratio = policy.distribution.log_prob(outputs, action) - minibatch.log_prob
        gains = clipped_objective(log_ratio, advantage, clip=rule.hyperparameters.clip)
        return (gains * weights).mean()

    def negative_loss(parameters: Parameters) -> Tensor:
        outputs = policy.outputs_at(parameters, observation)
        values = policy.values_at(parameters, observation)
        return -rule.loss(outputs, values, minibatch, policy.distribution)

    return behaviour if name == "behaviour" else negative_loss


class _ReplayedProduct:
    """Products with an objective's Hessian; all after the first replay a recording."""

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
