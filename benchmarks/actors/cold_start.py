"""One cold start, timed from the first import.

    python -m benchmarks.actors.cold_start NAME [EVENT]

Prints the seconds it took. The interpreter's own start is left out, for everybody.
"""

import sys
import time


def handler_to_reset() -> None:
    """Import the actor's handler, build Hopper and reset it."""
    import functions.actor.handler  # noqa: F401 - importing it is what is measured
    from shared.contracts.environment_ref import EnvironmentRef
    from shared.environments.building import make_environment

    make_environment(EnvironmentRef(env_id="Hopper-v5")).reset(seed=0)


def handler_to_first_rollout() -> None:
    """Import the actor's handler and do a first rollout, policy and result over the cache."""
    import json

    from functions.actor.handler import handler

    report = handler(json.loads(sys.argv[2]), None)
    if report["outcome"] != "stored":
        sys.exit(f"the rollout was not stored: {report}")


def handler_to_first_gradient() -> None:
    """Import the gradient function's handler and compute a first gradient, over the cache."""
    import json

    from functions.gradient.handler import handler

    report = handler(json.loads(sys.argv[2]), None)
    if report["outcome"] != "stored":
        sys.exit(f"the gradient was not stored: {report}")


def torch_to_reset() -> None:
    """Import torch and Gymnasium, make Hopper and reset it."""
    import gymnasium
    import torch  # noqa: F401 - importing it is what is measured

    gymnasium.make("Hopper-v5").reset(seed=0)


_STARTS = {
    "handler_to_reset": handler_to_reset,
    "handler_to_first_rollout": handler_to_first_rollout,
    "handler_to_first_gradient": handler_to_first_gradient,
    "torch_to_reset": torch_to_reset,
}

if __name__ == "__main__":
    begin = time.perf_counter()
    _STARTS[sys.argv[1]]()
    sys.stdout.write(f"{time.perf_counter() - begin}\n")
