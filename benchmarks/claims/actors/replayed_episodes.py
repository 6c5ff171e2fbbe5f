"""An actor's cost of replays: the share of its time that repeats episodes.

By the mean place at which episodes are left. A repeated step is the simulator's alone, a new one is
the simulator's and the policy's; resets are in both. Hopper's state could be saved: here it is not.
A process that still has the environment repeats nothing.
"""

from benchmarks.actors.real_actor import STEPS, RealActor
from benchmarks.measurement import Effort, interleaved, progress, seconds
from benchmarks.records.result import Row, Series
from shared.environments.packages import import_environment_packages
from shared.environments.state.replay import Recorder
from shared.trajectory.seeds import actor_seed

TITLE = "Replays: the share of a fragment's time that repeats an episode"
PLACES = (100, 500, 1000)
_CASES = {"LunarLander-v3": 256, "Hopper-v5": 256, "highway-v0": 16}
"""Steps that are timed: a step of highway-env takes thousands of times as long as Hopper's."""


def measure(effort: Effort) -> list[Row]:
    """Measure every environment."""
    import_environment_packages(("highway_env",))
    return [row for env_id, steps in _CASES.items() for row in _rows(env_id, steps, effort)]


def _rows(env_id: str, steps: int, effort: Effort) -> list[Row]:
    progress(env_id)
    actor = RealActor(env_id)
    recorder = Recorder(actor.env, dtype=actor.environment.observation.dtype)
    actor.env.action_space.seed(0)
    actions = [actor.env.action_space.sample() for _ in range(effort.of(steps, quick=4))]
    task = actor.task(0).model_copy(update={"steps": len(actions)})

    def repeat() -> None:
        episodes = 0
        recorder.reset(actor_seed(0, mode="sample", round_index=0, actor_index=0))
        for action in actions:
            _, _, terminated, truncated, _ = recorder.step(action)
            if terminated or truncated:
                episodes += 1
                recorder.reset(episodes)

    samplers = {
        "repeated": lambda: seconds(repeat) / len(actions),
        "new": lambda: seconds(lambda: actor.roll_out(task)) / len(actions),
    }
    times = interleaved(samplers, repeats=effort.of(9))
    rows = []
    for place in PLACES:
        shares = tuple(
            100.0 * place * old_s / (place * old_s + STEPS * new_s)
            for old_s, new_s in zip(times["repeated"], times["new"], strict=True)
        )
        series = Series(name="replay", unit="%", better="lower", samples=shares)
        what = f"{env_id}: {place:,} steps repeated, share of them and {STEPS} new ones"
        rows.append(Row(what=what, ours=series))
    return rows
