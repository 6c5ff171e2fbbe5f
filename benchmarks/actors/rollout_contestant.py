"""Our actor and the bare simulator, measured on request, with the threads an actor has.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.actors.rollout_contestant ENV FRAGMENTS

Answers the lines `actor` and `simulator` with one measurement each. The simulator replays what the
actor did: from the same reset states, the same controls, for as many steps; so both integrate
the same physics, contacts included.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

from benchmarks.actors.real_actor import STEPS, RealActor
from shared.contracts.environment_spec import ContinuousActionSpec
from shared.policy.action_mapping import action_map
from shared.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One episode, or the part of it inside a fragment, as the simulator sees it."""

    position: NDArray[np.float64]  # [nq] at the reset
    velocity: NDArray[np.float64]  # [nv]
    controls: NDArray[np.float32]  # [steps, nu]


class _V5Environment(Protocol):
    """Members of Gymnasium's version 5 environments beside their common base."""

    observation_structure: dict[str, int]


class BareSimulator:
    """Nothing but `mj_step`: no observation, no reward, no policy."""

    def __init__(self, actor: RealActor, trajectories: Sequence[Trajectory]) -> None:
        env, action = actor.env.unwrapped, actor.environment.action
        assert isinstance(env, MujocoEnv)
        assert isinstance(action, ContinuousActionSpec)
        self._model, self._data, self._frame_skip = env.model, env.data, env.frame_skip
        to_box = action_map(
            actor.policy.action_mapping, np.array(action.low), np.array(action.high)
        )
        self._segments = [
            self._segment(observation, to_box(actions), env)
            for trajectory in trajectories
            for observation, actions in episodes(trajectory)
        ]

    def run(self) -> None:
        """Replay every segment."""
        step, model, data, frame_skip = mujoco.mj_step, self._model, self._data, self._frame_skip
        for segment in self._segments:
            mujoco.mj_resetData(model, data)
            data.qpos[:] = segment.position
            data.qvel[:] = segment.velocity
            mujoco.mj_forward(model, data)
            for control in segment.controls:
                data.ctrl[:] = control
                step(model, data, nstep=frame_skip)

    def _segment(
        self, observation: NDArray[np.floating], controls: NDArray[np.float32], env: MujocoEnv
    ) -> Segment:
        # Version 5 environments leave the first coordinates out of the observation: where on the
        # plane the body stands, which its physics does not depend on.
        position = env.init_qpos.copy()
        hidden = cast("_V5Environment", env).observation_structure["skipped_qpos"]
        position[hidden:] = observation[: self._model.nq - hidden]
        velocity = observation[self._model.nq - hidden :][: self._model.nv]
        return Segment(position=position, velocity=velocity.astype(np.float64), controls=controls)


def episodes(
    trajectory: Trajectory,
) -> list[tuple[NDArray[np.floating], NDArray[np.float32]]]:
    """Return the first observation and the actions # [steps, A] of each episode of a fragment."""
    ended = (trajectory.terminated | trajectory.truncated)[:, 0]  # [T]
    starts = [0, *(np.flatnonzero(ended[:-1]) + 1).tolist()]
    ends = [*starts[1:], len(ended)]
    observation, action = trajectory.observation[:, 0], trajectory.action[:, 0]
    return [
        (observation[start], action[start:end].astype(np.float32))
        for start, end in zip(starts, ends, strict=True)
    ]


def main() -> None:
    """Answer every line of standard input with one measurement."""
    env_id, count = sys.argv[1], int(sys.argv[2])
    actor = RealActor(env_id)
    simulator = BareSimulator(actor, actor.fragments(count))
    actions = {"actor": lambda: actor.fragments(count), "simulator": simulator.run}
    _say({"environment": env_id})
    for line in sys.stdin:
        start = time.perf_counter()
        actions[line.strip()]()
        _say({"steps": count * STEPS, "seconds": time.perf_counter() - start})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
