"""Availability zones of the stack: two zones with VPC links of API Gateway.

Zone names differ between accounts; zone ids do not.
"""

from collections.abc import Mapping

NUM_ZONES = 2
WITHOUT_VPC_LINKS = frozenset({"ape1-az1", "euw3-az2", "use1-az3"})
"""Ids of zones without VPC links of HTTP APIs."""


def first_zones(ids: Mapping[str, str], *, linked: bool) -> tuple[str, ...]:
    """Return a region's first zones by name, at most two.

    Args:
        ids: Id of each zone of the region, by its name.
        linked: Whether they need VPC links of API Gateway.
    """
    usable = [name for name in sorted(ids) if not (linked and ids[name] in WITHOUT_VPC_LINKS)]
    return tuple(usable[:NUM_ZONES])
