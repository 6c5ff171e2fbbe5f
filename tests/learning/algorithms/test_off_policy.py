"""Off-policy updates repeat and resume to the bit, count what they skip, and know their lag."""

import math

import numpy as np
import pytest
import torch

from learning.algorithms.impact import Impact
from learning.algorithms.off_policy import BARREN_BATCHES_MAX
from learning.detectors.hessian import HessianDetector
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.policy.numpy_policy import load_policy
from shared.trajectory import codec
from tests.learning.algorithms.off_policy_rounds import (
    IMPACT,
    IMPACT_STANDARD,
    IMPALA,
    IMPALA_STANDARD,
    MAX_ROUNDS,
    Learner,
    OffPolicyHyperparameters,
    assert_same_state,
    learner,
    round_of,
)
from tests.learning.trajectories import CONTINUOUS, DISCRETE

ALL = [IMPACT, IMPACT_STANDARD, IMPALA, IMPALA_STANDARD]
CASES = [(CONTINUOUS, hyperparameters) for hyperparameters in ALL] + [
    (DISCRETE, IMPACT),
    (DISCRETE, IMPALA_STANDARD),
]


def overlapping(made: Learner, environment: EnvironmentSpec, steps: range) -> list[float]:
    """Rounds of three trajectories, one and a half batches, learned from as they come."""
    losses = []
    for k in steps:
        made.add(round_of(made, environment, k))
        for _ in range(3):
            if made.ready:
                losses.append(made.update().stats["loss"])
        made.advance(k + 1)
    return losses


def use_up(made: Learner) -> None:
    while made.ready:
        made.update()


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_equal_calls_give_equal_bits_and_other_seeds_other_weights(
    environment: EnvironmentSpec, hyperparameters: OffPolicyHyperparameters
) -> None:
    one, two = (learner(environment, hyperparameters) for _ in range(2))
    assert overlapping(one, environment, range(3)) == overlapping(two, environment, range(3))
    assert_same_state(one, two)
    other = learner(environment, hyperparameters, seed=8)
    assert not torch.equal(other.network.flat, one.network.flat)


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
@pytest.mark.parametrize("interrupted_after", [0, 3])
def test_a_run_resumed_in_the_middle_of_its_buffer_ends_with_the_same_bits(
    environment: EnvironmentSpec, hyperparameters: OffPolicyHyperparameters, interrupted_after: int
) -> None:
    whole = learner(environment, hyperparameters)
    losses = overlapping(whole, environment, range(5))

    before = learner(environment, hyperparameters)
    resumed_losses = overlapping(before, environment, range(interrupted_after))
    arrays, scalars = before.state()
    if interrupted_after:  # four and a half batches came: some wait, some are to be replayed
        assert (arrays["buffer.uses"] == -1).any()
    overlapping(before, environment, range(5, 6))  # what it went on to do is lost
    resumed = learner(environment, hyperparameters, seed=999)
    resumed.load_state(arrays, scalars)
    resumed_losses += overlapping(resumed, environment, range(interrupted_after, 5))

    assert resumed_losses == losses
    assert_same_state(whole, resumed)
    pairs = zip(whole.policy_payload()[0].values(), resumed.policy_payload()[0].values())  # noqa: B905
    assert all(one.tobytes() == other.tobytes() for one, other in pairs)


def test_a_checkpoint_s_read_only_arrays_do_to_go_on() -> None:
    before, after = learner(CONTINUOUS, IMPACT_STANDARD), learner(CONTINUOUS, IMPACT_STANDARD)
    overlapping(before, CONTINUOUS, range(3))
    arrays, scalars = before.state()
    after.load_state(codec.decode_raw(codec.encode_raw(arrays, {})).arrays, scalars)
    assert_same_state(before, after)
    assert overlapping(before, CONTINUOUS, range(3, 4)) == overlapping(
        after, CONTINUOUS, range(3, 4)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays, _: arrays.pop("network.policy.0.weight"), "missing .*policy.0.weight"),
        (lambda arrays, _: arrays.update(odd=np.zeros(1)), "unknown .*odd"),
        (
            lambda arrays, _: arrays.update({"network.policy.0.bias": np.zeros(3, np.float32)}),
            r"policy.0.bias' is float32\[3\], .* float32\[8\]",
        ),
        (lambda arrays, _: arrays.pop("buffer.uses"), "uses is None"),
        (lambda arrays, _: arrays["generator"].fill(0), "'generator' cannot be used"),
        (lambda _, scalars: scalars.pop("policy_version"), "missing .*policy_version"),
        (lambda _, scalars: scalars.update(adam_step="many"), "'adam_step' is 'many'"),
        (lambda _, scalars: scalars.update(kl_coefficient=math.inf), "'kl_coefficient' is inf"),
        (lambda _, scalars: scalars.update(batches_since_target=0.5), "expected int"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    change: object, message: str
) -> None:
    saved, made = learner(CONTINUOUS, IMPACT), learner(CONTINUOUS, IMPACT)
    overlapping(saved, CONTINUOUS, range(3))
    overlapping(made, CONTINUOUS, range(2))
    arrays, scalars = saved.state()
    assert callable(change)
    change(arrays, scalars)
    same = learner(CONTINUOUS, IMPACT)
    overlapping(same, CONTINUOUS, range(2))
    with pytest.raises(ValueError, match=message):
        made.load_state(arrays, scalars)
    assert_same_state(made, same)


def test_scalars_of_a_newer_version_are_ignored() -> None:
    before, after = learner(CONTINUOUS, IMPACT), learner(CONTINUOUS, IMPACT)
    overlapping(before, CONTINUOUS, range(2))
    arrays, scalars = before.state()
    after.load_state(arrays, {**scalars, "of_a_newer_version": True})
    assert_same_state(before, after)


@pytest.mark.parametrize("hyperparameters", ALL)
def test_the_payload_is_a_policy_that_actors_can_load(
    hyperparameters: OffPolicyHyperparameters,
) -> None:
    made = learner(CONTINUOUS, hyperparameters)
    overlapping(made, CONTINUOUS, range(2))
    arrays, metadata = made.policy_payload()
    assert metadata["action_mapping"] == hyperparameters.action_mapping
    policy = load_policy(arrays, metadata)
    assert policy.action_shape == (2,)
    assert ("observation_mean" in arrays) == hyperparameters.observation_normalisation


def test_statistics_of_observations_change_with_the_version_only() -> None:
    made = learner(CONTINUOUS, IMPALA_STANDARD)
    first = made.policy_payload()[0]["observation_mean"]
    trajectories = round_of(made, CONTINUOUS, 0, num_actors=4)
    made.add(trajectories)
    made.update()
    assert np.array_equal(made.policy_payload()[0]["observation_mean"], first)
    made.advance(1)
    seen = np.concatenate([t.observation[:-1].reshape(-1, 5) for t in trajectories])
    np.testing.assert_allclose(
        made.policy_payload()[0]["observation_mean"], seen.mean(0), rtol=1e-5, atol=1e-6
    )


def test_lag_counts_versions_and_fresh_tells_replays() -> None:
    made = learner(CONTINUOUS, IMPACT)
    made.advance(5)
    made.add(
        [
            t.replaced(policy_version=version)
            for t, version in zip(round_of(made, CONTINUOUS, 0, num_actors=2), (5, 2), strict=True)
        ]
    )
    stats = made.update().stats
    assert (stats["policy_lag_mean"], stats["policy_lag_max"], stats["fresh"]) == (1.5, 3.0, 1.0)
    made.advance(6)
    stats = made.update().stats
    assert (stats["policy_lag_mean"], stats["policy_lag_max"], stats["fresh"]) == (2.5, 4.0, 0.0)


@pytest.mark.parametrize("hyperparameters", [IMPACT, IMPALA])
def test_a_batch_without_a_finite_step_is_counted_and_too_many_end_the_job(
    hyperparameters: OffPolicyHyperparameters,
) -> None:
    once = hyperparameters.model_copy(update={"train_batch_size": 48})
    made = learner(CONTINUOUS, once)
    weights = made.network.flat.clone()
    good, broken = round_of(made, CONTINUOUS, 0, num_actors=2)
    broken = broken.replaced(reward=np.full_like(broken.reward, np.nan))
    made.add([broken] * (BARREN_BATCHES_MAX - 1))
    for _ in range(BARREN_BATCHES_MAX - 1):
        stats = made.update().stats
        assert stats["skipped_steps"] == stats["num_minibatches"] == 3
        assert np.isfinite(list(stats.values())).all()
    assert torch.equal(made.network.flat, weights)
    made.add([good])
    assert made.update().stats["skipped_steps"] == 0
    made.add([broken] * BARREN_BATCHES_MAX)
    with pytest.raises(FloatingPointError, match="a smaller learning_rate"):
        use_up(made)


def test_the_step_size_follows_the_newest_round() -> None:
    decaying = IMPALA_STANDARD.model_copy(
        update={"learning_rate_decay": "linear", "kl_target": 0.0}
    )
    first = decaying.learning_rate
    made = learner(CONTINUOUS, decaying)
    for k in (0, 1, 6, 5, MAX_ROUNDS + 3):
        made.add(round_of(made, CONTINUOUS, k, num_actors=2))
    rates = [made.update().stats["learning_rate"] for _ in range(5)]
    assert rates == pytest.approx([first / MAX_ROUNDS] * 5)
    made = learner(CONTINUOUS, decaying)
    rates = []
    for k in (0, 2, 1):
        made.add(round_of(made, CONTINUOUS, k, num_actors=2))
        rates.append(made.update().stats["learning_rate"])
    assert rates == pytest.approx([first, first * 6 / 8, first * 6 / 8])


def test_the_entropy_weight_follows_the_newest_round() -> None:
    update = {"entropy_coefficient": 0.4, "entropy_decay": "cosine"}
    for hyperparameters in (IMPACT, IMPALA_STANDARD):
        made = learner(CONTINUOUS, hyperparameters.model_copy(update=update))
        assert made.rule.hyperparameters.entropy_coefficient == 0.4
        made.add(round_of(made, CONTINUOUS, MAX_ROUNDS // 2, num_actors=2))
        assert made.rule.hyperparameters.entropy_coefficient == pytest.approx(0.2)


@pytest.mark.parametrize("hyperparameters", [IMPACT, IMPALA_STANDARD])
def test_curvature_can_be_measured_after_an_update_and_changes_nothing(
    hyperparameters: OffPolicyHyperparameters,
) -> None:
    made = learner(CONTINUOUS, hyperparameters)
    assert made.samples() is None
    made.add(round_of(made, CONTINUOUS, 0))
    made.update()
    state = made.state()
    samples = made.samples()
    assert samples is not None
    measured = HessianDetector(DetectorRule(num_samples=64)).measure(made.network, samples)
    assert measured is not None
    assert measured.num_samples == 64
    assert measured.lambda_min < measured.lambda_max
    assert measured.gradient_noise is not None
    again = learner(CONTINUOUS, hyperparameters)
    again.load_state(*state)
    assert_same_state(made, again)


def test_detectors_are_shown_all_that_was_new_since_the_last_time() -> None:
    made = learner(CONTINUOUS, IMPACT)
    for index, num_actors in enumerate((4, 2)):
        trajectories = round_of(made, CONTINUOUS, index, num_actors=num_actors)
        made.add(trajectories)
        made.flush()
        updates = 0
        while made.has_fresh:
            made.update()
            updates += 1
        made.update()  # a replay adds nothing
        assert updates == num_actors // 2
        for _ in range(2):
            samples = made.samples()
            assert samples is not None
            assert samples.batch.num_samples == sum(t.num_steps for t in trajectories)


def test_batches_of_whole_trajectories_may_hold_several_environments() -> None:
    made = Impact(CONTINUOUS, IMPACT.model_copy(update={"train_batch_size": 40}), seed=1)
    made.add(round_of(made, CONTINUOUS, 0, num_actors=1))
    assert made.update().stats["num_minibatches"] == 3  # 48 samples in steps of at most 20


@pytest.mark.parametrize("hyperparameters", [IMPACT_STANDARD, IMPALA_STANDARD])
def test_actions_the_policy_would_never_take_do_not_move_it(
    hyperparameters: OffPolicyHyperparameters,
) -> None:
    """Normalising advantages takes a mean off: it must not reach samples without weight."""
    found = []
    for shift in (0.0, 3.0):
        made = learner(CONTINUOUS, hyperparameters)
        likely, unlikely = round_of(made, CONTINUOUS, 0, num_actors=2)
        certain_elsewhere = np.full_like(unlikely.log_prob, 1e3)  # so that pi / mu is 0
        moved = unlikely.replaced(action=unlikely.action + shift, log_prob=certain_elsewhere)
        made.add([likely, moved])
        made.update()
        found.append(made.network.flat.clone())
    assert torch.equal(found[0], found[1])
