"""Training end to end: Hopper, every part real.

Cache, scaler, Lambda emulator, actors and learner are the processes of `nitro train`. Steps per
second count from the start of a job's first round to the end of its last.

PPO (Hopper-v5) stands beside PPO of Stable-Baselines3, in one environment and in 16, and of RLlib
in 16, with the same hyper-parameters, batch and epochs, in two settings: preset `paper` (two layers
of 256, 4,096 steps a round from 16 actors, 30 epochs) and preset `standard` (two layers of 64,
2,048 steps from 2 actors, 10 epochs, observations and rewards normalised). What a peer does not
have is in its row's `about`.

The paper's setting is bound by arithmetic: 6 operations per weight and pass are some 25 million for
every environment step. A row tells how much of one core's peak, measured in the same run, our
gradient steps reach (policy and value function have a core each, if there are two), and its `about`
the steps per second that one core at this peak could learn from, rollouts not counted.

IMPALA and IMPACT with two rounds in flight, 16 actors of 256 steps, stand beside Sample Factory's
asynchronous PPO on Hopper-v4, the newest it knows: the same network (two tanh layers of 64),
batches of 1,024 steps, each sample used once; IMPACT replays besides, while no actor has anything
new. A peer that cannot be installed is named and left out.
"""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.actors.real_actor import STEPS
from benchmarks.arithmetic import core_peak, flops_per_step
from benchmarks.local_training import LocalTraining
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.interpreters import (
    RLLIB,
    SAMPLE_FACTORY,
    if_installable,
    stable_baselines3,
)
from benchmarks.records.result import Row, Series, Target
from nitro.client.client import NitroClient
from nitro.local.system import LocalSystem
from shared.contracts.environment_ref import EnvironmentRef
from shared.contracts.job_spec import JobSpec
from shared.contracts.rounds import RoundResult
from shared.environments.describing import describe
from shared.hyperparameters.ppo import PpoHyperparameters
from shared.hyperparameters.presets import Preset, complete_sets

TITLE = "Training throughput, Hopper, end to end"
_ENVIRONMENT = "Hopper-v5"
_OLD_ENVIRONMENT = "Hopper-v4"
_NUM_ACTORS = 16
_NUM_ENVS = 16
"""Of a peer, where it has several."""
_OVERLAPPING_ROUNDS = 24
"""Of one job with several rounds in flight: their ends are near each other."""
_SHARE_PERCENT: dict[Preset, float] = {"paper": 5.0, "standard": 8.0}
"""Most of a round that the curvature may take."""
_OVER_SB3, _OVER_RLLIB, _OVER_SAMPLE_FACTORY = 4.0, 6.0, 1.5
_SMALL_NETWORK = {
    "hidden_sizes": (64, 64),
    "train_batch_size": 1024,
    "minibatch_size": 1024,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One preset of PPO and the rounds it is meant for."""

    preset: Preset
    num_actors: int
    steps_per_actor: int
    rounds: int
    """Of one job of ours: one sample."""
    updates: int
    """Of one sample of a peer."""

    @property
    def what(self) -> str:
        return f"PPO, preset {self.preset}"

    @property
    def actors(self) -> str:
        return f"{self.num_actors} actors of {self.steps_per_actor} steps"


_SETTINGS = (
    _Setting(preset="paper", num_actors=_NUM_ACTORS, steps_per_actor=STEPS, rounds=6, updates=2),
    _Setting(preset="standard", num_actors=2, steps_per_actor=1024, rounds=20, updates=6),
)


def measure(effort: Effort) -> list[Row]:
    """Train in turn with the peers: first PPO, then the algorithms that learn off-policy."""
    peak = core_peak(effort)
    progress("starting the local system")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSystem(Path(folder)) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        system.wait_ready()

        def ours(spec: JobSpec) -> LocalTraining:
            return LocalTraining(system=system, client=client, runs_dir=Path(folder), spec=spec)

        rows = []
        for setting in _SETTINGS:
            spec = _spec(
                "ppo",
                _ENVIRONMENT,
                effort.of(setting.rounds, quick=2),
                preset=setting.preset,
                num_actors=setting.num_actors,
                steps_per_actor=setting.steps_per_actor,
            )
            rows += _synchronous(setting, ours(spec), effort, peak=peak)
        overlapping = effort.of(_OVERLAPPING_ROUNDS, quick=4)
        off_policy = {
            name: ours(_spec(name, _OLD_ENVIRONMENT, overlapping, hyperparameters=_SMALL_NETWORK))
            for name in ("impala", "impact")
        }
        return rows + _asynchronous(off_policy, effort)


def _spec(
    algorithm: str,
    env_id: str,
    rounds: int,
    *,
    preset: Preset = "paper",
    hyperparameters: Mapping[str, object] | None = None,
    num_actors: int = _NUM_ACTORS,
    steps_per_actor: int = STEPS,
) -> JobSpec:
    return JobSpec.model_validate(
        {
            "env_id": env_id,
            "algorithm": algorithm,
            "preset": preset,
            "hyperparameters": dict(hyperparameters or {}),
            "steps_per_actor": steps_per_actor,
            "actors": {"min": num_actors, "max": num_actors},
            "scaling": {"policy": "fixed", "num_actors": num_actors},
            "stop": {"max_rounds": rounds, "budget_usd": 100.0},
            "evaluation": {"every_rounds": 0},
        }
    )


def _synchronous(
    setting: _Setting, ours: LocalTraining, effort: Effort, *, peak: float
) -> list[Row]:
    preset, updates = setting.preset, str(effort.of(setting.updates, quick=1))
    peers = {
        "1": stable_baselines3("train", preset, _ENVIRONMENT, "1", updates),
        "16": stable_baselines3("train", preset, _ENVIRONMENT, str(_NUM_ENVS), updates),
        **if_installable(RLLIB, preset, _ENVIRONMENT, str(_NUM_ENVS), updates),
    }
    samples, about = _in_turn({"nitro": ours}, peers, effort)
    nitro = _series(f"nitro, {setting.actors}", samples["nitro"])

    def row(key: str, name: str, environments: str, ratio: float | None) -> Row:
        return Row(
            what=f"{setting.what}, beside a learner with {environments}",
            ours=nitro,
            peer=_series(name, samples[key], about[key]),
            target=Target(of="ratio", bound="at_least", value=ratio) if ratio else None,
        )

    several = f"{_NUM_ENVS} environments"
    sb3 = f"SB3 {about['1']['stable-baselines3']}"
    rows = [row("1", sb3, "1 environment", None), row("16", sb3, several, _OVER_SB3)]
    if RLLIB.name in peers:
        rllib = f"RLlib {about[RLLIB.name]['ray']}"
        rows.append(row(RLLIB.name, rllib, several, _OVER_RLLIB))
    learned = ours.results[ours.spec.stop.max_rounds :]  # without the warm-up job
    return [*rows, _arithmetic_row(setting, learned, peak), _share_row(setting, learned)]


def _asynchronous(ours: dict[str, LocalTraining], effort: Effort) -> list[Row]:
    steps = _NUM_ACTORS * STEPS * effort.of(_OVERLAPPING_ROUNDS, quick=4)
    peers = if_installable(SAMPLE_FACTORY, _OLD_ENVIRONMENT, str(steps))
    samples, about = _in_turn(ours, peers, effort)
    peer = None
    if peers:
        name = f"Sample Factory {about[SAMPLE_FACTORY.name]['sample-factory']}"
        peer = _series(name, samples[SAMPLE_FACTORY.name], about[SAMPLE_FACTORY.name])
    target = Target(of="ratio", bound="at_least", value=_OVER_SAMPLE_FACTORY) if peer else None
    return [
        Row(
            what=f"{name.upper()}, {training.spec.rounds_in_flight} rounds in flight",
            ours=_series(f"nitro, {_NUM_ACTORS} actors", samples[name], _learning(training)),
            peer=peer,
            target=target,
        )
        for name, training in ours.items()
    ]


def _in_turn(
    ours: Mapping[str, LocalTraining], peers: Mapping[str, Contestant], effort: Effort
) -> tuple[dict[str, tuple[float, ...]], dict[str, dict[str, str]]]:
    """Return everybody's samples, and what the peers say about themselves."""
    with ExitStack() as stack:
        running = {name: stack.enter_context(peer) for name, peer in peers.items()}
        progress(f"training in turn: {', '.join((*ours, *running))}")
        samplers = {name: training.sample for name, training in ours.items()}
        samplers |= {name: peer.rate for name, peer in running.items()}
        samples = interleaved(samplers, repeats=effort.of(4, quick=1))
        return samples, {name: peer.about for name, peer in running.items()}


def _series(name: str, samples: tuple[float, ...], about: dict[str, str] | None = None) -> Series:
    return Series(name=name, unit="steps/s", better="higher", samples=samples, about=about or {})


def _learning(training: LocalTraining) -> dict[str, str]:
    """Return how much learning went on at that speed."""
    results = training.results
    lags = [r.stats["policy_lag_mean"] for r in results if "policy_lag_mean" in r.stats]
    return {
        "updates per round": f"{sum(r.stats['updates'] for r in results) / len(results):.2f}",
        "of these replays": f"{sum(r.stats['replays'] for r in results) / len(results):.2f}",
        "mean policy lag": f"{sum(lags) / max(1, len(lags)):.2f}",
    }


def _arithmetic_row(setting: _Setting, results: list[RoundResult], peak: float) -> Row:
    """Return how much of one core's peak the updates reach."""
    hyperparameters = complete_sets()[("ppo", setting.preset)]
    assert isinstance(hyperparameters, PpoHyperparameters)
    flops = flops_per_step(describe(EnvironmentRef(env_id=_ENVIRONMENT)), hyperparameters)
    shares = [100 * r.env_steps * flops / r.timing.update_s / peak for r in results]
    about = {
        "operations per environment step": f"{flops / 1e6:.1f} million",
        "one core's peak": f"{peak / 1e9:.0f} billion per second",
        "steps/s one core at its peak could learn from": f"{peak / flops:,.0f}",
    }
    series = Series(name="nitro", unit="%", better="higher", samples=tuple(shares), about=about)
    return Row(what=f"{setting.what}, arithmetic of the updates in one core's peak", ours=series)


def _share_row(setting: _Setting, results: list[RoundResult]) -> Row:
    shares = [100 * r.timing.curvature_s / r.timing.total_s for r in results]
    return Row(
        what=f"{setting.what}, share of the curvature in a round of {setting.actors}",
        ours=Series(name="nitro", unit="%", better="lower", samples=tuple(shares)),
        target=Target(of="ours", bound="at_most", value=_SHARE_PERCENT[setting.preset]),
    )
