"""Gradient steps of sbx (Stable-Baselines in JAX), measured on request; runs in its interpreter.

    python sbx_peer.py sac|crossq ENV UPDATES

All UPDATES of a measurement are one compiled call. Times are CPU times without compilation. The
process has one core, so JAX starts one thread to compute with. The first line on standard output
gives versions; each line read from standard input is answered with one measurement.
"""

import argparse
import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any

if sys.platform == "linux":  # before JAX counts the cores
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

from sbx import SAC, CrossQ  # type: ignore[import-not-found]

ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sac": (SAC, {}),
    "crossq": (CrossQ, {"policy_kwargs": {"net_arch": {"pi": [256, 256], "qf": [256, 256]}}}),
}
"""Each with its arguments: minibatches of 256 are the defaults, and SAC's layers."""


def main() -> None:
    """Answer every line of standard input with one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithm", choices=ALGORITHMS)
    parser.add_argument("env_id")
    parser.add_argument("updates", type=int)
    options = parser.parse_args()
    algorithm, arguments = ALGORITHMS[options.algorithm]
    model = algorithm("MlpPolicy", options.env_id, learning_starts=1000, seed=0, **arguments)
    model.learn(1001)

    def sample() -> float:
        start = time.process_time()
        model.train(gradient_steps=options.updates, batch_size=model.batch_size)
        return time.process_time() - start

    for _ in range(model.policy_delay):
        sample()  # each place of the policy's steps among the critics' is compiled anew
    versions = {name: version(name) for name in ("sbx-rl", "jax", "gymnasium", "mujoco")}
    answer({**versions, "compiled at once": options.updates, "cores": 1})
    for _ in sys.stdin:
        answer({"steps": options.updates, "seconds": sample()})


def answer(message: dict[str, Any]) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
