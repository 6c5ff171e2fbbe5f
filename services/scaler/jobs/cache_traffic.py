"""How long a round's actors take to fetch the policy, through the network of the cache's node.

A small node may exceed what it sustains for some minutes, on credits that it saves while it idles.
"""

from services.scaler.jobs.network_size import bytes_per_weight, network_weights
from shared.contracts.environment_spec import EnvironmentSpec
from shared.contracts.job_spec import JobSpec
from shared.deployment.machines import network_mb_per_s, node_for_traffic

_MB = 1e6
_LONGEST_S = 5.0
"""Above it the cache's network, and not the simulators, sets the pace of most rounds."""


def traffic_warnings(spec: JobSpec, environment: EnvironmentSpec, node: str) -> tuple[str, ...]:
    """Return the warning that a cache's node is slow for a job, if it is."""
    policy_mb = bytes_per_weight(spec) * network_weights(spec, environment) / _MB
    round_mb = policy_mb * spec.actors.max
    rate = network_mb_per_s(node)
    takes_s = round_mb / rate
    if takes_s <= _LONGEST_S:
        return ()
    larger = node_for_traffic(round_mb / _LONGEST_S)
    return (
        f"{spec.actors.max} actors fetch {round_mb:.0f} MB of weights a round, which takes "
        f"{takes_s:.0f} s at the {rate:g} MB/s that {node} sustains: use {larger} "
        "(cache_node_type), fewer actors, or policy_precision float16",
    )
