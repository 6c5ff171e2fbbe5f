"""Functions in this process: gradients by the function's own code, in any order."""

from collections.abc import Callable, Sequence

from learning.aggregation.described import LossInWords, NetworkLayout
from learning.aggregation.function_steps import FunctionSteps, LostCall
from learning.aggregation.mlp_gradient import function_gradient
from learning.aggregation.weighting import Arrived
from learning.algorithms.ppo import Ppo
from learning.arrays import Floats
from learning.losses.loss_terms import LossRule
from learning.networks.actor_critic import ActorCritic
from learning.updates.steps import PolicyGradientHyperparameters
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.gradients import GradientCall, GradientRecord
from shared.contracts.learner_functions import LearnerFunctions
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.trajectory.columns import Columns
from tests.learning.trajectories import CONTINUOUS

Choose = Callable[[Sequence[GradientCall]], int]
"""Which of the calls in flight answers next, by its place."""


def in_order(_calls: Sequence[GradientCall]) -> int:
    """Answer the oldest."""
    return 0


class MemoryDesk:
    """A `GradientDesk` whose functions answer one at a time, in the order that `choose` says."""

    def __init__(self, functions: LearnerFunctions, choose: Choose = in_order) -> None:
        self.functions = functions
        self.choose = choose
        self.weights: dict[int, tuple[Floats, str]] = {}
        self.in_flight: list[GradientCall] = []
        self.asked: list[GradientCall] = []
        self.records: list[GradientRecord] = []
        self.lose: Callable[[GradientCall], LostCall | None] = lambda _call: None

    def steps(
        self,
        network: ActorCritic,
        _environment: EnvironmentSpec,
        hyperparameters: PolicyGradientHyperparameters,
        /,
    ) -> FunctionSteps:
        """Return the steps of a network: a `StepsBuilder`."""
        halves = network.halves()
        assert halves is not None
        self.network = NetworkLayout.of(*halves)
        return FunctionSteps(network, self, self.functions, hyperparameters)

    def begin(self, slices: Sequence[Columns[Floats]]) -> None:
        self.slices = slices
        self.asked = []

    def publish(self, version: int, flat: Floats, rule: LossRule, *, forget: Sequence[int]) -> None:
        for old in forget:
            self.weights.pop(old, None)
        said = LossInWords.of(rule, self.functions).model_dump_json()
        self.weights[version] = flat.copy(), said

    def ask(self, calls: Sequence[GradientCall]) -> None:
        self.in_flight += calls
        self.asked += calls

    def wait(self) -> Sequence[Arrived | LostCall]:
        call = self.in_flight.pop(self.choose(self.in_flight))
        return [self.lose(call) or self.computed(call)]

    def computed(self, call: GradientCall) -> Arrived:
        """Return what a function answers."""
        flat, said = self.weights[call.base]
        loss = LossInWords.read(said)
        network = NetworkLayout.read(self.network.model_dump_json()).network()
        others = [self.weights[version][0] for version in call.others]
        samples = self.slices[call.call]
        gradient, stats = function_gradient(
            network, flat, others, samples, loss.rule(), loss.functions
        )
        return Arrived(
            call=call.call,
            base=call.base,
            flat=gradient,
            stats=stats,
            num_samples=len(samples.observation),
        )

    def end(self, record: GradientRecord) -> None:
        self.records.append(record)


def learner_on(desk: MemoryDesk, hyperparameters: PpoHyperparameters, *, seed: int = 7) -> Ppo:
    """Return PPO whose gradients come from a desk."""
    return Ppo(CONTINUOUS, hyperparameters, seed=seed, max_rounds=8, steps=desk.steps)
