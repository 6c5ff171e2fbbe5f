"""An actor's cost of a game: bytes on the wire, one forward pass, one environment step.

Beside pickle of the stacked observations, which is what the paper's implementation sends; beside
torch on one thread, as an actor has one core; and beside Gymnasium's own wrappers.
"""

import pickle
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from benchmarks.actors.real_actor import STEPS, RealActor
from benchmarks.measurement import Effort, interleaved, progress, seconds
from benchmarks.records.result import Row, Series, Target
from learning.networks.building import build_network, policy_payload
from shared.contracts.environment_spec import DiscreteActionSpec, EnvironmentSpec, ObservationSpec
from shared.environments import atari
from shared.hyperparameters.ppo import PAPER
from shared.policy.blocks import CONV_NETWORKS, ConvNetworkName
from shared.policy.numpy_policy import load_policy
from shared.trajectory.trajectory import encode_trajectory

TITLE = f"Atari: an actor's fragment of {STEPS} steps"
_GAMES = ("ALE/SpaceInvaders-v5", "ALE/Qbert-v5", "ALE/Gravitar-v5")
_TARGET_GAME = "ALE/SpaceInvaders-v5"
_BYTES_PER_STEP = Target(of="ours", bound="at_most", value=200)
_IMAGES = EnvironmentSpec(
    env_id=_TARGET_GAME,
    observation=ObservationSpec(shape=(4, 84, 84), dtype="uint8", frame_stack=4),
    action=DiscreteActionSpec(n=6),
    max_episode_steps=None,
    versions={},
)


def measure(effort: Effort) -> list[Row]:
    """Measure the three claims."""
    wire = [_wire_row(env_id, effort) for env_id in _GAMES]
    return [*wire, *(_forward_row(name, effort) for name in CONV_NETWORKS), _step_row(effort)]


def _wire_row(env_id: str, effort: Effort) -> Row:
    progress(env_id)
    trajectories = RealActor(env_id).fragments(effort.of(8))
    ours = [len(encode_trajectory(t)) / STEPS for t in trajectories]
    pickled = [
        len(pickle.dumps(t.observation, protocol=pickle.HIGHEST_PROTOCOL)) / STEPS
        for t in trajectories
    ]
    return Row(
        what=f"{env_id}: bytes per step",
        ours=_series("everything, frames once", "B", "lower", ours),
        peer=_series("pickle of stacked observations", "B", "lower", pickled),
        target=_BYTES_PER_STEP if env_id == _TARGET_GAME else None,
    )


def _forward_row(name: ConvNetworkName, effort: Effort) -> Row:
    torch.set_num_threads(1)
    network = build_network(_IMAGES, PAPER.model_copy(update={"image_network": name}), seed=0)
    policy = load_policy(*policy_payload(network)).network
    image = np.random.default_rng(0).integers(256, size=(1, 4, 84, 84), dtype=np.uint8)
    out, forward = np.empty((1, 6), np.float32), policy.forward_pass(1)
    tensor = torch.from_numpy(image)

    def numpy_pass() -> None:
        forward(image, out)

    def torch_pass() -> None:
        with torch.inference_mode():
            network.policy_outputs(tensor)

    def sampler(action: Callable[[], None]) -> Callable[[], float]:
        return lambda: seconds(action, times=effort.of(300)) * 1e6

    samples = interleaved(
        {"numpy": sampler(numpy_pass), "torch": sampler(torch_pass)}, repeats=effort.of(20)
    )
    return Row(
        what=f"{name}: forward pass of one image",
        ours=_series("NumPy", "µs", "lower", samples["numpy"]),
        peer=_series("torch, one thread", "µs", "lower", samples["torch"]),
        target=Target(of="ratio", bound="at_least", value=1.0),
    )


def _step_row(effort: Effort) -> Row:
    atari.register_games()
    ours = atari.make_game("SpaceInvadersNoFrameskip-v4", {"terminal_on_life_loss": False})
    bare = gymnasium.make("SpaceInvadersNoFrameskip-v4", disable_env_checker=True)
    wrapped = FrameStackObservation(AtariPreprocessing(bare), 4)
    num_steps = effort.of(1000, quick=20)

    def sampler(env: gymnasium.Env[object, object]) -> Callable[[], float]:
        actions = np.random.default_rng(0).integers(6, size=num_steps).tolist()

        def play() -> None:
            env.reset(seed=0)
            for action in actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

        return lambda: num_steps / seconds(play)

    samples = interleaved(
        {"ours": sampler(ours), "peer": sampler(wrapped)},
        repeats=effort.of(10),
    )
    return Row(
        what="SpaceInvaders: steps of the environment alone",
        ours=_series("shared.environments.atari", "steps/s", "higher", samples["ours"]),
        peer=_series("Gymnasium's wrappers", "steps/s", "higher", samples["peer"]),
    )


def _series(name: str, unit: str, better: str, samples: Sequence[float]) -> Series:
    return Series.model_validate(
        {"name": name, "unit": unit, "better": better, "samples": tuple(samples)}
    )
