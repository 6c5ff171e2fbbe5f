"""Training end to end: Hopper, 16 actors of 256 steps a round, every part real.

Cache, scaler, Lambda emulator, actors and learner are the processes of `nitro train`. Steps per
second count from the start of a job's first round to the end of its last.

PPO (preset `paper`, Hopper-v5) stands beside PPO of Stable-Baselines3, in one environment and in
16, and of RLlib, with the same hyper-parameters, batch and epochs. IMPALA and IMPACT with two
rounds in flight stand beside Sample Factory's asynchronous PPO on Hopper-v4, the newest it knows:
the same network (two tanh layers of 64), batches of 1,024 steps, each sample used once; IMPACT
replays besides, while no actor has anything new. A peer that cannot be installed is named and left
out.
"""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contestant import Contestant
from benchmarks.local_training import LocalTraining
from benchmarks.measurement import Effort, interleaved, progress
from benchmarks.peers import RLLIB, SAMPLE_FACTORY, Peer, PeerError, contestant, stable_baselines3
from benchmarks.real_actor import STEPS
from benchmarks.record import Row, Series, Target
from nitro.client import NitroClient
from nitro.local import LocalSystem
from shared.contracts import RoundResult
from shared.job_spec import JobSpec

TITLE = "Training throughput, Hopper, end to end"
_ENVIRONMENT = "Hopper-v5"
_OLD_ENVIRONMENT = "Hopper-v4"
_NUM_ACTORS = 16
_ROUNDS = 6
"""Of one job of ours: one sample."""
_OVERLAPPING_ROUNDS = 24
"""Of one job with several rounds in flight: their ends are near each other."""
_UPDATES = 2
"""Of one sample of a peer."""
_SHARE_PERCENT = 3.0
_OVER_RLLIB, _OVER_SAMPLE_FACTORY = 6.0, 1.5
_SMALL_NETWORK = {
    "hidden_sizes": (64, 64),
    "train_batch_size": 1024,
    "minibatch_size": 1024,
}


def measure(effort: Effort) -> list[Row]:
    """Train in turn with the peers: first PPO, then the algorithms that learn off-policy."""
    progress("starting the local system")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSystem(Path(folder)) as system,
        NitroClient(system.api_url, system.token) as client,
    ):
        system.wait_ready()

        def ours(spec: JobSpec) -> LocalTraining:
            return LocalTraining(system=system, client=client, runs_dir=Path(folder), spec=spec)

        ppo = _spec("ppo", _ENVIRONMENT, effort.of(_ROUNDS, quick=2), {})
        rows = _synchronous(ours(ppo), effort)
        overlapping = effort.of(_OVERLAPPING_ROUNDS, quick=4)
        off_policy = {
            name: ours(_spec(name, _OLD_ENVIRONMENT, overlapping, _SMALL_NETWORK))
            for name in ("impala", "impact")
        }
        return rows + _asynchronous(off_policy, effort)


def _spec(
    algorithm: str, env_id: str, rounds: int, hyperparameters: Mapping[str, object]
) -> JobSpec:
    return JobSpec.model_validate(
        {
            "env_id": env_id,
            "algorithm": algorithm,
            "hyperparameters": dict(hyperparameters),
            "steps_per_actor": STEPS,
            "actors": {"min": _NUM_ACTORS, "max": _NUM_ACTORS},
            "scaling": {"policy": "fixed", "num_actors": _NUM_ACTORS},
            "stop": {"max_rounds": rounds, "budget_usd": 100.0},
            "evaluation": {"every_rounds": 0},
        }
    )


def _synchronous(ours: LocalTraining, effort: Effort) -> list[Row]:
    updates = str(effort.of(_UPDATES, quick=1))
    peers = {
        "1": stable_baselines3("train", _ENVIRONMENT, "1", updates),
        "16": stable_baselines3("train", _ENVIRONMENT, str(_NUM_ACTORS), updates),
        **if_installable(RLLIB, _ENVIRONMENT, str(_NUM_ACTORS), updates),
    }
    samples, about = _in_turn({"nitro": ours}, peers, effort)
    nitro = _series(f"nitro, {_NUM_ACTORS} actors", samples["nitro"])
    rows = [
        Row(
            what=f"PPO beside a learner with {environments}",
            ours=nitro,
            peer=_series(f"SB3 {about[key]['stable-baselines3']}", samples[key], about[key]),
        )
        for key, environments in (("1", "1 environment"), ("16", f"{_NUM_ACTORS} environments"))
    ]
    if RLLIB.name in peers:
        name = f"RLlib {about[RLLIB.name]['ray']}"
        rows.append(
            Row(
                what=f"PPO beside a learner with {_NUM_ACTORS} environments",
                ours=nitro,
                peer=_series(name, samples[RLLIB.name], about[RLLIB.name]),
                target=Target(of="ratio", bound="at_least", value=_OVER_RLLIB),
            )
        )
    # Without the warm-up job.
    return [*rows, _share_row(ours.results[ours.spec.stop.max_rounds :])]


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
        samplers |= {name: _rate_of(peer) for name, peer in running.items()}
        samples = interleaved(samplers, repeats=effort.of(4, quick=1))
        return samples, {name: peer.about for name, peer in running.items()}


def _rate_of(peer: Contestant) -> Callable[[], float]:
    return lambda: peer.measure().steps_per_s


def if_installable(peer: Peer, *arguments: str) -> dict[str, Contestant]:
    """Return the peer by its name; nothing, and say so, where it cannot be installed."""
    try:
        return {peer.name: contestant(peer, *arguments)}
    except PeerError as error:
        progress(f"{peer.name} is left out: {error}")
        return {}


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


def _share_row(results: list[RoundResult]) -> Row:
    shares = [100 * r.timing.curvature_s / r.timing.total_s for r in results]
    return Row(
        what=f"share of the curvature in a round of {_NUM_ACTORS} actors",
        ours=Series(name="nitro", unit="%", better="lower", samples=tuple(shares)),
        target=Target(of="ours", bound="at_most", value=_SHARE_PERCENT),
    )
