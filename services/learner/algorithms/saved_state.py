"""Checking a saved state against what an algorithm would save itself."""

from collections.abc import Iterable

from services.learner.algorithms.policy_update import StateArrays


def require_same_names(what: str, expected: Iterable[str], found: Iterable[str]) -> None:
    """Do nothing if the names are the same, in whatever order.

    Raises:
        ValueError: They are not; the message lists what is missing and what is unknown.
    """
    missing, unknown = set(expected) - set(found), set(found) - set(expected)
    if missing or unknown:
        raise ValueError(
            f"state has the wrong {what}s: missing {sorted(missing)}, unknown {sorted(unknown)}"
        )


def require_same_form(expected: StateArrays, found: StateArrays) -> None:
    """Do nothing if the arrays have the same names, shapes and types.

    Raises:
        ValueError: They have not.
    """
    require_same_names("array", expected, found)
    for name, own in expected.items():
        array = found[name]
        if array.shape != own.shape or array.dtype != own.dtype:
            raise ValueError(
                f"state array {name!r} is {array.dtype}{list(array.shape)}, "
                f"this network needs {own.dtype}{list(own.shape)}"
            )
