"""The three rules for gradients of functions, each on and off: all eight switches.

Truncation of importance ratios, the bound on staleness, and weighting by staleness are Stellaris'
three parts. The publication leaves out one at a time. All eight combinations show whether a part
does anything beside the others. The step size is fixed, as in the paper.
"""

from itertools import product

from experiments.experiment import Done, Experiment
from experiments.functions import account_table, body, staleness_panel
from experiments.grid import HOPPER, Body, Grid, Scale
from experiments.reporting.comparison import compared, higher_return, runs
from experiments.reporting.findings import Findings

_RULES = ("truncation", "threshold", "weighting")
_ALL, _NONE = "all three", "none"
_CLAIM = "Each of the three parts raises the reward (Stellaris, ablation)"


def _name(switches: tuple[bool, ...]) -> str:
    on = [rule for rule, switch in zip(_RULES, switches, strict=True) if switch]
    if len(on) == len(_RULES):
        return _ALL
    return " + ".join(on) or _NONE


def plan(scale: Scale, _done: Done) -> Grid:
    """Eight conditions."""
    grid = Grid()
    for seed in range(scale.seeds):
        for switches in product((True, False), repeat=len(_RULES)):
            forms: Body = {
                rule: "paper" if switch else "off"
                for rule, switch in zip(_RULES, switches, strict=True)
            }
            functions: Body = {**forms, "slices": 8, "step_size": "fixed"}
            grid.add_job(_name(switches), HOPPER, seed, body(scale, HOPPER, functions=functions))
    return grid


def find(_scale: Scale, done: Done) -> Findings:
    """Returns of all eight, and all three beside each two."""
    panels, tables = compared(done, actors=False)
    names = [_name(switches) for switches in product((True, False), repeat=len(_RULES))]
    groups = {name: found for name in names if (found := runs(done, name, HOPPER))}
    two = [name for name in names if name.count("+") == 1]
    claims = [
        claim
        for worse in (*two, _NONE)
        for claim in higher_return(done, _ALL, worse, paper=_CLAIM, equal="steps")
    ]
    return Findings(
        panels=(*panels, staleness_panel("Staleness of gradients", groups)),
        tables=(*tables, account_table("Gradients of functions", groups)),
        claims=tuple(claims),
    )


EXPERIMENT = Experiment(
    name="stellaris_ablation",
    title="Three rules for gradients of functions",
    paper="Stellaris (SC 2024): ablation",
    plan=plan,
    find=find,
)
