"""The scaling policies of `policies` in the preset `standard`.

Whether boosting pays could depend on how much is made of each batch. The paper's preset takes
thirty passes at a small step size; this one takes ten at a larger one, normalises observations and
rewards, and earns more with the same samples.
"""

from functools import partial

from experiments.experiment import Experiment
from experiments.studies.paper import policies

EXPERIMENT = Experiment(
    name="policies_standard",
    title="Scaling policies compared, preset standard",
    paper="Figure 15, in another preset than the paper's",
    plan=partial(policies.plan, preset="standard"),
    find=policies.find,
)
