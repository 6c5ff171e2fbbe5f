"""Bytes and time of one trajectory on its way from an actor to the learner.

Beside pickle of the same arrays, and beside pickle of the columns that RLlib's sample batches
carry (observations twice, values and distribution inputs that our learner computes itself), which
is what the paper's implementation sends. Our time includes checking everything that arrives;
pickle's is that of code which runs whatever arrives.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.actors.real_actor import STEPS, RealActor
from benchmarks.measurement import Effort, interleaved, progress, seconds
from benchmarks.records.result import Row, Series
from shared.trajectory.trajectory import Trajectory, decode_trajectory, encode_trajectory

TITLE = f"One trajectory of {STEPS} steps on the wire"
_ENVIRONMENTS = ("Hopper-v5", "CartPole-v1")
_ARRAYS = (
    "observation",
    "final_observation",
    "action",
    "reward",
    "terminated",
    "truncated",
    "log_prob",
    "episode_returns",
    "episode_lengths",
)

Columns = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to bring a trajectory over."""

    name: str
    encode: Callable[[int], bytes]
    """Encodes the trajectory of this index."""
    decode: Callable[[bytes], object]


def measure(effort: Effort) -> list[Row]:
    """Measure every environment."""
    return [row for env_id in _ENVIRONMENTS for row in _rows(env_id, effort)]


def _rows(env_id: str, effort: Effort) -> list[Row]:
    progress(env_id)
    actor = RealActor(env_id)
    trajectories = actor.fragments(effort.of(16))
    ours, *others = _ways(actor, trajectories)
    count = range(len(trajectories))
    sizes = {way.name: tuple(len(way.encode(i)) for i in count) for way in (ours, *others)}
    times = _times((ours, *others), len(trajectories), effort)
    size_rows = [
        Row(
            what=f"{env_id}: bytes",
            ours=_series(ours.name, "B", sizes[ours.name]),
            peer=_series(other.name, "B", sizes[other.name]),
        )
        for other in others
    ]
    time_rows = [
        Row(
            what=f"{env_id}: encode and decode",
            ours=_series(ours.name, "µs", times[ours.name]),
            peer=_series(other.name, "µs", times[other.name]),
        )
        for other in others
    ]
    return size_rows + time_rows


def _ways(actor: RealActor, trajectories: Sequence[Trajectory]) -> list[Way]:
    same = [{name: getattr(t, name) for name in _ARRAYS} for t in trajectories]
    rllib = [rllib_columns(actor, t) for t in trajectories]

    def pickled(columns: Sequence[Columns]) -> Callable[[int], bytes]:
        return lambda index: pickle.dumps(columns[index], protocol=pickle.HIGHEST_PROTOCOL)

    return [
        Way(
            "codec",
            lambda index: encode_trajectory(trajectories[index]),
            lambda data: decode_trajectory(data, environment=actor.environment),
        ),
        Way("pickle", pickled(same), pickle.loads),
        Way("pickle, RLlib's columns", pickled(rllib), pickle.loads),
    ]


def _times(ways: Sequence[Way], count: int, effort: Effort) -> dict[str, tuple[float, ...]]:
    """Return microseconds per trajectory, there and back."""
    repeats = effort.of(20)

    def there_and_back(way: Way) -> Callable[[], None]:
        def run() -> None:
            for index in range(count):
                way.decode(way.encode(index))

        return run

    def sampler(way: Way) -> Callable[[], float]:
        run = there_and_back(way)
        return lambda: seconds(run, times=effort.of(5)) / count * 1e6

    return interleaved({way.name: sampler(way) for way in ways}, repeats=repeats)


def rllib_columns(actor: RealActor, trajectory: Trajectory) -> Columns:
    """Return the columns of RLlib's sample batch for one environment's fragment.

    As PPO's batches have them after postprocessing without `infos`; reals are float32.
    """
    observation = trajectory.observation[:, 0].astype(np.float32)  # [T + 1, O]
    steps = len(observation) - 1
    ended = (trajectory.terminated | trajectory.truncated)[:, 0]
    after = observation[1:].copy()
    cut = (trajectory.truncated & ~trajectory.terminated)[:, 0]
    after[cut] = trajectory.final_observation
    with torch.no_grad():
        rows = torch.from_numpy(observation[:-1])
        values = actor.network.values(rows).numpy()
        inputs = actor.network.policy_outputs(rows).numpy()
    episode = np.concatenate(([0], np.cumsum(ended)[:-1]))
    return {
        "obs": observation[:-1],
        "new_obs": after,
        "actions": trajectory.action[:, 0],
        "rewards": trajectory.reward[:, 0],
        "terminateds": trajectory.terminated[:, 0],
        "truncateds": trajectory.truncated[:, 0],
        "action_logp": trajectory.log_prob[:, 0],
        "action_dist_inputs": inputs,
        "vf_preds": values,
        "advantages": np.zeros(steps, np.float32),
        "value_targets": np.zeros(steps, np.float32),
        "eps_id": episode.astype(np.int64),
        "unroll_id": np.zeros(steps, np.int64),
        "agent_index": np.zeros(steps, np.int64),
        "t": np.arange(steps, dtype=np.int64),
    }


def _series(name: str, unit: str, samples: Sequence[float]) -> Series:
    return Series(name=name, unit=unit, better="lower", samples=tuple(samples))
