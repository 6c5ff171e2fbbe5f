"""What `test_sb3.py` looks at, found in the library's own interpreter; prints one line of JSON."""

import json
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import nitro
from nitro.errors import CommandError
from nitro.integrations.sb3 import NitroPPO

_SMALL: dict[str, Any] = {"batch_size": 32, "n_epochs": 2, "seed": 1, "device": "cpu"}


class Told(BaseCallback):  # type: ignore[misc] # the library has no types
    """Notes what it is told, and ends the training after so many rollouts."""

    def __init__(self, rollouts: int = 10**9) -> None:
        super().__init__()
        self.columns: list[int] = []
        self.episodes: list[tuple[float, int]] = []
        self.steps = 0
        self._rollouts = rollouts

    def _on_rollout_start(self) -> None:
        self.columns.append(0)

    def _on_step(self) -> bool:
        self.steps += 1
        infos = self.locals["infos"]
        self.columns[-1] = len(infos)
        ended = [info["episode"] for info in infos if "episode" in info]
        self.episodes += [(each["r"], each["l"]) for each in ended]
        return len(self.columns) <= self._rollouts


def rollouts_of_changing_width() -> dict[str, Any]:
    """Three rounds of a schedule, the third ended by a callback, and a model that is loaded."""
    counts = {"policy": "schedule", "num_actors": [2, 4, 3, 3]}
    with nitro.ActorPool(
        "CartPole-v1", fragment=32, actors=(2, 4), policy=counts, budget_usd=10.0
    ) as pool:
        model = NitroPPO("MlpPolicy", pool=pool, **_SMALL)
        told = Told(rollouts=2)
        model.learn(10_000, callback=told)
        before = model.num_timesteps
        model.save("model")
        loaded = NitroPPO.load("model", pool=pool)
        same = equal(model, loaded)
        loaded.learn(1, reset_num_timesteps=False)
    return {
        "columns": told.columns,
        "steps_before": before,
        "steps_after": loaded.num_timesteps,
        "told": told.episodes,
        "buffered": [(each["r"], each["l"]) for each in model.ep_info_buffer],
        "loaded_is_equal": same,
        "loaded_has_learned": not equal(model, loaded),
        "loaded_alone_is_equal": equal(model, NitroPPO.load("model")),
        "refused_without_pool": refusal(lambda: load_alone().learn(1)),
    }


def equal(one: NitroPPO, other: NitroPPO) -> bool:
    """Return whether two models have the same weights."""
    theirs = other.policy.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in one.policy.state_dict().items())


def load_alone() -> NitroPPO:
    """Return the saved model with an environment and no pool."""
    return NitroPPO.load("model", env=gymnasium.make("CartPole-v1"))


def ends_with_the_job() -> dict[str, Any]:
    """A job of two rounds ends the training like a callback would."""
    with nitro.ActorPool("CartPole-v1", fragment=32, actors=2, max_rounds=2) as pool:
        model = NitroPPO("MlpPolicy", pool=pool, **_SMALL)
        model.learn(10_000)
    return {"steps": model.num_timesteps, "stopped": pool.stopped}


def cut_and_scaled(**settings: Any) -> dict[str, Any]:
    """Episodes of continuous actions, cut every 20 steps: what the buffer holds of them."""
    with nitro.ActorPool("Pendulum-v1", fragment=50, actors=2, horizon=20) as pool:
        model = NitroPPO("MlpPolicy", pool=pool, gamma=0.9, **_SMALL, **settings)
        batches: list[nitro.Batch] = []
        collect = pool.collect

        def noted(module: Any, actors: int | None = None) -> nitro.Batch:
            batches.append(collect(module, actors))
            return batches[-1]

        pool.collect = noted  # type: ignore[method-assign]
        off = []
        for _ in range(2):  # the second with a policy, and statistics, that were learned
            weights = [p.detach().clone() for p in model.policy.parameters()]
            found = rollout(model, batches)
            off.append(found)
            changed = any(
                not torch.equal(a, b)
                for a, b in zip(weights, model.policy.parameters(), strict=True)
            )
    scale = getattr(model.policy.features_extractor, "scale", torch.ones(1))
    assert model._round is not None
    measured = model._round[1]  # as the detector takes them
    return {
        "off": off,
        "learned": changed,
        "scaled": bool((scale != 1).any()),
        "measured": [float(measured.mean()), float(measured.std())],
    }


def rollout(model: NitroPPO, batches: list[nitro.Batch]) -> dict[str, float]:
    """Collect and learn; return how far the buffer is from what is computed here, naively."""

    class Looking(BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            found.update(distances(model, batches[-1]))

    found: dict[str, float] = {}
    model.learn(1, callback=Looking(), reset_num_timesteps=False)
    return found


def distances(model: NitroPPO, batch: nitro.Batch) -> dict[str, float]:
    """Return the largest differences of a full buffer from the batch, as computed here."""
    buffer = model.rollout_buffer
    with torch.no_grad():

        def values(observations: Any) -> Any:
            return model.policy.predict_values(torch.tensor(observations)).numpy().reshape(-1)

        flat = torch.tensor(batch.flat().observations)
        _, log_probs, _ = model.policy.evaluate_actions(flat, torch.tensor(batch.flat().actions))
        expected = np.zeros_like(batch.rewards)
        for part in batch.episodes():
            beyond = np.float32(0)
            if part.last_observation is not None and not part.terminated:
                beyond = values(part.last_observation[None])[0]
            following, value = 0.0, np.append(values(part.observations), beyond)
            for k in reversed(range(len(part.rewards))):
                delta = part.rewards[k] + model.gamma * value[k + 1] - value[k]
                following = delta + model.gamma * model.gae_lambda * following
                expected[part.first_step + k, part.column] = following
    return {
        "log_prob": float(np.abs(log_probs.numpy() - batch.log_probs.reshape(-1)).max()),
        "advantage": float(np.abs(expected - buffer.advantages).max()),
        "cut": len(batch.final_steps),
    }


def refusal(attempt: Callable[[], object]) -> str:
    """Return the message that something is refused with."""
    try:
        attempt()
    except CommandError as error:
        return str(error)
    return "not refused"


class Normed(FlattenExtractor):  # type: ignore[misc]
    """A custom extractor whose output is as wide as its input."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space)
        self.norm = torch.nn.LayerNorm(self.features_dim)

    def forward(self, observations: torch.Tensor) -> Any:
        return self.norm(super().forward(observations))


def value_scales() -> list[bool]:
    """Whether actions and values see normalised observations, with an extractor of each."""
    with nitro.ActorPool("Pendulum-v1", fragment=50, actors=2) as pool:
        model = NitroPPO(
            "MlpPolicy",
            pool=pool,
            normalize_observations=True,
            policy_kwargs={"share_features_extractor": False},
            **_SMALL,
        )
        model.learn(1)
    both = model.policy.pi_features_extractor, model.policy.vf_features_extractor
    assert both[0] is not both[1]
    return [bool((extractor.scale != 1).all()) for extractor in both]


class Pairs(gymnasium.Env[Any, Any]):
    """An environment with a dictionary for an observation."""

    observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(2)


def refusals() -> dict[str, str]:
    """What cannot be done, and how that is said."""
    normalised = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]))
    pool = nitro.ActorPool("CartPole-v1", fragment=32, actors=2)  # not entered: nothing starts
    return {
        "gSDE": refusal(lambda: NitroPPO("MlpPolicy", "Pendulum-v1", use_sde=True)),
        "Dict": refusal(lambda: NitroPPO("MultiInputPolicy", Pairs())),
        "VecNormalize": refusal(lambda: NitroPPO("MlpPolicy", normalised)),
        "discrete": refusal(lambda: NitroPPO("MlpPolicy", "FrozenLake-v1")),
        "activation": refusal(
            lambda: NitroPPO(
                "MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": torch.nn.ELU}
            )
        ),
        "extractor": refusal(
            lambda: NitroPPO(
                "MlpPolicy", "CartPole-v1", policy_kwargs={"features_extractor_class": Normed}
            )
        ),
        "two extractors": refusal(
            lambda: NitroPPO(
                "MlpPolicy",
                "CartPole-v1",
                normalize_observations=True,
                policy_kwargs={"features_extractor_class": Normed},
            )
        ),
        "n_steps": refusal(lambda: NitroPPO("MlpPolicy", pool=pool, n_steps=64)),
        "is_a_ppo": str(issubclass(NitroPPO, PPO)),
    }


class Offset(gymnasium.Env[Any, Any]):
    """Takes nothing but actions of its space, whose choices do not begin at 0."""

    observation_space = spaces.Box(-1, 1, (2,))

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space


def offsets() -> list[bool]:
    """Whether what a model predicts is in action spaces that do not begin at 0."""
    inside = []
    seen = np.zeros(2, np.float32)
    for space in (spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3], start=[-4, 7])):
        model = NitroPPO("MlpPolicy", Offset(space), **_SMALL)
        alone, _ = model.predict(seen, deterministic=True)
        several, _ = model.predict(np.stack([seen] * 4))
        inside += [space.contains(each) for each in (alone, *several)]
    return inside


def main() -> None:
    """Print all of it."""
    told = {
        "widths": rollouts_of_changing_width(),
        "end": ends_with_the_job(),
        "plain": cut_and_scaled(),
        "normalised": cut_and_scaled(normalize_observations=True),
        "value scales": value_scales(),
        "offsets": offsets(),
        "refusals": refusals(),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
