"""Vehicles and obstacles as bytes: JSON that says of each its kind and its attributes.

Numbers keep their types and bits. Nothing in the bytes can execute: a kind is looked up in a table.
"""

import json
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from highway_env.road.road import Road
from highway_env.vehicle.behavior import IDMVehicle
from highway_env.vehicle.controller import MDPVehicle
from highway_env.vehicle.kinematics import Vehicle
from highway_env.vehicle.objects import Obstacle, RoadObject
from numpy.typing import NDArray

KINDS = {kind.__name__: kind for kind in (Vehicle, MDPVehicle, IDMVehicle, Obstacle)}
"""All there are in the tasks of this package."""
_DERIVED = frozenset({"road", "lane", "log", "history"})
"""The road is the environment's, the lane follows from its index, and pictures need the others."""
_NUMBERS = {f"numpy.{kind.__name__}": kind for kind in (np.float64, np.int64, np.bool_)}


def packed(traffic: Sequence[RoadObject]) -> NDArray[np.uint8]:
    """Return what moves, or stands, on a road # [bytes].

    Raises:
        ValueError: Something is of a kind, or has an attribute, that is not known.
    """
    described = []
    for one in traffic:
        kind = type(one).__name__
        if KINDS.get(kind) is not type(one):
            raise ValueError(f"a {kind} is not known; known: {', '.join(KINDS)}")
        own = {name: _plain(v) for name, v in vars(one).items() if name not in _DERIVED}
        described.append([kind, own])
    return np.frombuffer(json.dumps(described).encode(), np.uint8)


def unpacked(data: NDArray[np.uint8], road: Road) -> list[RoadObject]:
    """Return what was packed, on a road of its own.

    Raises:
        LookupError: A kind, or a lane of the road, is not known.
        ValueError: The bytes are of no traffic.
    """
    traffic = []
    for kind, own in json.loads(data.tobytes()):
        one = object.__new__(KINDS[kind])
        vars(one).update({name: _value(plain) for name, plain in own.items()})
        one.road, one.lane = road, road.network.get_lane(one.lane_index)
        if isinstance(one, Vehicle):
            one.log, one.history = [], deque(maxlen=Vehicle.HISTORY_SIZE)
        traffic.append(one)
    return traffic


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a vehicle has
    """Return a value as JSON has it: what is no plain value as its type's name and its parts."""
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, value.tolist()]
    if isinstance(value, np.generic) and f"numpy.{kind}" in _NUMBERS:
        return [f"numpy.{kind}", value.item()]
    if isinstance(value, tuple | list):
        return [kind, [_plain(each) for each in value]]
    if isinstance(value, dict):
        return ["dict", {name: _plain(each) for name, each in value.items()}]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"a {kind} is not kept")


def _value(plain: Any) -> Any:  # noqa: ANN401 - as above
    if not isinstance(plain, list):
        return plain
    kind, *rest = plain
    if kind == "array":
        return np.array(rest[1], np.dtype(rest[0]))
    if kind in _NUMBERS:
        return _NUMBERS[kind](rest[0])
    if kind == "dict":
        return {name: _value(each) for name, each in rest[0].items()}
    parts = [_value(each) for each in rest[0]]
    return tuple(parts) if kind == "tuple" else parts
