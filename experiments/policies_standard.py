"""The scaling policies of `policies` where data is the bottleneck: in the preset `standard`.

With the paper's step size and thirty passes over every batch, more samples buy next to nothing, so
that no choice of rounds can buy much. Ten passes at a larger step size leave more to be gained.
"""

from functools import partial

from experiments import policies
from experiments.experiment import Experiment

EXPERIMENT = Experiment(
    name="policies_standard",
    title="Scaling policies compared, preset standard",
    paper="Figure 15, in another preset than the paper's",
    plan=partial(policies.plan, preset="standard"),
    find=policies.find,
)
