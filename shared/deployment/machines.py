"""Machines on AWS: usable memory, network rates, and start times of learners."""

import math
from collections.abc import Iterable, Mapping

from shared.contracts.learner_kind import LearnerKind
from shared.money.prices import CacheEngine

_LEFT_TO_TASKS = 0.93
"""Share of a machine's memory that kernel and ECS agent leave."""
_MACHINE_MEMORY_GIB = {
    "g4dn.xlarge": 16,
    "g4dn.2xlarge": 32,
    "g5.xlarge": 16,
    "g5.2xlarge": 32,
    "g5.12xlarge": 192,
    "g6.xlarge": 16,
    "g6.2xlarge": 32,
    "g6.12xlarge": 192,
    "g6e.xlarge": 32,
    "p3.2xlarge": 61,
    "p3.8xlarge": 244,
}
"""Published memory of machines with a GPU."""
_SEVERAL_GPUS = {"g5.12xlarge": 4, "g6.12xlarge": 4, "p3.8xlarge": 4}
"""Published number of GPUs of machines with more than one."""
LEARNER_START_S: dict[LearnerKind, float] = {"gpu": 240.0, "cpu": 60.0}
"""Estimated time from a job's submission to its learner's lease; not measured on AWS. A GPU machine
boots and pulls several GB, a Fargate task pulls half a gigabyte."""
GPU_QUOTA = "L-DB2E81BA"
"""Quota of running On-Demand G and VT instances, in vCPUs: 0 in new accounts."""
_VOLTA = frozenset({"p3.2xlarge", "p3.8xlarge"})
"""Machines with V100 GPUs."""
_RESERVED_SHARE = 0.25
"""ElastiCache reserves a quarter for replication and backups by default."""
DEFAULT_CACHE_NODE = "cache.t4g.micro"
DEFAULT_CACHE_ENGINE: CacheEngine = "valkey"
"""Defaults of a deployment, and so of a local system's bill."""
_NODE_MEMORY_GIB = {
    "cache.t4g.micro": 0.5,
    "cache.t4g.small": 1.37,
    "cache.t4g.medium": 3.09,
    "cache.r7g.large": 13.07,
}
"""As published."""
_NODE_MB_PER_S = {
    "cache.t4g.micro": 8.0,
    "cache.t4g.small": 16.0,
    "cache.t4g.medium": 32.0,
    "cache.r7g.large": 117.0,
}
"""Sustained network rate of a node, each way: its published baseline. All nodes can burst for some
minutes."""


def task_memory_mb(instance_type: str) -> int:
    """Return the memory of a machine that the learner's task can use.

    Raises:
        ValueError: The type is not in the table.
    """
    refusal = f"learner_instance_types: {instance_type!r} is no GPU machine that is known"
    return _memory_mb(_MACHINE_MEMORY_GIB, instance_type, share=_LEFT_TO_TASKS, refusal=refusal)


def num_gpus(instance_type: str) -> int:
    """Return the number of GPUs of a machine in the table."""
    return _SEVERAL_GPUS.get(instance_type, 1)


def torch_build(instance_types: Iterable[str]) -> str:
    """Return the torch build of the learner's image, with kernels for every machine.

    From 2.11 on, only the builds for CUDA 12.6 have Volta's kernels. They also have kernels for all
    machines above.
    """
    return "cu126" if _VOLTA.intersection(instance_types) else "cuda"


def usable_memory_mb(node_type: str) -> int:
    """Return a node's usable memory.

    Raises:
        ValueError: The type is not in the table.
    """
    refusal = f"cache_node_type: {node_type!r} is unknown"
    return _memory_mb(_NODE_MEMORY_GIB, node_type, share=1 - _RESERVED_SHARE, refusal=refusal)


def smallest_node(memory_mb: float) -> str | None:
    """Return the smallest node with this much memory; None if there is none."""
    nodes = sorted(_NODE_MEMORY_GIB, key=_NODE_MEMORY_GIB.__getitem__)
    return next((node for node in nodes if usable_memory_mb(node) >= memory_mb), None)


def network_mb_per_s(node_type: str) -> float:
    """Return a node's sustained network rate; infinity if the type is not in the table."""
    return _NODE_MB_PER_S.get(node_type, math.inf)


def node_for_traffic(mb_per_s: float) -> str:
    """Return the smallest node that sustains this rate; the largest if none does."""
    nodes = sorted(_NODE_MB_PER_S, key=_NODE_MB_PER_S.__getitem__)
    return next((node for node in nodes if _NODE_MB_PER_S[node] >= mb_per_s), nodes[-1])


def _memory_mb(table: Mapping[str, float], kind: str, *, share: float, refusal: str) -> int:
    if kind not in table:
        raise ValueError(f"{refusal}; known: {', '.join(table)}")
    return int(table[kind] * 1024 * share)
