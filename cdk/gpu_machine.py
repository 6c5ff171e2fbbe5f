"""GPU machines for the learner: how much memory of one a task can have."""

_LEFT_TO_TASKS = 0.93
"""What kernel and ECS agent leave of the memory a machine is sold with."""
_MEMORY_GIB = {
    "g4dn.xlarge": 16,
    "g4dn.2xlarge": 32,
    "g5.xlarge": 16,
    "g5.2xlarge": 32,
    "g6.xlarge": 16,
    "g6.2xlarge": 32,
    "g6e.xlarge": 32,
    "p3.2xlarge": 61,
}
"""As published for machines that have a GPU."""


def task_memory_mb(instance_type: str) -> int:
    """Return what the learner's task can have of a machine.

    Raises:
        ValueError: The type is not in the table.
    """
    try:
        memory_gib = _MEMORY_GIB[instance_type]
    except KeyError:
        known = ", ".join(_MEMORY_GIB)
        raise ValueError(
            f"learner_instance_types: {instance_type!r} is no GPU machine that is known; those are "
            f"{known}"
        ) from None
    return int(memory_gib * 1024 * _LEFT_TO_TASKS)
