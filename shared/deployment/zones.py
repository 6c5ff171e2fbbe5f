"""Availability zones of the stack: two in which API Gateway can reach into the VPC.

AWS gives zones other names in every account; their ids are the same everywhere.
"""

from collections.abc import Mapping

NUM_ZONES = 2
WITHOUT_VPC_LINKS = frozenset({"ape1-az1", "euw3-az2", "use1-az3"})
"""Ids of zones in which HTTP APIs have no VPC links."""


def first_zones(ids: Mapping[str, str], *, linked: bool) -> tuple[str, ...]:
    """Return a region's first zones by name, at most two.

    Args:
        ids: Id of each zone of the region, by its name.
        linked: Whether API Gateway has to reach into them.
    """
    usable = [name for name in sorted(ids) if not (linked and ids[name] in WITHOUT_VPC_LINKS)]
    return tuple(usable[:NUM_ZONES])
