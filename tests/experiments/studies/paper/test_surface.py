"""A surface's directions against the detector's eigenvalues, its middle against the policy."""

import numpy as np
import pytest

from experiments.grid import Cell, CellId
from experiments.studies.paper.surface import SurfaceTask, surrogate, trained, work
from learning.detectors.detector import PolicySamples
from learning.detectors.hessian import HessianDetector
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_ref import EnvironmentRef

REF = EnvironmentRef(env_id="Hopper-v5")
TASK = SurfaceTask(place="lowest", actors=1, seed=3, rounds=2, points=3, episodes=1, epochs=1)


def test_the_leading_eigenvalues_agree_with_the_detectors() -> None:
    policy = trained(TASK, REF)[-1]
    objective = surrogate(TASK, REF, policy)
    values, vectors = objective.leading_eigenvectors()
    rule = DetectorRule(num_samples=256, max_matvecs=100, tolerance=1e-4)
    measured = HessianDetector(rule).measure(
        policy.algorithm.network, PolicySamples(batch=objective.batch)
    )
    assert measured is not None
    ends = (measured.lambda_max, measured.lambda_min)
    assert values[0] == pytest.approx(max(ends, key=abs), rel=0.01)
    assert np.linalg.norm(vectors, axis=0) == pytest.approx([1.0, 1.0], abs=1e-4)
    assert vectors[:, 0] @ vectors[:, 1] == pytest.approx(0.0, abs=1e-4)


def test_the_middle_of_a_surface_is_the_policy_and_equal_tasks_give_equal_surfaces() -> None:
    cell = Cell(id=CellId("lowest R", "Hopper-v5", 3), task=TASK)
    outcome = work(cell)
    assert outcome.axis == (-1.0, 0.0, 1.0)
    assert outcome.returns[1][1] == outcome.centre
    assert len({value for row in outcome.returns for value in row}) > 1
    again = work(cell)
    assert (again.returns, again.ratio) == (outcome.returns, outcome.ratio)
