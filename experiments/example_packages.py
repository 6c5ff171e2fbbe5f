"""Environments of the examples, whose packages lie in the source tree and are not installed."""

import sys
from pathlib import Path

from shared.environments.packages import EnvironmentPackageError, import_environment_packages

HIGHWAY = "Driving/HighwayFast-v0"
HIGHWAY_PACKAGE = "driving"
_HIGHWAY_FOLDER = Path(__file__).parents[1] / "examples" / "highway_env"


def highway_problem() -> str | None:
    """Import the slow simulator's package; return why that cannot be, None if it can."""
    if str(_HIGHWAY_FOLDER) not in sys.path:
        sys.path.append(str(_HIGHWAY_FOLDER))
    try:
        import_environment_packages([HIGHWAY_PACKAGE])
    except EnvironmentPackageError as error:
        return str(error)
    return None
