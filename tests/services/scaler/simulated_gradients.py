"""Whole jobs whose gradients functions compute, on the simulated clock; the scaler may restart."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from services.scaler.launching.invoker import Awaited, Invoker
from services.scaler.launching.tasks import GradientOutcome, TaskOutcome
from services.scaler.refusals import ApiError
from shared.contracts.gradients import (
    GradientCall,
    GradientReport,
    GradientRequest,
    GradientTask,
)
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundPlan, RoundResult
from tests.services.scaler.services_without_network import do, settle
from tests.services.scaler.simulated_job import SimulatedScaler, Told

_PASSES = 2
_SLICES = 3
_CALLS = _PASSES * _SLICES


class ChanceGradients(Invoker[GradientTask, GradientReport]):
    """Learner functions that take random times and fail at random."""

    def __init__(self, scaler: "GradientScaler") -> None:
        self._scaler = scaler
        self.unheard: list[Callable[[], None]] = []

    async def run(
        self,
        tasks: Iterable[GradientTask],
        on_outcome: Callable[[GradientOutcome], Awaitable[None]],
        awaited: Awaited | None = None,
    ) -> None:
        """Let every task end with an outcome of chance, once `hear` is called."""
        ends = [Told(on_outcome, self._ended(task)) for task in tasks]
        self.unheard += [end.tell for end in ends]
        await asyncio.gather(*(end.heard() for end in ends))

    def hear(self, number: int | None = None) -> None:
        """Tell of the oldest so many calls that ended, or of all."""
        heard = self.unheard[:number]
        del self.unheard[: len(heard)]
        for tell in heard:
            tell()
        settle()

    async def pause(self, seconds: float) -> bool:
        """Wait for nothing: the process is about to end."""
        return False

    async def close(self, *, wait_s: float) -> bool:
        """Leave nothing open."""
        return True

    def _ended(self, task: GradientTask) -> GradientOutcome:
        chance = self._scaler.chance
        longest_s = self._scaler.basis.gradient_timeout_s
        executions = 2 if self._scaler.cruel else chance.choice((1, 1, 1, 2))
        times = tuple(
            longest_s if self._scaler.cruel else chance.uniform(0.0, longest_s)
            for _ in range(executions)
        )
        report = GradientReport(
            job_id=task.job_id,
            round=task.round,
            call=task.call.call,
            outcome="stored",
            fetch_s=0.0,
            compute_s=times[-1],
            push_s=0.0,
            total_s=times[-1],
            cold_start=False,
        )
        lost = chance.random() < 0.1
        return TaskOutcome(
            task=task,
            report=None if lost else report,
            reason="made up" if lost else "",
            billed_s=times,
            requests=executions,
        )


class GradientScaler(SimulatedScaler):
    """The scaler without network, and a learner that leaves its gradients to functions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._restart()

    def random_spec(self, scaling: dict[str, object]) -> JobSpec:
        """A job with money for one round and its gradients, or for several."""
        spec = super().random_spec(scaling)
        changes = {
            "preset": "standard",
            "learner": "functions",
            "learner_functions": spec.learner_functions.model_copy(update={"slices": _SLICES}),
            "hyperparameters": {"num_epochs": _PASSES},
        }
        return self._with_money(spec.model_copy(update=changes), most=9.0)

    def _restart(self) -> None:
        """Start the scaler's services anew on the store; what is in flight ends unheard."""
        self.functions = ChanceGradients(self)
        self.invoker.unheard.clear()
        self._wire(self.functions)
        do(self.rounds.adopt_orphans())
        do(self.gradients.adopt_orphans())

    def _ask(
        self, index: int, lease_id: str, results: Sequence[RoundResult], attempt: int = 0
    ) -> RoundPlan:
        if self.chance.random() < 0.5:
            self.functions.hear()
        plan = super()._ask(index, lease_id, results, attempt)
        if plan.stop is None:
            self._update(index, lease_id)
        return plan

    def _update(self, index: int, lease_id: str) -> None:
        """Ask for the gradients of an update in a few requests, maybe of one update more."""
        updates = self.chance.choice((0, 1, 1, 1, 2))
        first = 0
        for number in range(updates * _PASSES):
            calls = range(first, first + _SLICES)
            first += _SLICES
            for _ in range(self.chance.choice((1, 1, 2))):
                self._ask_for(index, lease_id, number, calls)
            self.functions.hear(self.chance.randrange(_CALLS))
            if self.chance.random() < 0.05:
                self._restart()

    def _ask_for(self, index: int, lease_id: str, number: int, calls: Sequence[int]) -> None:
        request = GradientRequest(
            lease_id=lease_id,
            request=number,
            calls=tuple(GradientCall(call=call, base=0) for call in calls),
        )
        try:
            do(self.gradients.ask("job", index, request))
        except ApiError:
            return  # another learner's, or a round that is over
        self.check_claims()

    def hear_all(self) -> None:
        """Tell of everything that ended."""
        self.functions.hear()
        self.invoker.hear()
