"""Proximal policy optimisation, bit-exact to repeat and to resume.

One update takes `num_epochs` passes over the round's samples, reshuffled for each pass, one Adam
step per minibatch. A step whose loss or gradient is not finite is skipped and counted; it changes
neither parameters nor moments.

With a linear decay the step size of round k is (1 - k / max_rounds) of the first round's, k counted
from 0. A job that is resumed with more rounds goes on along the line to its new end.

Equal state and equal trajectories give equal bits on one CPU type and thread count: the shuffling
has a generator of its own, and `state` holds everything the next update depends on.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.algorithms.saved_state import (
    generator_from,
    require_same_form,
    require_scalars,
)
from learning.cpu.second_process import SecondProcess
from learning.data.batch import TrainingBatch
from learning.data.batch_building import on_policy_batch
from learning.data.fragments import in_actor_order
from learning.data.normalisation import Normalisation
from learning.detectors.detector import PolicySamples
from learning.losses.ppo import PpoRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload, build_network, policy_payload
from learning.updates.network_steps import NetworkSteps, UpdateSchedule
from learning.updates.optimiser import AdamRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.trajectory import Trajectory

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
        max_rounds: int = 1,
        device: torch.device | str = "cpu",
        second_process: SecondProcess | None = None,
    ) -> None:
        """Initialise network and optimiser.

        Args:
            environment: What the network sees and does.
            hyperparameters: The job's full set.
            seed: Everything random follows from it.
            max_rounds: Updates until a decaying step size would be 0.
            device: Where to compute.
            second_process: May compute on a second core; changes no bit.
        """
        network_seed, shuffle_seed = np.random.SeedSequence(seed).generate_state(2, np.uint32)
        self._hyperparameters = hyperparameters
        self._network = build_network(
            environment, hyperparameters, seed=int(network_seed), device=device
        )
        self._generator = torch.Generator().manual_seed(int(shuffle_seed))
        self._kl_coefficient = hyperparameters.kl_coefficient
        self._last_batch: TrainingBatch | None = None
        self._normalisation = Normalisation.initial(environment, hyperparameters)
        self._max_rounds = max_rounds
        self._num_updates = 0
        self._steps = NetworkSteps(
            self._network,
            adam=AdamRule(
                learning_rate=hyperparameters.learning_rate,
                epsilon=hyperparameters.adam_epsilon,
                gradient_norm_max=hyperparameters.gradient_norm_max,
            ),
            passes=UpdateSchedule(
                num_epochs=hyperparameters.num_epochs,
                minibatch_size=hyperparameters.minibatch_size,
                normalise=hyperparameters.advantage_normalisation == "minibatch",
            ),
            process=second_process,
        )
        self._adam = self._steps.adam

    @property
    def network(self) -> ActorCritic:
        """The present policy and value function."""
        return self._network

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        arrays, metadata = policy_payload(self._network)
        statistics, bound = self._normalisation.payload()
        mapping = {"action_mapping": self._hyperparameters.action_mapping}
        return arrays | statistics, metadata | bound | mapping

    def update(self, trajectories: Sequence[Trajectory]) -> PolicyUpdate:
        """Improve the policy with one round of trajectories, in whatever order they arrived.

        Stats are means over the steps taken of: `policy_loss`, `value_loss`, `kl` (nats, old to
        new), `entropy` (nats), `clip_fraction` and `value_clip_fraction` (of samples), `loss`,
        `grad_norm` (before it is limited). Further `explained_variance` of the value targets by
        the values before the update, `behaviour_log_prob_error` (largest difference between an
        actor's log-probability and ours), `kl_coefficient` and `learning_rate` as used,
        `num_minibatches` and `skipped_steps`.

        Raises:
            ValueError: The trajectories do not make a batch.
            FloatingPointError: Not one gradient step was finite; the policy is as before.
        """
        ordered = in_actor_order(trajectories)
        following = self._normalisation.after(ordered)
        batch = on_policy_batch(
            ordered,
            self._network,
            discount=self._hyperparameters.discount,
            gae_lambda=self._hyperparameters.gae_lambda,
            # Observations as the actors saw them.
            normalisation=replace(self._normalisation, rewards=following.rewards),
        )
        learning_rate = self._learning_rate()
        self._adam.set_learning_rate(learning_rate)
        stats = self._passes(batch, ordered[0].policy_version) | _batch_stats(batch)
        stats |= {"learning_rate": learning_rate, "kl_coefficient": self._kl_coefficient}
        self._kl_coefficient = adapted_kl_coefficient(
            self._kl_coefficient,
            stats["kl"],
            target=self._hyperparameters.kl_target,
            maximum=self._hyperparameters.kl_coefficient_max,
        )
        self._normalisation = following
        self._num_updates += 1
        self._last_batch = batch
        return PolicyUpdate(stats=stats)

    def samples(self) -> PolicySamples | None:
        """Return the last update's samples; None where nothing was updated yet."""
        if self._last_batch is None:
            return None
        return PolicySamples(batch=self._last_batch, rule=self._rule)

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        arrays: StateArrays = {"generator": self._generator.get_state().numpy().copy()}
        arrays |= self._normalisation.arrays()
        for prefix, flat in self._buffers().items():
            for name, view in self._network.views_of(flat).items():
                arrays[f"{prefix}.{name}"] = view.detach().cpu().numpy().copy()
        scalars: StateScalars = {
            "adam_step": self._adam.steps,
            "kl_coefficient": self._kl_coefficient,
        }
        if self._hyperparameters.learning_rate_decay != "none":
            scalars["num_updates"] = self._num_updates
        return arrays, scalars

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: An array or scalar is missing or not of its form, or an array is unknown;
                nothing has been changed then.
        """
        own_arrays, own_scalars = self.state()
        require_same_form(own_arrays, arrays)
        require_scalars(own_scalars, scalars)
        normalisation = self._normalisation.restored(arrays)
        generator = generator_from(arrays["generator"])
        for prefix, flat in self._buffers().items():
            for name, view in self._network.views_of(flat).items():
                view.copy_(torch.from_numpy(np.array(arrays[f"{prefix}.{name}"])))
        self._generator = generator
        self._adam.steps = int(scalars["adam_step"])
        self._kl_coefficient = float(scalars["kl_coefficient"])
        self._num_updates = int(scalars.get("num_updates", 0))
        self._normalisation = normalisation
        self._last_batch = None

    def _learning_rate(self) -> float:
        initial = self._hyperparameters.learning_rate
        if self._hyperparameters.learning_rate_decay == "none":
            return initial
        return decayed_learning_rate(initial, self._num_updates, num_rounds=self._max_rounds)

    def _buffers(self) -> dict[str, Tensor]:
        return {"network": self._network.flat, **self._adam.flats}

    @property
    def _rule(self) -> PpoRule:
        return PpoRule(hyperparameters=self._hyperparameters, kl_coefficient=self._kl_coefficient)

    def _passes(self, batch: TrainingBatch, policy_version: int) -> dict[str, float]:
        stats = self._steps.take(
            batch, self._rule, generator=self._generator, policy_version=policy_version
        )
        if "loss" not in stats:
            raise FloatingPointError(
                f"loss or gradient was not finite in all {stats['skipped_steps']:.0f} steps of the "
                "update; a smaller learning_rate may help"
            )
        return stats


def decayed_learning_rate(initial: float, round_index: int, *, num_rounds: int) -> float:
    """Return the step size on the line from `initial` in round 0 to 0 in round `num_rounds`.

    From the last round on it stays as it is there: it never reaches 0.
    """
    return initial * (1.0 - min(round_index, num_rounds - 1) / num_rounds)


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
        return min(1.5 * coefficient, max(coefficient, maximum))
    if kl < 0.5 * target:
        return max(0.5 * coefficient, min(coefficient, KL_COEFFICIENT_MIN))
    return coefficient


def _batch_stats(batch: TrainingBatch) -> dict[str, float]:
    target, error = batch.value_target.double(), (batch.value_target - batch.value).double()
    variance = float(target.var(correction=0))
    explained = 1.0 - float(error.var(correction=0)) / variance if variance > 0 else 0.0
    gap = (batch.log_prob - batch.behaviour_log_prob).abs().max().nan_to_num()
    return {"explained_variance": explained, "behaviour_log_prob_error": float(gap)}
