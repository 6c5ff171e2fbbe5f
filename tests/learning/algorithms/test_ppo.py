"""PPO's update as a whole: it repeats and resumes to the bit, and agrees with a plain version."""

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor

from learning.algorithms.ppo import KL_COEFFICIENT_MIN, Ppo, adapted_kl_coefficient
from learning.data.batch_building import on_policy_batch
from learning.data.normalisation import Normalisation
from learning.detectors.hessian import HessianDetector
from learning.losses.ppo import PpoRule
from learning.networks.actor_critic import ActorCritic
from shared.contracts.detector_rule import DetectorRule
from shared.contracts.environment_spec import EnvironmentSpec
from shared.hyperparameters.ppo import STANDARD, PpoHyperparameters
from shared.policy.numpy_policy import load_policy
from shared.trajectory.columns import Columns
from shared.trajectory.trajectory import Trajectory
from tests.learning.algorithms.off_policy_rounds import assert_same_state
from tests.learning.trajectories import CONTINUOUS, DISCRETE, make_trajectory

SMALL = PpoHyperparameters(
    hidden_sizes=(16, 16), num_epochs=3, minibatch_size=20, learning_rate=1e-3
)
FREE = SMALL.model_copy(update={"log_std": "free"})
CLEAN = STANDARD.model_copy(
    update={"hidden_sizes": (16, 16), "num_epochs": 3, "minibatch_size": 20}
)
CASES = [
    (CONTINUOUS, SMALL),
    (CONTINUOUS, FREE),
    (DISCRETE, SMALL),
    (CONTINUOUS, CLEAN),
    (DISCRETE, CLEAN),
]
MAX_ROUNDS = 8


def round_of(ppo: Ppo, environment: EnvironmentSpec, round_index: int) -> list[Trajectory]:
    return [
        make_trajectory(environment, ppo.network, actor_index=i, seed=round_index) for i in range(3)
    ]


def train(ppo: Ppo, environment: EnvironmentSpec, rounds: range) -> list[dict[str, float]]:
    return [ppo.learn(round_of(ppo, environment, k)).stats for k in rounds]


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_equal_seeds_and_trajectories_give_equal_bits(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    first, second = (
        Ppo(environment, hyperparameters, seed=7, max_rounds=MAX_ROUNDS) for _ in range(2)
    )
    assert train(first, environment, range(3)) == train(second, environment, range(3))
    assert_same_state(first, second)


@pytest.mark.parametrize("hyperparameters", [SMALL, CLEAN])
def test_arrival_order_does_not_change_a_bit(hyperparameters: PpoHyperparameters) -> None:
    expected = Ppo(CONTINUOUS, hyperparameters, seed=7)
    train(expected, CONTINUOUS, range(1))
    for order in permutations(range(3)):
        ppo = Ppo(CONTINUOUS, hyperparameters, seed=7)
        trajectories = round_of(ppo, CONTINUOUS, 0)
        ppo.learn([trajectories[i] for i in order])
        assert_same_state(ppo, expected)


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
@pytest.mark.parametrize("interrupted_after", [0, 2])
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters, interrupted_after: int
) -> None:
    whole = Ppo(environment, hyperparameters, seed=7, max_rounds=MAX_ROUNDS)
    whole_stats = train(whole, environment, range(5))

    before = Ppo(environment, hyperparameters, seed=7, max_rounds=MAX_ROUNDS)
    stats = train(before, environment, range(interrupted_after))
    arrays, scalars = before.state()
    train(before, environment, range(5, 6))  # what the interrupted run went on to do is lost
    resumed = Ppo(environment, hyperparameters, seed=999, max_rounds=MAX_ROUNDS)
    resumed.load_state(arrays, scalars)
    stats += train(resumed, environment, range(interrupted_after, 5))

    assert stats == whole_stats
    assert_same_state(whole, resumed)
    for resumed_array, whole_array in zip(
        *(ppo.policy_payload()[0].values() for ppo in (resumed, whole)), strict=True
    ):
        assert resumed_array.tobytes() == whole_array.tobytes()


def test_updates_and_measurements_do_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    ppo = Ppo(CONTINUOUS, SMALL, seed=7)
    train(ppo, CONTINUOUS, range(1))
    samples = ppo.samples()
    assert samples is not None
    HessianDetector(DetectorRule()).measure(ppo.network, samples)
    assert torch.equal(torch.get_rng_state(), before)


def plain_forward(network: ActorCritic, observation: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and values through nn.Linear, for autograd."""
    heads = []
    for layers in (network.policy, network.value):
        h = observation
        for layer in layers[:-1]:
            h = torch.tanh(layer(h))
        heads.append(layers[-1](h))
    outputs, value = heads
    if network.log_std is not None:
        outputs = torch.cat((outputs, network.log_std.expand(len(outputs), -1)), dim=1)
    return outputs, value[:, 0]


@pytest.mark.parametrize(("environment", "hyperparameters"), CASES)
def test_an_update_agrees_with_a_plain_autograd_version(
    environment: EnvironmentSpec, hyperparameters: PpoHyperparameters
) -> None:
    """The same shuffles, but nn.Linear layers, autograd and an unfused Adam, in float64."""
    ppo, reference = (
        Ppo(environment, hyperparameters, seed=7, max_rounds=MAX_ROUNDS) for _ in range(2)
    )
    trajectories = round_of(ppo, environment, 0)
    start = Normalisation.initial(environment, hyperparameters)
    batch = on_policy_batch(
        trajectories,
        reference.network,
        discount=hyperparameters.discount,
        gae_lambda=hyperparameters.gae_lambda,
        normalisation=replace(start, rewards=start.after(trajectories).rewards),
    )
    generator = torch.Generator()
    generator.set_state(torch.from_numpy(np.asarray(reference.state()[0]["generator"])))
    network = reference.network.double()
    network.requires_grad_(True)
    optimiser = torch.optim.Adam(
        network.parameters(), lr=hyperparameters.learning_rate, eps=hyperparameters.adam_epsilon
    )
    rule = PpoRule(hyperparameters=hyperparameters, kl_coefficient=hyperparameters.kl_coefficient)
    for _ in range(hyperparameters.num_epochs):
        order = torch.randperm(batch.num_samples, generator=generator)
        for rows in order.tensor_split(-(-batch.num_samples // hyperparameters.minibatch_size)):
            outputs, value = plain_forward(network, batch.observation[rows].double())
            discrete = batch.action.dtype == torch.int64
            advantage = batch.advantage[rows].double()
            if hyperparameters.advantage_normalisation == "minibatch":
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            loss = rule.loss(
                outputs,
                value,
                Columns(
                    observation=batch.observation[rows],
                    action=batch.action[rows] if discrete else batch.action[rows].double(),
                    advantage=advantage,
                    value_target=batch.value_target[rows].double(),
                    value=batch.value[rows].double(),
                    log_prob=batch.log_prob[rows].double(),
                    behaviour_log_prob=batch.behaviour_log_prob[rows].double(),
                    outputs=batch.outputs[rows].double(),
                ),
                network.distribution,
            )
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if hyperparameters.gradient_norm_max:
                torch.nn.utils.clip_grad_norm_(
                    network.parameters(), hyperparameters.gradient_norm_max
                )
            optimiser.step()

    first = ppo.network.flat.clone()
    ppo.learn(trajectories)
    moved = (ppo.network.flat - first).abs().max()
    assert moved > 5e-3
    views = ppo.network.views_of(ppo.network.flat)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(
            views[name].double(), parameter.detach(), rtol=0.0, atol=0.01 * float(moved)
        )


def test_repeated_updates_raise_the_surrogate() -> None:
    ppo = Ppo(CONTINUOUS, SMALL, seed=0)
    stats = train(ppo, CONTINUOUS, range(8))
    assert np.mean([s["policy_loss"] for s in stats]) < -0.01
    mean_action = ppo.network.policy_outputs(torch.zeros(1, 5))[0, :2].sum()
    assert mean_action > 0.05  # the reward of these rounds is the sum of the actions


def test_stats_are_complete_and_finite() -> None:
    ppo = Ppo(CONTINUOUS, SMALL, seed=0)
    (stats,) = train(ppo, CONTINUOUS, range(1))
    assert set(stats) == {
        "policy_loss",
        "value_loss",
        "loss",
        "kl",
        "entropy",
        "kl_coefficient",
        "learning_rate",
        "clip_fraction",
        "value_clip_fraction",
        "explained_variance",
        "grad_norm",
        "num_minibatches",
        "skipped_steps",
        "behaviour_log_prob_error",
    }
    assert np.isfinite(list(stats.values())).all()
    # 144 samples in minibatches of at most 20: 8 per pass
    assert stats["num_minibatches"] == 3 * 8
    assert stats["skipped_steps"] == 0
    assert stats["kl_coefficient"] == 0.2
    assert stats["behaviour_log_prob_error"] < 1e-5


def test_the_behaviour_gap_shows_trajectories_of_another_policy() -> None:
    ppo = Ppo(CONTINUOUS, SMALL, seed=0)
    foreign = round_of(Ppo(CONTINUOUS, SMALL, seed=1), CONTINUOUS, 0)
    foreign = [t.replaced(log_prob=t.log_prob + np.float32(0.5)) for t in foreign]
    assert ppo.learn(foreign).stats["behaviour_log_prob_error"] > 0.1


def test_a_step_that_is_not_finite_is_skipped_and_counted() -> None:
    ppo = Ppo(CONTINUOUS, SMALL.model_copy(update={"minibatch_size": 1, "num_epochs": 1}), seed=0)
    trajectories = round_of(ppo, CONTINUOUS, 0)
    # Squares to infinity in the policy's normal density, for this one sample only.
    trajectories[0].action[3, 0] = 1e30
    update = ppo.learn(trajectories)
    assert update.stats["skipped_steps"] == 1
    assert update.stats["num_minibatches"] == 144
    assert np.isfinite(list(update.stats.values())).all()
    assert bool(ppo.network.flat.isfinite().all())
    assert ppo.state()[1]["adam_step"] == 143


@pytest.mark.parametrize("hyperparameters", [SMALL, CLEAN])
def test_an_update_without_one_finite_step_is_an_error_and_changes_nothing(
    hyperparameters: PpoHyperparameters,
) -> None:
    ppo = Ppo(CONTINUOUS, hyperparameters, seed=0)
    trajectories = round_of(ppo, CONTINUOUS, 0)
    for trajectory in trajectories:
        trajectory.action[:] = 1e30  # squares to infinity in the policy's normal density
    arrays, scalars = ppo.state()
    with pytest.raises(FloatingPointError, match="all 24 steps"):
        ppo.learn(trajectories)
    after, scalars_after = ppo.state()
    assert scalars_after == scalars
    for name in arrays.keys() - {"generator"}:
        assert after[name].tobytes() == arrays[name].tobytes(), name


@pytest.mark.parametrize(
    ("coefficient", "kl", "expected"),
    [
        (0.2, 0.0201, 0.3),
        (0.2, 0.02, 0.2),
        (0.2, 0.005, 0.2),
        (0.2, 0.0049, 0.1),
        (0.0, 5.0, 0.0),
        (90.0, 5.0, 100.0),
        (200.0, 5.0, 200.0),
        (1.5e-6, 0.0, KL_COEFFICIENT_MIN),
        (1e-9, 0.0, 1e-9),
    ],
)
def test_kl_coefficient_follows_rllibs_rule_within_bounds(
    coefficient: float, kl: float, expected: float
) -> None:
    found = adapted_kl_coefficient(coefficient, kl, target=0.01, maximum=100.0)
    assert found == pytest.approx(expected)


def test_kl_coefficient_is_adapted_after_the_update_it_was_used_in() -> None:
    ppo = Ppo(CONTINUOUS, SMALL.model_copy(update={"learning_rate": 1e-8}), seed=0)
    stats = train(ppo, CONTINUOUS, range(3))
    assert [s["kl_coefficient"] for s in stats] == [0.2, 0.1, 0.05]


def test_the_step_size_falls_on_a_line_that_further_rounds_end_or_begin_anew() -> None:
    ppo = Ppo(CONTINUOUS, CLEAN, seed=0, max_rounds=4)
    rates = [s["learning_rate"] for s in train(ppo, CONTINUOUS, range(4))]
    assert rates == pytest.approx([3e-4, 2.25e-4, 1.5e-4, 7.5e-5])
    fresh = Ppo(CONTINUOUS, CLEAN, seed=1, first_round=4, max_rounds=7)
    fresh.load_state(*ppo.state())
    rates = [s["learning_rate"] for s in train(ppo, CONTINUOUS, range(4, 6))]
    assert rates == pytest.approx([7.5e-5, 7.5e-5])
    rates = [s["learning_rate"] for s in train(fresh, CONTINUOUS, range(4, 8))]
    # Rounds 4 to 6, and one that should not have been.
    assert rates == pytest.approx([3e-4, 2e-4, 1e-4, 1e-4])


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_before_the_first_round_of_a_schedule_the_step_size_is_whole(decay: str) -> None:
    """A learner may begin there: with an older checkpoint, or without any."""
    hyperparameters = CLEAN.model_copy(update={"learning_rate_decay": decay})
    ppo = Ppo(CONTINUOUS, hyperparameters, seed=0, first_round=2, max_rounds=4)
    rates = [s["learning_rate"] for s in train(ppo, CONTINUOUS, range(4))]
    assert rates == pytest.approx([3e-4, 3e-4, 3e-4, 1.5e-4])


@pytest.mark.parametrize("optimiser", [False, True])
def test_a_job_begins_with_the_policy_of_another(optimiser: bool) -> None:
    earlier = Ppo(CONTINUOUS, CLEAN, seed=0)
    train(earlier, CONTINUOUS, range(2))
    arrays, scalars = earlier.state()
    other = CLEAN.model_copy(update={"num_epochs": 1, "discount": 0.9})
    begun = Ppo(CONTINUOUS, other, seed=5)
    begun.begin_from(arrays, scalars, optimiser=optimiser)
    for name, published in earlier.policy_payload()[0].items():
        np.testing.assert_array_equal(begun.policy_payload()[0][name], published, err_msg=name)
    found, counts = begun.state()
    for name, array in arrays.items():
        kept = not name.startswith("generator") and (optimiser or "exp_avg" not in name)
        assert np.array_equal(found[name], array) is kept, name
    assert counts["adam_step"] == (scalars["adam_step"] if optimiser else 0)


@pytest.mark.parametrize(
    ("environment", "changed", "message"),
    [
        (CONTINUOUS, {"hidden_sizes": (16, 8)}, r"float32\[16, 16\].*needs float32\[8, 16\]"),
        (DISCRETE, {}, "missing|needs"),
        (CONTINUOUS, {"observation_normalisation": False}, "observation_normalisation must be"),
    ],
)
def test_a_policy_of_another_size_is_refused_and_changes_nothing(
    environment: EnvironmentSpec, changed: dict[str, object], message: str
) -> None:
    earlier = Ppo(CONTINUOUS, CLEAN, seed=0)
    begun, untouched = (
        Ppo(environment, CLEAN.model_copy(update=changed), seed=5) for _ in range(2)
    )
    with pytest.raises(ValueError, match=message):
        begun.begin_from(*earlier.state(), optimiser=False)
    assert_same_state(begun, untouched)


def test_step_size_and_entropy_fall_along_a_cosine_or_a_line() -> None:
    asked = {
        "learning_rate_decay": "cosine",
        "entropy_coefficient": 0.02,
        "entropy_decay": "linear",
    }
    ppo = Ppo(CONTINUOUS, CLEAN.model_copy(update=asked), seed=0, max_rounds=4)
    stats = train(ppo, CONTINUOUS, range(3))
    expected = [3e-4 * (1 + math.cos(math.pi * k / 4)) / 2 for k in range(3)]
    assert [each["learning_rate"] for each in stats] == pytest.approx(expected)
    weights = [
        (each["policy_loss"] + 0.5 * each["value_loss"] - each["loss"]) / each["entropy"]
        for each in stats
    ]
    assert weights == pytest.approx([0.02, 0.015, 0.01], abs=1e-5)


@pytest.mark.parametrize("decay", ["none", "linear"])
def test_a_decaying_entropy_goes_on_where_it_was(decay: str) -> None:
    asked = {
        "learning_rate_decay": "none",
        "entropy_coefficient": 0.5,
        "entropy_decay": decay,
    }
    hyperparameters = CLEAN.model_copy(update=asked)
    whole, before, resumed = (
        Ppo(CONTINUOUS, hyperparameters, seed=seed, max_rounds=4) for seed in (7, 7, 9)
    )
    train(whole, CONTINUOUS, range(3))
    train(before, CONTINUOUS, range(2))
    resumed.load_state(*before.state())
    train(resumed, CONTINUOUS, range(2, 3))
    assert_same_state(whole, resumed)


def test_a_longer_gradient_is_cut_and_a_shorter_one_is_not() -> None:
    """With one plain step of Adam's first moment, 0.1 of the gradient, seen from its state."""
    lengths = []
    for norm_max in (0.0, 1e-3, 1e3):
        update = {"minibatch_size": 10_000, "num_epochs": 1, "gradient_norm_max": norm_max}
        ppo = Ppo(CONTINUOUS, CLEAN.model_copy(update=update), seed=0)
        (stats,) = train(ppo, CONTINUOUS, range(1))
        moment = [array for name, array in ppo.state()[0].items() if "exp_avg." in name]
        length = 10 * math.sqrt(sum(float(np.square(array).sum()) for array in moment))
        lengths.append((length, stats["grad_norm"]))
    (plain, norm), (cut, _), (whole, _) = lengths
    assert plain == pytest.approx(norm, rel=1e-5)
    assert whole == plain > 0.1
    assert cut == pytest.approx(1e-3, rel=1e-5)
    assert {norm for _, norm in lengths} == {norm}


def test_a_published_policy_acts_on_raw_observations_as_the_learner_has_it() -> None:
    """Three rounds through the NumPy policy, with observations far from standard."""
    ppo = Ppo(CONTINUOUS, CLEAN, seed=0, max_rounds=3)
    rng = np.random.default_rng(0)
    for k in range(3):
        arrays, metadata = ppo.policy_payload()
        assert metadata["action_mapping"] == "clip"
        policy = load_policy(arrays, metadata)
        trajectories = []
        for t in round_of(ppo, CONTINUOUS, k):
            observation = (40 + 3 * t.observation).astype(np.float32)
            action, log_prob = policy.sample(observation[:-1], rng)
            trajectories.append(
                t.replaced(
                    observation=observation,
                    action=np.asarray(action, np.float32),
                    log_prob=log_prob,
                )
            )
        assert ppo.learn(trajectories).stats["behaviour_log_prob_error"] < 1e-5
        batch_seen = trajectories[0].observation.reshape(-1, 5).astype(np.float32)
        normalised = load_policy(*ppo.policy_payload()).observation_scale
        assert normalised is not None
        z = normalised.apply(batch_seen, out=np.empty_like(batch_seen))
        assert abs(z.mean()) < 0.2
        assert 0.8 < z.std() < 1.2


def test_detectors_are_shown_the_last_updates_samples() -> None:
    ppo = Ppo(CONTINUOUS, SMALL, seed=0)
    assert ppo.samples() is None
    train(ppo, CONTINUOUS, range(1))
    samples = ppo.samples()
    assert samples is not None
    found = HessianDetector(DetectorRule(num_samples=100)).measure(ppo.network, samples)
    assert found is not None
    assert found.num_samples == 100
    assert found.lambda_max > 0 > found.lambda_min


def test_detectors_measure_the_loss_that_was_trained_while_its_weights_change() -> None:
    asked = {"entropy_coefficient": 0.5, "entropy_decay": "linear"}
    ppo = Ppo(CONTINUOUS, SMALL.model_copy(update=asked), seed=0, max_rounds=4)
    for round_index, weight in enumerate((0.5, 0.375, 0.25)):
        (stats,) = train(ppo, CONTINUOUS, range(round_index, round_index + 1))
        samples = ppo.samples()
        assert samples is not None
        assert isinstance(samples.rule, PpoRule)
        assert samples.rule.hyperparameters.entropy_coefficient == pytest.approx(weight)
        assert samples.rule.kl_coefficient == stats["kl_coefficient"]


def test_statistics_that_do_not_fit_are_refused_and_change_nothing() -> None:
    arrays, scalars = Ppo(CONTINUOUS, SMALL, seed=1).state()
    clean = Ppo(CONTINUOUS, CLEAN, seed=0)
    own_arrays, own_scalars = clean.state()
    with pytest.raises(ValueError, match=r"missing .*'observation_moments\.count'"):
        clean.load_state(arrays, scalars)
    with pytest.raises(ValueError, match="running moments"):
        clean.load_state({**own_arrays, "return_moments.m2": np.full(1, np.nan)}, own_scalars)
    with pytest.raises(ValueError, match="'kl_coefficient' is 'much', expected float"):
        clean.load_state(own_arrays, {**own_scalars, "kl_coefficient": "much"})
    assert_same_state(clean, Ppo(CONTINUOUS, CLEAN, seed=0))
