"""Where a slow simulator's actors run best: on own cores, as functions, or as `auto` shares them.

A simulator of 20 ms a step, eight actors of 64 steps. It waits and needs no core, so eight
functions run beside two own actors on two cores as they would elsewhere. Dollars are the ledger's.
The last rows add the value of a round's time to its dollars
(`value_of_time_usd_per_hour`).
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.local_training import LocalTraining
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.records.result import Row, Series, Target
from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.episode_rules import EvaluationRule
from shared.contracts.job_spec import JobSpec
from shared.contracts.scaling_spec import ActorRange, FixedScaling
from shared.contracts.stop_rule import StopRule

TITLE = "Places for eight actors, 20 ms a step"
_ENVIRONMENT = "Benchmarks/SlowStep-v0"
_PACKAGES = {"NITRO_ENVIRONMENT_PACKAGES": "benchmarks.slow_step"}
_NUM_ACTORS, _STEPS, _ROUNDS, _OWN = 8, 64, 6, 2
_APART = {"scaler": {"NITRO_FUNCTIONS_SHARE_CORES": "false"}}
_WORST = 1 / 1.1
"""`auto` may take a tenth more than the better of the two others."""


class _Place:
    """Trains one job again and again; what each took and cost."""

    def __init__(self, stack: ExitStack, own: int, *, apart: bool, rounds: int) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        system = stack.enter_context(
            LocalSystem(
                folder,
                processes=_NUM_ACTORS,
                environment=_APART if apart else {},
                actor_variables=_PACKAGES,
            )
        )
        self._client = stack.enter_context(NitroClient(system.api_url, system.token))
        system.wait_ready()
        self._training = LocalTraining(
            system=system,
            client=self._client,
            runs_dir=folder,
            spec=JobSpec(
                env_id=_ENVIRONMENT,
                preset="standard",
                steps_per_actor=_STEPS,
                actors=ActorRange(min=_NUM_ACTORS, max=_NUM_ACTORS, own=own),
                scaling=FixedScaling(policy="fixed", num_actors=_NUM_ACTORS),
                stop=StopRule(max_rounds=rounds, budget_usd=100.0),
                evaluation=EvaluationRule(every_rounds=0),
            ),
        )
        self.usd: list[float] = []
        self.worth: list[float] = []

    def sample(self) -> float:
        """Train the job; return its seconds a round."""
        self._training.results.clear()
        self._training.sample()
        results, spec = self._training.results, self._training.spec
        seconds = sum(each.timing.total_s for each in results) / len(results)
        newest = self._client.jobs().jobs[0]
        usd = self._client.cost(newest.job_id).settled_usd / len(results)
        self.usd.append(usd)
        self.worth.append(usd + seconds * spec.actors.value_of_time_usd_per_hour / 3600)
        return seconds


def measure(effort: Effort) -> list[Row]:
    """Train in each place in turn."""
    progress("starting a system for each place")
    with ExitStack() as stack:
        rounds = effort.of(_ROUNDS)
        places = {
            "auto": _Place(stack, _OWN, apart=True, rounds=rounds),
            "own cores": _Place(stack, _OWN, apart=False, rounds=rounds),
            "functions": _Place(stack, 0, apart=True, rounds=rounds),
        }
        samplers: dict[str, Callable[[], float]] = {n: each.sample for n, each in places.items()}
        seconds = interleaved(samplers, repeats=effort.of(3, quick=1), warm_up=False)
    rows = []
    for what, unit, by_place in (
        ("seconds a round", "s", {name: list(taken) for name, taken in seconds.items()}),
        ("dollars a round", "USD", {name: each.usd for name, each in places.items()}),
        ("dollars and the value of time", "USD", {n: each.worth for n, each in places.items()}),
    ):
        target = Target(of="ratio", bound="at_least", value=_WORST) if "value" in what else None
        for peer in ("own cores", "functions"):
            rows.append(
                Row(
                    what=what,
                    ours=_series("auto", unit, by_place),
                    peer=_series(peer, unit, by_place),
                    target=target,
                )
            )
    return rows


def _series(name: str, unit: str, by_place: dict[str, list[float]]) -> Series:
    return Series(name=name, unit=unit, better="lower", samples=tuple(by_place[name]))
