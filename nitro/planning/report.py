"""A plan as text and as JSON: measurements, ways and recommendations."""

from collections.abc import Sequence
from typing import Self

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nitro.planning.choice import Choice, minutes
from nitro.planning.ways import Way
from nitro.planning.workload import Workload
from nitro.tables import facts_table
from shared.contracts.message import Message
from shared.money.one_server import BOOT_S

_BUSY = 0.8
"""Share of CPU time below which a step was probably slowed down by other load."""
ASSUMPTIONS = (
    "Each core of a server, of Lambda and of a CPU learner is as fast as a core here. A GPU "
    "learner is as fast as an H200, which no smaller GPU reaches.",
    "An evaluation episode lasts as long as the environment allows.",
    f"Minutes and dollars include the start of a learner and {BOOT_S:g} s of a server's boot, but "
    "not the cost of an idle deployment.",
    "The steps of a trained policy take as long as those of a new one.",
    "An episode of ars or es has as many steps as `--episode-steps` says, or as the environment "
    "allows. Shorter episodes make more rounds, each with its calls.",
    "On functions, a round of ars or es has as many iterations as fit into their time-out.",
    "If episodes continue by replays, each Lambda actor repeats half of the longest episode. "
    "Elsewhere nothing is repeated, because processes keep their environments.",
)
"""A plan's assumptions beyond those of every bill."""


class Plan(Message):
    """The fields are the keys of `--json`."""

    workload: Workload
    steps_source: str = ""
    """Why the job has so many steps; empty without `--to-return`."""
    ways: tuple[Way, ...]
    front: tuple[int, ...]
    """Indices of the ways on the Pareto front, in order of time."""
    cheapest: int
    balanced: int
    fastest: int
    value_of_time_usd_per_hour: float
    serverless_pays: bool
    verdict: str
    prices: str
    assumptions: tuple[str, ...] = ASSUMPTIONS

    @classmethod
    def of(
        cls,
        workload: Workload,
        ways: Sequence[Way],
        choice: Choice,
        *,
        usd_per_hour: float,
        prices: str,
        steps_source: str = "",
    ) -> Self:
        """Return the plan of a choice."""
        return cls(
            workload=workload,
            steps_source=steps_source,
            ways=tuple(ways),
            front=tuple(map(ways.index, choice.front)),
            cheapest=ways.index(choice.cheapest),
            balanced=ways.index(choice.balanced),
            fastest=ways.index(choice.fastest),
            value_of_time_usd_per_hour=usd_per_hour,
            serverless_pays=choice.serverless_pays,
            verdict=choice.verdict,
            prices=prices,
        )


def plan_view(plan: Plan) -> RenderableType:
    """Return the plan for a person."""
    workload = plan.workload
    told: list[RenderableType] = [_measured(plan), "", _ways(plan), "", Text(plan.verdict)]
    if workload.computing < _BUSY:
        share = f"{workload.computing:.0%}"
        told.append(
            Text(
                f"A step used the CPU for only {share} of its time. If this machine is busy, "
                "repeat the measurement when it is idle."
            )
        )
    return Group(*told)


def _measured(plan: Plan) -> Table:
    workload = plan.workload
    useful = workload.useful_actors
    size = f"{workload.samples_per_round:,}"
    if workload.episodes_per_round:
        size = f"{workload.episodes_per_round:,} episodes of {workload.episode_steps:,}"
    rounds = f"{workload.total_steps:,} steps in rounds of {size}"
    episode = f"{workload.episode_steps:,} steps are assumed: --episode-steps changes it"
    return facts_table(
        (
            ("job", f"{workload.env_id}, {rounds}"),
            *([("steps", plan.steps_source)] if plan.steps_source else []),
            *([("an episode", episode)] if workload.episodes_per_round else []),
            ("a step", f"{_took(workload.step_s)} on one core here, including the policy"),
            ("a reset", _took(workload.reset_s)),
            (
                "an update",
                f"{_took(workload.update_s)}, on a GPU perhaps {_took(workload.gpu_update_s)}",
            ),
            ("a sample", f"{workload.bytes_per_sample:,.0f} bytes on the wire"),
            *(
                []
                if useful is None
                else [("useful actors", f"{useful:,}: more would wait for the learner")]
            ),
        )
    )


def _took(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _ways(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    # Explicit widths: without them every column of a wide table is truncated.
    table.add_column("way", no_wrap=True, min_width=max(len(way.name) for way in plan.ways))
    for heading in ("cores", "actors", "minutes", "USD"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=len(heading))
    table.add_column("")
    for index, way in enumerate(plan.ways):
        table.add_row(
            way.name,
            "" if way.cores is None else str(way.cores),
            f"{way.num_actors:,}",
            minutes(way.wall_s),
            f"{way.usd:.3f}",
            _marks(plan, index),
        )
    return table


def _marks(plan: Plan, index: int) -> str:
    names = ("cheapest", "balanced", "fastest")
    said = [name for name in names if getattr(plan, name) == index]
    return " ".join([*(["*"] if index in plan.front else []), ", ".join(said)]).strip()
