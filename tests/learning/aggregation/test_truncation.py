"""Truncated ratios against a table by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learning.aggregation.mlp_gradient import function_gradient
from learning.aggregation.truncation import advantage_factor, truncated_ratio
from learning.networks.step_terms import GaussianTerms
from shared.contracts.learner_functions import Form, LearnerFunctions
from tests.functions.gradient.work import Work

INFINITE = math.inf
OWN = [0.5, 0.8, 1.0, 1.5, 2.0, 2.0, 3.0]
OTHER = [0.9, 0.4, 2.0, 1.2, 0.7, 3.0, 1.4]
TABLE = {
    ("paper", 1.0): [0.5, 0.4, 1.0, 1.0, 0.7, 1.0, 1.0],
    ("paper", INFINITE): [0.5, 0.4, 1.0, 1.2, 0.7, 2.0, 1.4],
    # All ratios above 1: the smallest. Else its own, at most 1.
    ("code", 1.0): [0.5, 0.8, 1.0, 1.2, 1.0, 2.0, 1.4],
    ("code", INFINITE): OWN,
    ("off", 1.0): OWN,
}


@pytest.mark.parametrize(("form", "rho"), TABLE)
def test_the_table(form: Form, rho: float) -> None:
    own, other = np.array(OWN, np.float32), np.array(OTHER, np.float32)
    kept = truncated_ratio(own, [other], form=form, rho=rho)
    np.testing.assert_allclose(kept, np.array(TABLE[form, rho], np.float32), rtol=1e-6)


def test_factors_weigh_the_gradient_in_the_papers_form_and_switch_it_off_in_the_codes() -> None:
    own, other = np.array(OWN, np.float32), np.array(OTHER, np.float32)
    paper = advantage_factor(own, [other], form="paper", rho=1.0)
    np.testing.assert_allclose(paper * own, TABLE["paper", 1.0], rtol=1e-6)
    code = advantage_factor(own, [other], form="code", rho=1.0)
    assert code.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]


def test_without_others_and_without_a_limit_the_factor_is_exactly_one() -> None:
    own = np.exp(np.random.default_rng(0).normal(size=1000)).astype(np.float32)
    for form in ("paper", "code"):
        assert (advantage_factor(own, [], form=form, rho=INFINITE) == 1.0).all()


def test_a_ratio_of_zero_has_no_gradient() -> None:
    none = np.zeros(2, np.float32)
    assert advantage_factor(none, [], form="paper", rho=1.0).tolist() == [0.0, 0.0]


ratios = st.lists(st.floats(2**-10, 2.0**10, width=32), min_size=1, max_size=5)


@given(ratios, st.data(), st.floats(0.125, 8.0, width=32))
def test_the_papers_form_is_never_above_its_limit_nor_any_ratio(
    own: list[float], data: st.DataObject, rho: float
) -> None:
    size = len(own)
    other = data.draw(st.lists(st.floats(2**-10, 2.0**10, width=32), min_size=size, max_size=size))
    mine, theirs = np.array(own, np.float32), np.array(other, np.float32)
    paper = truncated_ratio(mine, [theirs], form="paper", rho=rho)
    code = truncated_ratio(mine, [theirs], form="code", rho=rho)
    assert (paper <= np.float32(rho)).all()
    assert (paper <= np.minimum(mine, theirs)).all()
    assert (paper <= code).all()
    assert (code <= mine).all()


def test_ratios_are_to_the_acting_policy_and_not_to_what_the_clip_is_around() -> None:
    """Of IMPACT `log_prob` is that of the target policy, and of the acting one beyond a limit."""
    work = Work(LearnerFunctions(rho=1.0))
    network, rule = work.layout.network(), work.learner._rule
    outputs = network.outputs(work.flat, work.samples.observation)
    log_prob = GaussianTerms().terms(work.samples.outputs, outputs, work.samples.action).log_prob
    doubled = np.log(np.where(np.arange(40) % 2, 2.0, 0.5)).astype(np.float32)
    samples = work.samples.replaced(log_prob=log_prob - 0.05, behaviour_log_prob=log_prob - doubled)
    halved = np.where(np.arange(40) % 2, 0.5, 1.0).astype(np.float32)
    expected, _ = network.at(
        work.flat, samples.replaced(advantage=samples.advantage * halved), rule
    )
    found, _ = function_gradient(network, work.flat, (), samples, rule, work.functions)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
