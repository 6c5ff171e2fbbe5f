"""Proximal policy optimisation with an adaptive KL penalty, bit-exact to repeat and to resume.

One update takes `num_epochs` passes over the round's samples, reshuffled for each pass, one Adam
step per minibatch. A step whose loss or gradient is not finite is skipped and counted; it changes
neither parameters nor moments.

Equal state and equal trajectories give equal bits on one CPU type and thread count: the shuffling
has a generator of its own, and `state` holds everything the next update depends on.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from services.learner.algorithms.minibatch import Minibatch, shuffled_minibatches
from services.learner.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from services.learner.algorithms.ppo_loss import STATS, ppo_gradient
from services.learner.batch import TrainingBatch, build_batch
from services.learner.curvature import measure_curvature
from services.learner.networks import ActorCritic, PolicyPayload, build_network, policy_payload
from shared.contracts import Curvature
from shared.environment_spec import EnvironmentSpec
from shared.hyperparameters import PpoHyperparameters
from shared.job_spec import DetectorRule
from shared.trajectory import Trajectory

KL_COEFFICIENT_MIN = 1e-6
"""Lower bound of the adapted coefficient: from 0 no number of doublings would bring it back."""


class Ppo:
    """PPO on one device."""

    def __init__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: PpoHyperparameters,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Initialise network and optimiser; everything random follows from `seed`."""
        network_seed, shuffle_seed = np.random.SeedSequence(seed).generate_state(2, np.uint32)
        self._hyperparameters = hyperparameters
        self._network = build_network(
            environment, hyperparameters, seed=int(network_seed), device=device
        )
        self._generator = torch.Generator().manual_seed(int(shuffle_seed))
        self._kl_coefficient = hyperparameters.kl_coefficient
        self._last_batch: TrainingBatch | None = None

        parameters = self._network.flat
        self._gradient = self._network.new_gradient()
        parameters.grad = self._gradient.flat
        self._adam = torch.optim.Adam([parameters], lr=hyperparameters.learning_rate, fused=True)
        # Made here rather than at the first step, so that the state has one form at any time.
        self._moments = {
            "step": torch.zeros((), device=device),
            "exp_avg": torch.zeros_like(parameters),
            "exp_avg_sq": torch.zeros_like(parameters),
        }
        self._adam.state[parameters] = self._moments

    @property
    def network(self) -> ActorCritic:
        """The present policy and value function."""
        return self._network

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        return policy_payload(self._network)

    def update(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in whatever order they arrived.

        Stats are means over the steps taken of: `policy_loss`, `value_loss`, `kl` (nats, old to
        new), `entropy` (nats), `clip_fraction` and `value_clip_fraction` (of samples), `loss`,
        `grad_norm`. Further `explained_variance` of the value targets by the values before the
        update, `behaviour_log_prob_error` (largest difference between an actor's log-probability
        and ours), `kl_coefficient` as used, `num_minibatches` and `skipped_steps`.

        Raises:
            ValueError: The trajectories do not make a batch.
            FloatingPointError: Not one gradient step was finite; the policy is as before.
        """
        batch = build_batch(
            trajectories,
            self._network,
            discount=self._hyperparameters.discount,
            gae_lambda=self._hyperparameters.gae_lambda,
        )
        stats = self._passes(batch) | _batch_stats(batch)
        stats["kl_coefficient"] = self._kl_coefficient
        self._kl_coefficient = adapted_kl_coefficient(
            self._kl_coefficient,
            stats["kl"],
            target=self._hyperparameters.kl_target,
            maximum=self._hyperparameters.kl_coefficient_max,
        )
        self._last_batch = batch
        return PolicyUpdate(stats=stats)

    def curvature(self, rule: DetectorRule) -> Curvature | None:
        """Measure the surrogate objective at the present policy on the last update's samples.

        Returns:
            None when it cannot be measured (see `measure_curvature`) or nothing was updated yet.
        """
        if self._last_batch is None:
            return None
        return measure_curvature(self._network, self._last_batch, rule=rule)

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        arrays: StateArrays = {"generator": self._generator.get_state().numpy().copy()}
        for prefix, flat in self._buffers().items():
            for name, view in self._network.views_of(flat).items():
                arrays[f"{prefix}.{name}"] = view.detach().cpu().numpy().copy()
        scalars: StateScalars = {
            "adam_step": int(self._moments["step"].item()),
            "kl_coefficient": self._kl_coefficient,
        }
        return arrays, scalars

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: An array or scalar is missing, unknown, of the wrong shape or no number;
                nothing has been changed then.
        """
        own_arrays, own_scalars = self.state()
        _require_same_names("array", own_arrays, arrays)
        _require_same_names("scalar", own_scalars, scalars)
        for name, own in own_arrays.items():
            if own.shape != arrays[name].shape or own.dtype != arrays[name].dtype:
                raise ValueError(
                    f"state array {name!r} is {arrays[name].dtype}{list(arrays[name].shape)}, "
                    f"this network needs {own.dtype}{list(own.shape)}"
                )
        adam_step, kl_coefficient = float(scalars["adam_step"]), float(scalars["kl_coefficient"])
        for prefix, flat in self._buffers().items():
            for name, view in self._network.views_of(flat).items():
                view.copy_(torch.from_numpy(np.array(arrays[f"{prefix}.{name}"])))
        self._generator.set_state(torch.from_numpy(np.array(arrays["generator"])))
        self._moments["step"].fill_(adam_step)
        self._kl_coefficient = kl_coefficient
        self._last_batch = None

    def _buffers(self) -> dict[str, Tensor]:
        return {
            "network": self._network.flat,
            "adam_exp_avg": self._moments["exp_avg"],
            "adam_exp_avg_sq": self._moments["exp_avg_sq"],
        }

    def _passes(self, batch: TrainingBatch) -> dict[str, float]:
        minibatches = shuffled_minibatches(
            batch,
            num_epochs=self._hyperparameters.num_epochs,
            minibatch_size=self._hyperparameters.minibatch_size,
            generator=self._generator,
        )
        with torch.no_grad():
            steps = [self._gradient_step(minibatch) for minibatch in minibatches]
        taken = [step for step in steps if step is not None]
        if not taken:
            raise FloatingPointError(
                f"loss or gradient was not finite in all {len(steps)} steps of the update; "
                "a smaller learning_rate may help"
            )
        means = torch.stack(taken).double().mean(0).tolist()
        return dict(zip((*STATS, "grad_norm"), means, strict=True)) | {
            "num_minibatches": float(len(steps)),
            "skipped_steps": float(len(steps) - len(taken)),
        }

    def _gradient_step(self, minibatch: Minibatch) -> Tensor | None:
        """Take one Adam step; return its stats # [8], or None if it was skipped as not finite."""
        forward = self._network.run(minibatch.observation)
        gradient = ppo_gradient(
            forward.outputs,
            forward.value,
            minibatch,
            self._network.distribution,
            self._hyperparameters,
            kl_coefficient=self._kl_coefficient,
        )
        self._network.backward(
            forward,
            d_outputs=gradient.outputs,
            d_value=gradient.value,
            gradient=self._gradient,
        )
        norm = torch.linalg.vector_norm(self._gradient.flat)
        stats = torch.cat((gradient.stats, norm.unsqueeze(0)))
        if not math.isfinite(stats.sum().item()):
            return None
        self._adam.step()
        return stats


def adapted_kl_coefficient(
    coefficient: float, kl: float, *, target: float, maximum: float
) -> float:
    """Return the next update's KL coefficient, steering the mean KL towards `target`.

    RLlib's rule: x1.5 above twice the target, x0.5 below half of it. RLlib has no bounds; ours are
    `maximum` and KL_COEFFICIENT_MIN. A coefficient of 0 means the term is not used, and stays.
    """
    if coefficient == 0.0:
        return 0.0
    if kl > 2.0 * target:
        return min(1.5 * coefficient, maximum)
    if kl < 0.5 * target:
        return max(0.5 * coefficient, min(coefficient, KL_COEFFICIENT_MIN))
    return coefficient


def _batch_stats(batch: TrainingBatch) -> dict[str, float]:
    target, error = batch.value_target.double(), (batch.value_target - batch.value).double()
    variance = float(target.var(correction=0))
    explained = 1.0 - float(error.var(correction=0)) / variance if variance > 0 else 0.0
    gap = (batch.log_prob - batch.behaviour_log_prob).abs().max().nan_to_num()
    return {"explained_variance": explained, "behaviour_log_prob_error": float(gap)}


def _require_same_names(what: str, expected: Iterable[str], found: Iterable[str]) -> None:
    missing, unknown = set(expected) - set(found), set(found) - set(expected)
    if missing or unknown:
        raise ValueError(
            f"state has the wrong {what}s: missing {sorted(missing)}, unknown {sorted(unknown)}"
        )
