"""Our Hessian beside that of the libraries people use for it, on the same policy and samples.

Products with one direction must agree; eigenvalues are compared as far as each library finds them.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.claims.learner.curvature import SUBJECTS
from benchmarks.measurement import Effort, interleaved, progress, seconds
from benchmarks.peers.contestant import Contestant
from benchmarks.peers.interpreters import hessian_library
from benchmarks.records.result import Row, Series, Target
from learning.cpu.torch_settings import configure_torch
from learning.detectors.detector import PolicySamples
from learning.detectors.hessian import HessianDetector
from learning.detectors.sample_choice import chosen_samples
from learning.detectors.surrogate import Objective, surrogate
from learning.networks.mlp_network import MlpActorCritic
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.rounds import Curvature
from shared.trajectory.columns import Columns

TITLE = "Hessian of the surrogate beside other libraries', Hopper-v5, 16 actors of 256 steps"
_RULE = DetectorRule()
_TOLERATED_PERCENT = 1.0
_TOLERATED_PRODUCT = 1e-4
"""Relative: both sides are float32."""


def measure(effort: Effort) -> list[Row]:
    """Measure the paper's MLP, the network the libraries are told of layer by layer."""
    configure_torch()
    progress("one round of rollouts and its update")
    network, batch = SUBJECTS["MLP"].updated_policy(effort)
    assert isinstance(network, MlpActorCritic)
    _ours(network, batch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "surrogate.npz"
        np.savez(path, allow_pickle=False, **_arrays(network, batch))
        with (
            hessian_library("pyhessian", str(path)) as pyhessian,
            hessian_library("eigenthings", str(path)) as eigenthings,
        ):
            progress("measuring in turn")
            samples = interleaved(
                {
                    "ours": lambda: seconds(lambda: _ours(network, batch)),
                    "pyhessian": lambda: pyhessian.measure().seconds,
                    "eigenthings": lambda: eigenthings.measure().seconds,
                },
                repeats=effort.of(3, quick=1),
                warm_up=False,  # peers found the spectrum once before they said hello
            )
            peers = {"pyhessian": pyhessian, "eigenthings": eigenthings}
            found = _ours(network, batch)
            return [
                row
                for name, peer in peers.items()
                for row in _rows(found, peer, samples["ours"], samples[name])
            ]


def _rows(
    ours: Curvature, peer: Contestant, our_s: tuple[float, ...], peer_s: tuple[float, ...]
) -> list[Row]:
    library = peer.about["library"]
    return [
        Row(
            what=f"{library}: distance of its product with a direction from ours",
            ours=_series("ours", "of its length", (float(peer.about["product_distance"]),)),
            target=Target(of="ours", bound="at_most", value=_TOLERATED_PRODUCT),
        ),
        *(_value_row(library, float(value), ours) for value in peer.about["eigenvalues"].split()),
        Row(
            what=f"{library}: time",
            ours=_series("ours, both ends", "s", our_s),
            peer=Series(
                name=library, unit="s", better="lower", samples=peer_s, about=dict(peer.about)
            ),
        ),
    ]


def _value_row(library: str, value: float, ours: Curvature) -> Row:
    end, found = ("λmax", ours.lambda_max) if value > 0 else ("λmin", ours.lambda_min)
    return Row(
        what=f"{library}: distance of our {end} from its {value:.4g}",
        ours=_series("ours", "%", (100 * abs(found - value) / abs(value),)),
        target=Target(of="ours", bound="at_most", value=_TOLERATED_PERCENT),
    )


def _ours(network: MlpActorCritic, batch: Columns[Tensor]) -> Curvature:
    curvature = HessianDetector(_RULE).measure(network, PolicySamples(batch=batch))
    if curvature is None:
        raise RuntimeError("the round has no curvature to measure")
    return curvature


def _arrays(network: MlpActorCritic, batch: Columns[Tensor]) -> dict[str, NDArray[np.generic]]:
    samples, weights = chosen_samples(batch, _RULE, network.distribution)
    observation, action = batch.observation[samples], batch.action[samples]
    advantage = batch.advantage[samples] * weights
    objective = Objective(
        network,
        lambda parameters: surrogate(
            network, parameters, observation=observation, action=action, advantage=advantage
        ),
    )
    direction = torch.randn(objective.size, generator=torch.Generator().manual_seed(0))
    layers = network.layers("policy", network.views_of(network.flat.detach()))
    tensors = {
        "observation": observation,
        "action": action,
        "advantage": advantage,
        "direction": direction,
        "product": objective.hessian_product(direction),
        **{f"weight.{i}": layer.weight for i, layer in enumerate(layers)},
        **{f"bias.{i}": layer.bias for i, layer in enumerate(layers)},
    }
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def _series(name: str, unit: str, samples: tuple[float, ...]) -> Series:
    return Series(name=name, unit=unit, better="lower", samples=samples)
