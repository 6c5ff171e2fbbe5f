"""The common part of PPO, IMPACT and IMPALA: a network, its optimiser, statistics, exact state.

An update takes `num_epochs` passes over a batch, reshuffled for each pass, one Adam step per
minibatch. A step whose loss or gradient is not finite is skipped and counted; it changes neither
parameters nor moments.

With a linear decay the step size of round k is (1 - k / max_rounds) of the first round's, k counted
from 0; with a cosine it is (1 + cos(pi k / max_rounds)) / 2 of it. So is the weight of the entropy.
A job that is resumed with more rounds keeps the step size of its last round, or begins a new
schedule over them.

Equal state and equal calls give equal bits on one CPU type and thread count: the shuffling has its
own generator, and `state` holds everything that the next update depends on.
"""

import math
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from learning.algorithms.network_steps import NetworkSteps
from learning.algorithms.policy_update import StateArrays, StateScalars
from learning.algorithms.saved_state import generator_from, require_same_form, require_scalars
from learning.data.normalisation import Normalisation
from learning.data.transitions import Replay
from learning.detectors.detector import UpdateStart
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.building import PolicyPayload, build_network, policy_payload
from learning.updates.steps import PolicyGradientHyperparameters, StepsBuilder
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.common import Decay
from shared.trajectory.columns import Columns

H = TypeVar("H", bound=PolicyGradientHyperparameters)


class GradientLearner(Generic[H]):
    """A network trained by gradient steps on one device."""

    replay: Replay | None = None
    """None: `state` holds everything."""

    def __init__(
        self,
        environment: EnvironmentSpec,
        hyperparameters: H,
        *,
        seed: int,
        max_rounds: int = 1,
        first_round: int = 0,
        device: torch.device | str = "cpu",
        steps: StepsBuilder | None = None,
    ) -> None:
        """Initialise network and optimiser.

        Args:
            environment: Its observations and actions.
            hyperparameters: The job's full set.
            seed: Of all random numbers.
            max_rounds: Round in which a decaying step size would be 0.
            first_round: Round up to which it does not decay.
            device: Where to compute.
            steps: Builds the gradient steps; None uses this process alone.
        """
        network_seed, shuffle_seed = np.random.SeedSequence(seed).generate_state(2, np.uint32)
        self._hyperparameters = hyperparameters
        self._network = build_network(
            environment, hyperparameters, seed=int(network_seed), device=device
        )
        self._generator = torch.Generator().manual_seed(int(shuffle_seed))
        self._normalisation = Normalisation.initial(environment, hyperparameters)
        self._first_round, self._max_rounds = first_round, max_rounds
        build = steps or NetworkSteps.beside(None)
        self._steps = build(self._network, environment, hyperparameters)
        self._adam = self._steps.adam
        self._start()

    def _start(self) -> None:
        """Set up the algorithm's own attributes."""

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

    def state(self) -> tuple[StateArrays, StateScalars]:
        """Return a copy of everything needed to resume exactly: arrays, and JSON scalars."""
        arrays: StateArrays = {"generator": self._generator.get_state().numpy().copy()}
        for prefix, flat in self._flats().items():
            for name, view in self._network.views_of(flat).items():
                arrays[f"{prefix}.{name}"] = view.detach().cpu().numpy().copy()
        return arrays | self._statistics(), self._scalars()

    def load_state(self, arrays: StateArrays, scalars: StateScalars) -> None:
        """Continue from what `state` returned.

        Raises:
            ValueError: An array or scalar is missing or not of its form, or an array is unknown;
                nothing has been changed then.
        """
        own_arrays, own_scalars = GradientLearner.state(self)
        require_same_form(own_arrays, arrays)
        require_scalars(own_scalars, scalars)
        generator = generator_from(arrays["generator"])
        # The last step that can fail; it changes all or nothing, and no state changed before it.
        self._load_statistics(arrays)
        self._generator = generator
        for prefix, flat in self._flats().items():
            for name, view in self._network.views_of(flat).items():
                view.copy_(torch.from_numpy(np.array(arrays[f"{prefix}.{name}"])))
        self._load_scalars(scalars)

    def begin_from(self, arrays: StateArrays, scalars: StateScalars, *, optimiser: bool) -> None:
        """Begin with the weights and statistics of another job of any algorithm.

        Raises:
            ValueError: They do not fit; nothing has been changed then.
        """
        flats = {"network": self._network.flat} | (self._adam.flats if optimiser else {})
        views = {
            f"{prefix}.{name}": view
            for prefix, flat in flats.items()
            for name, view in self._network.views_of(flat).items()
        }
        own = {name: view.detach().cpu().numpy() for name, view in views.items()}
        require_same_form(own, {n: a for n, a in arrays.items() if n.partition(".")[0] in flats})
        if optimiser:
            require_scalars({"adam_step": self._adam.steps}, scalars)
        normalisation = self._normalisation.begun_from(arrays)
        for name, view in views.items():
            view.copy_(torch.from_numpy(np.array(arrays[name])))
        if optimiser:
            self._adam.steps = int(scalars["adam_step"])
        self._begin_with(normalisation)

    def _begin_with(self, normalisation: Normalisation) -> None:
        """Adapt statistics to weights that were just copied."""
        self._normalisation = normalisation

    def _flats(self) -> dict[str, Tensor]:
        """Return all parameters to save, in the layout of the network's: # [P] each."""
        return {"network": self._network.flat, **self._adam.flats}

    def _scalars(self) -> StateScalars:
        """Return the scalars to save."""
        return {"adam_step": self._adam.steps, **self._steps.scalars()}

    def _load_scalars(self, scalars: StateScalars) -> None:
        """Continue from what `_scalars` returned, among others."""
        self._adam.steps = int(scalars["adam_step"])
        self._steps.load_scalars(scalars)

    def _statistics(self) -> StateArrays:
        """Return the running statistics to save."""
        return self._normalisation.arrays()

    def _load_statistics(self, arrays: StateArrays) -> None:
        """Continue from what `_statistics` returned, among others."""
        self._normalisation = self._normalisation.restored(arrays)

    def _decayed(self, learning_rate: float, round_index: int) -> float:
        """Return the step size of a round, given that of the first.

        After the last round it stays constant: it never reaches 0.
        """
        return learning_rate * self._left(self._hyperparameters.learning_rate_decay, round_index)

    def _in_round(self, round_index: int) -> H:
        """Return the hyper-parameters of a round's loss: the weight of the entropy may decay."""
        first = self._hyperparameters
        if first.entropy_decay == "none":
            return first
        weight = first.entropy_coefficient * self._left(first.entropy_decay, round_index)
        return cast(H, first.model_copy(update={"entropy_coefficient": weight}))

    def _left(self, decay: Decay, round_index: int) -> float:
        """Return the remaining share of a decaying value in a round."""
        first, end = self._first_round, self._max_rounds
        passed = max(0, min(round_index, end - 1) - first) / (end - first)
        if decay == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * passed))
        return 1.0 - passed if decay == "linear" else 1.0

    def _update_start(self) -> UpdateStart | None:
        """Return the next update's start; None before the first update."""
        sizes = self._adam.step_sizes()
        if sizes is None:
            return None
        return UpdateStart(parameters=self._network.flat.clone(), step_sizes=sizes)

    def _take_steps(
        self, batch: Columns[Tensor], rule: LossRule, *, learning_rate: float
    ) -> dict[str, float]:
        """Take all steps over a batch.

        Returns:
            The stats of `NetworkSteps.take`, `explained_variance` of the value targets by the
            values before the steps, and `learning_rate`.
        """
        self._adam.set_learning_rate(learning_rate)
        stats = self._steps.take(batch, rule, generator=self._generator)
        target, error = batch.value_target.double(), (batch.value_target - batch.value).double()
        variance = float(target.var(correction=0))
        explained = 1.0 - float(error.var(correction=0)) / variance if variance > 0 else 0.0
        return stats | {"explained_variance": explained, "learning_rate": learning_rate}
