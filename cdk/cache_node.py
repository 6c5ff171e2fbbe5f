"""ElastiCache node sizes: how much of a node trajectories can fill."""

_RESERVED_SHARE = 0.25
"""ElastiCache keeps a quarter for replication and backups unless told otherwise."""
_NODE_MEMORY_GIB = {
    "cache.t4g.micro": 0.5,
    "cache.t4g.small": 1.37,
    "cache.t4g.medium": 3.09,
    "cache.r7g.large": 13.07,
}
"""As published."""


def usable_memory_mb(node_type: str) -> int:
    """Return what a node can hold.

    Raises:
        ValueError: The type is not in the table.
    """
    try:
        memory_gib = _NODE_MEMORY_GIB[node_type]
    except KeyError:
        known = ", ".join(_NODE_MEMORY_GIB)
        raise ValueError(f"cache_node_type: {node_type!r} is unknown; known: {known}") from None
    return int(memory_gib * 1024 * (1 - _RESERVED_SHARE))
