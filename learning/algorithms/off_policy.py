"""What IMPACT and IMPALA share: batches out of a replay buffer, gradient steps, exact state.

An update draws one batch, has the algorithm's objective evaluate it with the present networks, and
takes `num_epochs` passes over its samples, reshuffled for each pass, one Adam step per minibatch.

Equal state and equal calls give equal bits on one CPU type and thread count: the shuffling has a
generator of its own, and `state` holds everything the next update depends on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.policy_update import PolicyUpdate, StateArrays, StateScalars
from learning.algorithms.ppo import decayed_learning_rate
from learning.algorithms.saved_state import (
    generator_from,
    require_same_form,
    require_scalars,
)
from learning.cpu.second_process import SecondProcess
from learning.data.batch import TrainingBatch, joined
from learning.data.fragments import Fragments
from learning.data.normalisation import Normalisation
from learning.data.replay_buffer import BufferedBatch, ReplayBuffer
from learning.detectors.detector import PolicySamples
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload, policy_payload
from learning.returns.gae import normalised
from learning.updates.network_steps import NetworkSteps, UpdateSchedule
from learning.updates.optimiser import AdamRule
from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.trajectory.trajectory import Trajectory

OffPolicyHyperparameters = ImpactHyperparameters | ImpalaHyperparameters

BARREN_BATCHES_MAX = 10
"""Batches in a row without a single finite gradient step after which the job gives up. A batch may
be one step, so one bad batch must not end a job."""

_BUFFER = "buffer."
_PRESENT, _FOLLOWING = "normalisation.", "following."


class Objective(Protocol):
    """What an algorithm makes of a batch; may have parameters and state of its own."""

    def batch(self, fragments: Fragments, normalisation: Normalisation) -> TrainingBatch:
        """Return the samples of some fragments with their advantages and value targets."""
        ...

    @property
    def rule(self) -> LossRule:
        """The loss that a batch is learned from with, now."""
        ...

    def after_batch(self, stats: Mapping[str, float]) -> dict[str, float]:
        """Take note that a batch was learned from; return stats to add to its means `stats`."""
        ...

    @property
    def step_scale(self) -> float:
        """What the step size is multiplied with, now."""
        ...

    @property
    def flats(self) -> dict[str, Tensor]:
        """Further parameters to save, in the layout of the network's: # [P] each."""
        ...

    def scalars(self) -> StateScalars:
        """Return the rest of its state."""
        ...

    def load_scalars(self, scalars: StateScalars) -> None:
        """Continue from what `scalars` returned, among others."""
        ...


class OffPolicyLearner:
    """Learns from replayed batches on one device: an `OffPolicyAlgorithm`."""

    def __init__(
        self,
        network: ActorCritic,
        objective: Objective,
        hyperparameters: OffPolicyHyperparameters,
        *,
        buffer: ReplayBuffer,
        normalisation: Normalisation,
        num_epochs: int,
        max_rounds: int,
        shuffle_seed: int,
        second_process: SecondProcess | None = None,
    ) -> None:
        """Start with the given network as policy version 0.

        Args:
            network: Learned in place.
            objective: Of the same network.
            hyperparameters: The job's full set.
            buffer: Empty.
            normalisation: Without statistics.
            num_epochs: Passes over a batch each time it is drawn.
            max_rounds: Rounds the job may have, for the decay of the step size.
            shuffle_seed: Of the minibatches.
            second_process: May compute on a second core; changes no bit.
        """
        self._network = network
        self._objective = objective
        self._hyperparameters = hyperparameters
        self._buffer = buffer
        self._normalisation = self._following = normalisation
        self._max_rounds = max_rounds
        self._generator = torch.Generator().manual_seed(shuffle_seed)
        self._steps = NetworkSteps(
            network,
            adam=AdamRule(
                learning_rate=hyperparameters.learning_rate,
                epsilon=hyperparameters.adam_epsilon,
                gradient_norm_max=hyperparameters.gradient_norm_max,
            ),
            passes=UpdateSchedule(
                num_epochs=num_epochs,
                minibatch_size=hyperparameters.minibatch_size,
                normalise=hyperparameters.advantage_normalisation == "minibatch",
            ),
            process=second_process,
        )
        self._adam = self._steps.adam
        self._policy_version = 0
        self._newest_round = 0
        self._barren_batches = 0
        self._fresh_batches: list[TrainingBatch] = []
        self._shown = False

    @property
    def network(self) -> ActorCritic:
        """The present policy and value function."""
        return self._network

    @property
    def ready(self) -> bool:
        """Whether `update` has a batch: one that was never used, or one to replay."""
        return self._buffer.ready

    @property
    def has_fresh(self) -> bool:
        """Whether a batch that was never used is waiting; `update` takes those first."""
        return self._buffer.has_fresh

    def policy_payload(self) -> PolicyPayload:
        """Return the present policy as the actors load it."""
        arrays, metadata = policy_payload(self._network)
        statistics, bound = self._normalisation.payload()
        mapping = {"action_mapping": self._hyperparameters.action_mapping}
        return arrays | statistics, metadata | bound | mapping

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """Take in trajectories, in this order; every full batch of them becomes fresh."""
        if trajectories:
            self._following = self._following.after(trajectories)
        self._buffer.add(trajectories)
        self._newest_round = max([self._newest_round, *(t.round for t in trajectories)])

    def flush(self) -> None:
        """Make a batch of the trajectories that wait, however few."""
        self._buffer.flush()

    def advance(self, policy_version: int) -> None:
        """Take note that the present policy is to be published as `policy_version`."""
        self._policy_version = policy_version
        self._normalisation = self._following

    def update(self) -> PolicyUpdate:
        """Improve the policy with one batch.

        Stats are means over the steps taken of the objective's terms and `grad_norm`; further
        `explained_variance` of the value targets by the values before the update,
        `policy_lag_mean` and `policy_lag_max` in versions, `fresh`, `learning_rate`,
        `num_minibatches`, `skipped_steps` and what the objective adds.

        Raises:
            RuntimeError: Not `ready`.
            FloatingPointError: None of the last BARREN_BATCHES_MAX batches had a finite gradient
                step; the policy is as it was before them.
        """
        draw = self._buffer.draw()
        # Observations as the present version sees them; of rewards the newest scale will do.
        batch = self._objective.batch(
            draw.fragments, replace(self._normalisation, rewards=self._following.rewards)
        )
        if self._hyperparameters.advantage_normalisation != "none":
            # Minibatches are normalised again; detectors see these, weighted.
            batch = replace(batch, advantage=normalised(batch.advantage))
        stats = self._passes(batch) | _batch_stats(batch) | self._draw_stats(draw)
        stats |= self._objective.after_batch(stats)
        if draw.uses == 1:
            self._remember(batch)
        return PolicyUpdate(stats=stats)

    def samples(self) -> PolicySamples | None:
        """Return the round's samples; None where nothing was updated yet.

        These are the batches used for the first time since the last call, with the advantages they
        had then; where there are none, those of the last call.
        """
        if not self._fresh_batches:
            return None
        self._shown = True
        return PolicySamples(batch=joined(self._fresh_batches), rule=self._objective.rule)

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        arrays = self._fixed_arrays()
        arrays |= {_BUFFER + name: array for name, array in self._buffer.state().items()}
        return arrays, self._scalars()

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: An array or scalar is missing or not of its form, or an array is unknown;
                nothing has been changed then.
        """
        fixed = {name: a for name, a in arrays.items() if not name.startswith(_BUFFER)}
        require_same_form(self._fixed_arrays(), fixed)
        require_scalars(self._scalars(), scalars)
        normalisation = self._normalisation.restored(_within(_PRESENT, arrays))
        following = self._following.restored(_within(_FOLLOWING, arrays))
        generator = generator_from(fixed["generator"])
        self._buffer = self._buffer.restored(_within(_BUFFER, arrays))
        self._normalisation, self._following = normalisation, following
        self._generator = generator
        for prefix, flat in self._flats().items():
            for name, view in self._network.views_of(flat).items():
                view.copy_(torch.from_numpy(np.array(fixed[f"{prefix}.{name}"])))
        self._load_scalars(scalars)
        self._fresh_batches = []

    def _remember(self, batch: TrainingBatch) -> None:
        if self._shown:
            self._fresh_batches, self._shown = [], False
        self._fresh_batches.append(batch.weighted())

    def _fixed_arrays(self) -> StateArrays:
        """Return the arrays that are there, in one shape, at any time."""
        arrays: StateArrays = {"generator": self._generator.get_state().numpy().copy()}
        for prefix, flat in self._flats().items():
            for name, view in self._network.views_of(flat).items():
                arrays[f"{prefix}.{name}"] = view.detach().cpu().numpy().copy()
        arrays |= {_PRESENT + name: a for name, a in self._normalisation.arrays().items()}
        return arrays | {_FOLLOWING + name: a for name, a in self._following.arrays().items()}

    def _flats(self) -> dict[str, Tensor]:
        return {"network": self._network.flat, **self._adam.flats, **self._objective.flats}

    def _scalars(self) -> StateScalars:
        return {
            "adam_step": self._adam.steps,
            "policy_version": self._policy_version,
            "newest_round": self._newest_round,
            "barren_batches": self._barren_batches,
            **self._objective.scalars(),
        }

    def _load_scalars(self, scalars: StateScalars) -> None:
        self._adam.steps = int(scalars["adam_step"])
        self._policy_version = int(scalars["policy_version"])
        self._newest_round = int(scalars["newest_round"])
        self._barren_batches = int(scalars["barren_batches"])
        self._objective.load_scalars(scalars)

    def _passes(self, batch: TrainingBatch) -> dict[str, float]:
        learning_rate = self._learning_rate()
        self._adam.set_learning_rate(learning_rate)
        stats = self._steps.take(
            batch,
            self._objective.rule,
            generator=self._generator,
            policy_version=self._policy_version,
        )
        self._barren_batches = 0 if "loss" in stats else self._barren_batches + 1
        if self._barren_batches >= BARREN_BATCHES_MAX:
            raise FloatingPointError(
                f"loss or gradient was not finite in any step of the last {BARREN_BATCHES_MAX} "
                "batches; a smaller learning_rate may help"
            )
        return stats | {"learning_rate": learning_rate}

    def _learning_rate(self) -> float:
        scaled = self._hyperparameters.learning_rate * self._objective.step_scale
        if self._hyperparameters.learning_rate_decay == "none":
            return scaled
        return decayed_learning_rate(scaled, self._newest_round, num_rounds=self._max_rounds)

    def _draw_stats(self, draw: BufferedBatch) -> dict[str, float]:
        lag = self._policy_version - draw.fragments.policy_version
        return {
            "policy_lag_mean": float(lag.mean()),
            "policy_lag_max": float(lag.max()),
            "fresh": float(draw.uses == 1),
        }


def _batch_stats(batch: TrainingBatch) -> dict[str, float]:
    target, error = batch.value_target.double(), (batch.value_target - batch.value).double()
    variance = float(target.var(correction=0))
    explained = 1.0 - float(error.var(correction=0)) / variance if variance > 0 else 0.0
    return {"explained_variance": explained}


def _within(prefix: str, arrays: StateArrays) -> StateArrays:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }
