"""Policies of searches: a run acts as its learner's policy, and so do the files that it exports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from learning.algorithms.algorithm import learn_round
from learning.algorithms.ars import Ars
from learning.algorithms.es import Es
from nitro.runs.checkpoints import read_policy
from nitro.runs.export import export_run
from shared.hyperparameters.es import EsHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory import codec
from tests.learning.algorithms.test_ars import RULE, SEED, Played
from tests.learning.trajectories import CONTINUOUS
from tests.nitro.checkpoints import write_checkpoint

DEEP = RULE.model_copy(update={"hidden_sizes": (8, 4)})
SEARCHES: dict[str, Callable[[], Ars | Es]] = {
    "ars, linear": lambda: Ars(CONTINUOUS, RULE, seed=SEED),
    "ars, two layers": lambda: Ars(CONTINUOUS, DEEP, seed=SEED),
    "es": lambda: Es(CONTINUOUS, EsHyperparameters(directions=RULE.directions), seed=SEED),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_run_onnx_and_numpy_act_as_the_learners_policy(name: str, tmp_path: Path) -> None:
    learner = SEARCHES[name]()
    for iteration in range(3):
        learn_round(learner, Played(iteration).sums(2))
    arrays, metadata = learner.policy_payload()
    folder = write_checkpoint(
        tmp_path, next_round=3, policy=codec.encode(arrays, metadata), environment=CONTINUOUS
    )
    report = export_run(folder, tmp_path / "out")
    session = onnxruntime.InferenceSession(tmp_path / "out" / "policy.onnx")
    payload = codec.decode_raw((tmp_path / "out" / "policy.safetensors").read_bytes())
    rows = 3 + np.random.default_rng(1).standard_normal((20, 5), np.float32)
    expected: NDArray[Any] = np.clip(load_policy(arrays, metadata).mode(rows), -1, 1)
    assert np.ptp(expected, axis=0).min() > 0.01
    (graph,) = session.run(None, {"observation": rows})
    exported = load_policy(payload.arrays, payload.metadata)
    actions: list[NDArray[Any]] = [read_policy(folder)[1].act(rows), exported.act(rows), graph]
    for taken in actions:
        np.testing.assert_allclose(taken, expected, atol=1e-5)
    assert report.largest_difference is not None
    assert report.largest_difference <= 1e-5
