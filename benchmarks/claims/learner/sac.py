"""SAC's gradient steps beside Stable-Baselines3's: the same networks, minibatches and optimisers.

    python -m benchmarks sac

Both take them on one thread, and are timed in CPU time: other programs do not count. What lies in
the replays does not matter to the time.
"""

import time

import numpy as np

from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers.interpreters import stable_baselines3
from benchmarks.records.result import Row, Series, Target
from learning.algorithms.sac import Sac
from learning.cpu.torch_settings import configure_torch
from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.describing import describe
from shared.hyperparameters.sac import STANDARD

TITLE = "Gradient steps of SAC, 2 x 256 wide, minibatches of 256, one thread, CPU time"
_ENVIRONMENTS = ("Hopper-v4", "HalfCheetah-v4")
_STEPS = 128
_REPLAYED = 2000
_AT_LEAST = 1.2


def measure(effort: Effort) -> list[Row]:
    """Measure an environment of few numbers, and one of more."""
    configure_torch()
    return [_row(env_id, effort) for env_id in _ENVIRONMENTS[: effort.of(2, quick=1)]]


def _row(env_id: str, effort: Effort) -> Row:
    progress(f"{env_id}: gradient steps in turn")
    steps = effort.of(_STEPS, quick=16)
    environment = describe(EnvironmentRef(env_id=env_id))
    ours = Sac(environment, STANDARD.model_copy(update={"learning_starts": _REPLAYED}), seed=0)
    rng = np.random.default_rng(0)
    ours.replay.add(rng.standard_normal((_REPLAYED, ours.replay.width), np.float32))

    def sample() -> float:
        ours.replay.add(rng.standard_normal((steps, ours.replay.width), np.float32))
        start = time.process_time()
        while ours.ready:  # a gradient step is owed for each of these
            ours.update()
        return steps / (time.process_time() - start)

    with stable_baselines3("sac", env_id, str(steps)) as peer:
        found = interleaved(
            {"ours": sample, "peer": lambda: peer.measure().steps_per_s}, repeats=effort.of(5)
        )
        return Row(
            what=f"SAC, {env_id}: gradient steps",
            ours=_series("ours", found["ours"], {}),
            peer=_series("Stable-Baselines3", found["peer"], peer.about),
            target=Target(of="ratio", bound="at_least", value=_AT_LEAST),
        )


def _series(name: str, samples: tuple[float, ...], about: dict[str, str]) -> Series:
    return Series(name=name, unit="updates/s", better="higher", samples=samples, about=dict(about))
