"""All gradient steps over a batch, by the method that suits the network and the machine.

Gaussian policies over vectors are stepped in NumPy on a CPU: in this process, or with the value
function's half in a second one. All others are stepped in torch.
Both ways in NumPy give the same bits. In a group of ranks each process computes the
gradients of its own rows, and all take the steps.
"""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from learning.arrays import Array, Floats
from learning.cpu.halved_steps import (
    MIN_MULTIPLICATIONS,
    PolicyHalf,
    ValueHalf,
    take_halved_steps,
)
from learning.cpu.second_process import SecondProcess, SecondProcessLostError
from learning.data.minibatch import ShuffledMinibatches
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.networks.step_terms import StepTerms
from learning.updates.cuda_graphs import Unrecorded, recorder
from learning.updates.gradient import GradientSource, Group
from learning.updates.gradient_steps import StepsTaken, take_steps, take_watched_steps
from learning.updates.network_gradients import NetworkGradients
from learning.updates.optimiser import AdamRule, FlatAdam
from learning.updates.steps import PolicyGradientHyperparameters, StepsBuilder
from shared.contracts.environment_spec import EnvironmentSpec
from shared.trajectory.columns import Columns

_LOG = logging.getLogger(__name__)


def adam_of(network: ActorCritic, hyperparameters: PolicyGradientHyperparameters) -> FlatAdam:
    """Return a network's optimiser, without moments."""
    rule = AdamRule(
        learning_rate=hyperparameters.learning_rate,
        epsilon=hyperparameters.adam_epsilon,
        gradient_norm_max=hyperparameters.gradient_norm_max,
    )
    pieces = [slice(half.start, half.end) for half in network.halves() or ()] or [slice(None)]
    return FlatAdam(network.flat, rule=rule, pieces=pieces)


class NetworkSteps:
    """Steps one network."""

    def __init__(
        self,
        network: ActorCritic,
        hyperparameters: PolicyGradientHyperparameters,
        *,
        process: SecondProcess | None = None,
    ) -> None:
        """Start without moments.

        Args:
            network: Stepped in place.
            hyperparameters: The job's.
            process: May take the value function's steps.
        """
        self._network = network
        self._num_epochs = hyperparameters.num_epochs
        self._minibatch_size = hyperparameters.minibatch_size
        self._normalise = hyperparameters.advantage_normalisation == "minibatch"
        self._process = process
        self._gradient = network.new_gradient()
        self._halves = network.halves()
        self.adam = adam_of(network, hyperparameters)

    @classmethod
    def beside(cls, process: SecondProcess | None) -> StepsBuilder:
        """Return a `StepsBuilder` whose steps a second process may share."""

        def build(
            network: ActorCritic,
            _environment: EnvironmentSpec,
            hyperparameters: PolicyGradientHyperparameters,
            /,
        ) -> NetworkSteps:
            return cls(network, hyperparameters, process=process)

        return build

    def take(
        self,
        batch: Columns[Tensor],
        rule: LossRule,
        *,
        generator: torch.Generator,
        group: Group | None = None,
    ) -> dict[str, float]:
        """Take all steps over a batch.

        Args:
            batch: The samples.
            rule: The loss.
            generator: Orders are drawn from it.
            group: Whose other ranks take the same steps at the same time; None for this process
                alone.

        Returns:
            `num_minibatches` and, of these, `skipped_steps`; if a step was taken, means over the
            steps taken of the rule's stats, `loss` and `grad_norm`.
        """
        steps = self._steps(batch, rule, generator, group)
        samples = batch.num_samples * self._num_epochs / (steps.num_taken + steps.num_skipped)
        return steps.stats(rule, samples_per_step=samples)

    def scalars(self) -> dict[str, bool | int | float | str]:
        """Return what is to be saved beside the optimiser: nothing."""
        return {}

    def load_scalars(self, scalars: Mapping[str, bool | int | float | str]) -> None:
        """Continue from what `scalars` returned, among others."""

    def _steps(
        self,
        batch: Columns[Tensor],
        rule: LossRule,
        generator: torch.Generator,
        group: Group | None,
    ) -> StepsTaken:
        minibatches = ShuffledMinibatches(
            batch,
            num_epochs=self._num_epochs,
            minibatch_size=self._minibatch_size,
            generator=generator,
            normalise=self._normalise,
            rows=slice(None) if group is None else group.rows,
        )
        network = self._network

        def of_all(own: GradientSource[Columns[Array]]) -> GradientSource[Columns[Array]]:
            if group is None:
                return own
            return group.of_all(
                own,
                rule=rule,
                like=network.flat,
                sizes=minibatches.sizes(),
            )

        with network.without_graph():
            terms = network.array_terms()
            if terms is None:
                by_torch = NetworkGradients(
                    network.differentiate,
                    rule,
                    network.distribution,
                    into=self._gradient,
                )
                with recorder(network.flat.device) as recording:
                    # Steps that wait for other processes, or with unknown operations, are not
                    # recorded.
                    is_alone = group is None and network.is_ours
                    alone = recording if is_alone else recording and Unrecorded()
                    return take_steps(
                        minibatches.tensors(), self.adam, of_all(by_torch), recorder=alone
                    )
            orders = [*minibatches.orders()]
            offered = self._offered(batch) if group is None else None
            if offered is not None:
                halves = self._work(batch, minibatches, orders, rule, terms)
                try:
                    return take_halved_steps(*halves, self.adam, offered)
                except SecondProcessLostError as error:
                    _LOG.warning("going on without a second process", extra={"why": str(error)})
            by_numpy = NetworkGradients(
                network.differentiate_arrays,
                rule,
                terms,
                into=self._gradient,
            )
            return take_watched_steps(minibatches.arrays(orders), self.adam, of_all(by_numpy))

    def _offered(self, batch: Columns[Tensor]) -> SecondProcess | None:
        """Return the second process if it saves more time than sending the samples costs."""
        work = self._network.separate_multiplications * self._num_epochs
        pays = work * batch.num_samples >= MIN_MULTIPLICATIONS
        return self._process if pays and self._process and self._process.offers() else None

    def _work(
        self,
        batch: Columns[Tensor],
        minibatches: ShuffledMinibatches,
        orders: Sequence[Tensor],
        rule: LossRule,
        terms: StepTerms[Floats],
    ) -> tuple[PolicyHalf, ValueHalf]:
        assert self._halves is not None, "a network that NumPy steps has two"
        policy, value = self._halves
        return (
            PolicyHalf(
                half=policy,
                adam=self.adam.part(policy.start, policy.end),
                rule=rule,
                terms=terms,
                minibatches=minibatches,
                orders=orders,
            ),
            ValueHalf(
                half=value,
                adam=self.adam.part(value.start, value.end),
                rule=rule,
                minibatch_size=self._minibatch_size,
                observation=batch.observation.numpy(),
                value_target=batch.value_target.numpy(),
                value=batch.value.numpy(),
                orders=np.stack([order.numpy() for order in orders]),
            ),
        )
