"""`nitro.measure_curvature`: Nitro's detector for any training loop.

It returns the learner's measurement after an update: both ends of the spectrum of the policy
surrogate's Hessian, and the noise of its gradient. `pool.report(curvature=...)` reports it to the
scaling policy. It needs torch, on the CPU.

Legend: `T` steps, `n` columns, N = T * n samples, D distribution parameters.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from learning.detectors.detector import PolicySamples, UpdateStart
from learning.detectors.hessian import HessianDetector
from learning.networks.policy_alone import ModuleAlone, PolicyAlone
from nitro.errors import CommandError
from nitro.pool.batch import Array, Batch
from nitro.pool.policy import Policy
from nitro.pool.policy_maps import Module, PolicyMap, policy_of
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.rounds import Curvature
from shared.trajectory.columns import Columns

_DISCOUNT = 0.99


def measure_curvature(
    module: Module,
    batch: Batch,
    advantages: Any = None,
    *,
    policy_map: PolicyMap | str | None = None,
    detector: DetectorRule | None = None,
) -> Curvature | None:
    """Measure the surrogate objective's curvature at a policy, on a batch.

    Args:
        module: The policy after the update, as `ActorPool.collect` takes it.
        batch: The batch of the update.
        advantages: Of each step, [T, n], an array or a tensor. Default: the discounted
            rewards-to-go in the fragment, minus their mean at each step.
        policy_map: Where the policy is in the module, as for `ActorPool`.
        detector: Numbers of samples and of products; default: as in a job.

    Returns:
        `lambda_max`, `lambda_min` and `residual`; `gradient_noise` between at most 16 actors; and
        `fragment_noise` at the policy that collected the batch, in the plain norm, for the scaling
        policy `marginal`. None if a value is not finite, or all advantages are 0.

    Raises:
        PolicyNotSupportedError: Actors cannot run the policy.
        CommandError: The advantages have another shape.
    """
    environment = batch.environment
    policy = policy_of(module, policy_map, environment=environment)
    now, before = (_network(each, environment) for each in (policy, batch.policy))
    samples = _samples(batch, _advantages(batch, advantages), before)
    start = UpdateStart(parameters=before.flat, step_sizes=torch.ones_like(before.flat))
    rule = detector or DetectorRule()
    return HessianDetector(rule).measure(now, PolicySamples(batch=samples, start=start))


def _network(policy: Policy, environment: EnvironmentSpec) -> PolicyAlone:
    spec = policy.numpy(environment).spec  # refuses a policy that does not fit
    arrays, _ = policy.payload(environment)
    if policy.graph is not None:
        return ModuleAlone(spec, arrays, policy.graph.module)
    return PolicyAlone(spec, arrays)


def _samples(batch: Batch, advantages: Array, before: PolicyAlone) -> Columns[Tensor]:
    """Return a batch's samples for the detector, column after column."""
    seen = batch.policy.seen(batch.observations, batch.environment)
    observation, action, log_prob, advantage = (
        _by_column(each) for each in (seen, batch.actions, batch.log_probs, advantages)
    )
    nothing = torch.zeros_like(log_prob)
    return Columns(
        observation=observation,
        action=action,
        advantage=advantage,
        value_target=nothing,
        value=nothing,
        log_prob=log_prob,
        outputs=before.policy_outputs(observation).detach(),
        behaviour_log_prob=log_prob,
        # An actor's result counts as one fragment, for any number of environments, like in prices.
    ).of_trajectories(len(np.unique(batch.actors)))


def _by_column(array: Array) -> Tensor:
    """Return steps [T, n, ...] as samples # [N, ...], column after column."""
    turned = np.swapaxes(array, 0, 1)
    return torch.tensor(np.ascontiguousarray(turned).reshape(-1, *array.shape[2:]))


def _advantages(batch: Batch, given: Any) -> Array:
    """Return advantages [T, n] float32."""
    if given is None:
        return _rewards_to_come(batch)
    values = given.detach().cpu().numpy() if hasattr(given, "detach") else given
    advantages = np.asarray(values, np.float32)
    if advantages.shape != batch.rewards.shape:
        raise CommandError(
            f"advantages: have shape {advantages.shape}, and the batch's steps are "
            f"{batch.rewards.shape}"
        )
    return advantages


def _rewards_to_come(batch: Batch) -> Array:
    """Return the discounted rewards-to-go, minus their mean at each step."""
    to_come = np.zeros_like(batch.rewards)
    following = np.zeros_like(batch.rewards[0])
    for t in reversed(range(len(to_come))):
        goes_on = ~(batch.terminated[t] | batch.truncated[t])
        following = batch.rewards[t] + _DISCOUNT * following * goes_on
        to_come[t] = following
    centred: Array = to_come - to_come.mean(axis=1, keepdims=True)
    return centred
