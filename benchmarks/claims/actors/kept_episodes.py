"""An actor's cost of continued episodes: leaving one, and taking up one that was left.

Beside the reset that a fragment begins with otherwise, both as a share of the fragment's own time.
The bytes are those of one episode in the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.measurement import Effort, interleaved, progress, seconds
from benchmarks.records.result import Row, Series, Target
from shared.contracts.environment_ref import EnvironmentRef
from shared.environments.building import Env, make_environment
from shared.environments.state.saving import save_state
from shared.environments.state.snapshot import Snapshot, decode, encode, resume

TITLE = "An episode left by one actor and taken up by the next"
_KIB = 1024
_MOST_PERCENT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    env_id: str
    steps: int
    """Of a fragment."""
    most_bytes: int


_CASES = (
    _Case(env_id="Hopper-v5", steps=256, most_bytes=2 * _KIB),
    _Case(env_id="Walker2d-v5", steps=256, most_bytes=2 * _KIB),
    _Case(env_id="HalfCheetah-v5", steps=256, most_bytes=2 * _KIB),
    _Case(env_id="Humanoid-v5", steps=256, most_bytes=2 * _KIB),
    _Case(env_id="ALE/SpaceInvaders-v5", steps=128, most_bytes=8 * _KIB),
    _Case(env_id="ALE/Pong-v5", steps=128, most_bytes=8 * _KIB),
)


def measure(effort: Effort) -> list[Row]:
    """Measure every environment."""
    return [row for case in _CASES for row in _rows(case, effort)]


def _rows(case: _Case, effort: Effort) -> list[Row]:
    progress(case.env_id)
    env = make_environment(EnvironmentRef(env_id=case.env_id))
    stepping = _Stepping(env)
    left = stepping.left_after(1)

    def share_of(action: Callable[[], object]) -> Callable[[], float]:
        def percent() -> float:
            taken_s = seconds(action, times=effort.of(10))
            return 100.0 * taken_s / seconds(lambda: stepping.run(case.steps))

        return percent

    def pass_on() -> None:
        # The same moment every time: going on from the last would end the episode some day.
        resume(env, decode(left))
        stepping.leave()

    samplers = {"going on": share_of(pass_on), "reset": share_of(stepping.begin)}
    times = interleaved(samplers, repeats=effort.of(15))
    sizes = [len(stepping.left_after(steps)) for steps in range(1, effort.of(200))]
    return [
        Row(
            what=f"{case.env_id}: share of {case.steps} steps",
            ours=Series(name="going on", unit="%", better="lower", samples=times["going on"]),
            peer=Series(name="reset", unit="%", better="lower", samples=times["reset"]),
            target=Target(of="ours", bound="at_most", value=_MOST_PERCENT),
        ),
        Row(
            what=f"{case.env_id}: largest of an episode's moments",
            ours=Series(name="kept", unit="B", better="lower", samples=(max(sizes),)),
            target=Target(of="ours", bound="at_most", value=case.most_bytes),
        ),
    ]


class _Stepping:
    """An environment under random actions, which no policy's time is added to."""

    def __init__(self, env: Env) -> None:
        self._env = env
        env.action_space.seed(0)
        self._actions = [env.action_space.sample() for _ in range(64)]
        self.begin()

    def begin(self) -> None:
        self._env.reset(seed=0)

    def run(self, steps: int) -> None:
        for step in range(steps):
            _, _, terminated, truncated, _ = self._env.step(self._actions[step % 64])
            if terminated or truncated:
                self._env.reset()

    def leave(self) -> bytes:
        """Return what an actor leaves: the state before its last step, and that step's action."""
        return encode(Snapshot(save_state(self._env), np.copy(self._actions[0]), 0.0, 0))

    def left_after(self, steps: int) -> bytes:
        self.begin()
        self.run(steps)
        return self.leave()
