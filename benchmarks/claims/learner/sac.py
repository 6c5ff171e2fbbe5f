"""Gradient steps of SAC and CrossQ beside other libraries': the same networks and minibatches.

    python -m benchmarks sac

The peers are Stable-Baselines3 with SB3-Contrib, and sbx, which has them in JAX. All take their
steps on one thread, and are timed in CPU time: other programs do not count. JAX's compilation does
not count either. What lies in the replays does not matter to the time. Where sbx cannot be
installed, it is left out.
"""

import time
from contextlib import ExitStack

import numpy as np

from benchmarks.measurement import Effort, Sampler, interleaved, progress
from benchmarks.peers.interpreters import SBX, STABLE_BASELINES3, contestant, if_installable
from benchmarks.records.result import Row, Series, Target
from learning.algorithms.replay_learner import ReplayLearner
from learning.algorithms.sac import Crossq, Sac
from learning.cpu.torch_settings import configure_torch
from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.describing import describe
from shared.hyperparameters import crossq, sac
from shared.hyperparameters.replay import ReplayHyperparameters

TITLE = "Gradient steps of SAC and CrossQ, 2 x 256 wide, minibatches of 256, one thread, CPU time"
_ENVIRONMENTS = ("Hopper-v4", "HalfCheetah-v4")
_ALGORITHMS: dict[str, tuple[type[ReplayLearner], ReplayHyperparameters]] = {
    "SAC": (Sac, sac.STANDARD),
    "CrossQ": (Crossq, crossq.STANDARD),
}
_STEPS = 128
"""No multiple of 3: sbx would then compile CrossQ's steps during the measurement."""
_REPLAYED = 2000
_TARGETS = {STABLE_BASELINES3.name: Target(of="ratio", bound="at_least", value=1.2)}


def measure(effort: Effort) -> list[Row]:
    """Measure an environment of few numbers, and one of more."""
    configure_torch()
    return [
        row
        for name in _ALGORITHMS
        for env_id in _ENVIRONMENTS[: effort.of(2, quick=1)]
        for row in _rows(name, env_id, effort)
    ]


def _rows(name: str, env_id: str, effort: Effort) -> list[Row]:
    progress(f"{name}, {env_id}: gradient steps in turn")
    steps = effort.of(_STEPS, quick=16)
    wanted = (name.lower(), env_id, str(steps))
    peers = {STABLE_BASELINES3.name: contestant(STABLE_BASELINES3, *wanted)}
    peers |= if_installable(SBX, *wanted)
    with ExitStack() as stack:
        running = {peer: stack.enter_context(found) for peer, found in peers.items()}
        samplers = {"ours": _sampler(name, env_id, steps)}
        samplers |= {peer: found.rate for peer, found in running.items()}
        samples = interleaved(samplers, repeats=effort.of(5))
    return [
        Row(
            what=f"{name}, {env_id}: gradient steps",
            ours=_series("ours", samples["ours"], {}),
            peer=_series(peer, samples[peer], found.about),
            target=_TARGETS.get(peer),
        )
        for peer, found in running.items()
    ]


def _sampler(name: str, env_id: str, steps: int) -> Sampler:
    """Return what takes as many gradient steps of ours, and returns their rate."""
    algorithm, rule = _ALGORITHMS[name]
    environment = describe(EnvironmentRef(env_id=env_id))
    ours = algorithm(environment, rule.model_copy(update={"learning_starts": _REPLAYED}), seed=0)
    rng = np.random.default_rng(0)
    ours.replay.add(rng.standard_normal((_REPLAYED, ours.replay.width), np.float32))

    def sample() -> float:
        ours.replay.add(rng.standard_normal((steps, ours.replay.width), np.float32))
        start = time.process_time()
        while ours.ready:  # a gradient step is owed for each of these
            ours.update()
        return steps / (time.process_time() - start)

    return sample


def _series(name: str, samples: tuple[float, ...], about: dict[str, str]) -> Series:
    return Series(name=name, unit="updates/s", better="higher", samples=samples, about=dict(about))
