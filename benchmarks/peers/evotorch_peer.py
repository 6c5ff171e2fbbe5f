"""An iteration of evotorch's PGPE, measured on request; runs in the peer's interpreter.

    python evotorch_peer.py ENV

Its population is one symmetric pair of linear policies, so an iteration plays two episodes, as one
of ARS with one direction does. Observations are normalised; one thread, one process. The first line
on standard output gives versions; each line read from standard input is answered with one
measurement.
"""

import argparse
import json
import logging
import sys
import time
from importlib.metadata import version
from typing import Any

import torch
from evotorch.algorithms import PGPE  # type: ignore[import-not-found]
from evotorch.neuroevolution import GymNE  # type: ignore[import-not-found]


def main() -> None:
    """Answer every line of standard input with one measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("env_id")
    env_id = parser.parse_args().env_id
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    search = PGPE(
        GymNE(
            env_id,
            "Linear(obs_length, act_length, bias=False)",
            observation_normalization=True,
            num_actors=None,
        ),
        popsize=2,
        center_learning_rate=0.02,
        stdev_learning_rate=0.1,
        stdev_init=0.03,
    )
    search.step()  # it imports and builds on first use
    versions = {name: version(name) for name in ("evotorch", "torch", "gymnasium", "mujoco")}
    answer({**versions, "threads": torch.get_num_threads()})
    for _ in sys.stdin:
        steps = search.status["total_interaction_count"]
        start = time.perf_counter()
        search.step()
        seconds = time.perf_counter() - start
        answer({"steps": search.status["total_interaction_count"] - steps, "seconds": seconds})


def answer(message: dict[str, Any]) -> None:
    """Write one line of JSON."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
