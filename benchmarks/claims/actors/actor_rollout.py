"""How much of the simulator's speed our actor keeps, and how it compares with an SB3 rollout.

Three contestants per environment, on one core each: the actor's own rollout code with a policy of
two tanh layers of 256; the bare simulator replaying the very same steps; and a single-environment
PPO rollout of Stable-Baselines3 with a network of the same size.
"""

import sys
from collections.abc import Mapping

from benchmarks.actors.real_actor import STEPS
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.interpreters import stable_baselines3
from benchmarks.records.result import Row, Series, Target

TITLE = "Actor rollout on one core"
_SHARE_OF_SIMULATOR = {"Hopper-v5": 0.65, "Walker2d-v5": 0.65, "Humanoid-v5": 0.75}
_TIMES_SB3 = 2.0
_FRAGMENTS = 4
"""Per sample."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""As in the environment an actor runs in."""


def measure(effort: Effort) -> list[Row]:
    """Measure every environment."""
    return [row for env_id in _SHARE_OF_SIMULATOR for row in _rows(env_id, effort)]


def _rows(env_id: str, effort: Effort) -> list[Row]:
    progress(env_id)
    fragments = effort.of(_FRAGMENTS, quick=1)
    command = [sys.executable, "-m", "benchmarks.actors.rollout_contestant", env_id, str(fragments)]
    with (
        Contestant(command, variables=_ONE_THREAD) as ours,
        stable_baselines3("rollout", env_id, str(fragments * STEPS)) as sb3,
    ):
        samples = interleaved(
            {
                "actor": lambda: ours.measure("actor").steps_per_s,
                "simulator": lambda: ours.measure("simulator").steps_per_s,
                "SB3": lambda: sb3.measure().steps_per_s,
            },
            repeats=effort.of(15),
        )
        about = sb3.about
    actor = steps_series("actor", samples["actor"])
    share = _SHARE_OF_SIMULATOR[env_id]
    return [
        Row(
            what=f"{env_id}: actor beside the bare simulator",
            ours=actor,
            peer=steps_series("mj_step", samples["simulator"]),
            target=Target(of="ratio", bound="at_least", value=share),
        ),
        Row(
            what=f"{env_id}: actor beside an SB3 single-env rollout",
            ours=actor,
            peer=steps_series(f"SB3 {about['stable-baselines3']}", samples["SB3"], about),
            target=Target(of="ratio", bound="at_least", value=_TIMES_SB3),
        ),
    ]


def steps_series(
    name: str, samples: tuple[float, ...], about: Mapping[str, str] | None = None
) -> Series:
    """Return steps a second of a contestant."""
    return Series(
        name=name, unit="steps/s", better="higher", samples=samples, about=dict(about or {})
    )
