"""Durations: how an update is split, and what a learner's work is made of."""

import pytest

from experiments.durations import Durations, split
from tests.experiments.made_up import MACHINE

KNOWN = Durations(
    step_s=1e-3,
    reset_s=0.5,
    call_s=0.1,
    update_fixed_s=1.0,
    gradient_step_s=0.01,
    measuring_s=0.27,
    num_epochs=10,
    minibatch_size=64,
    bytes_per_sample=10.0,
    environment=MACHINE,
)


def test_two_sizes_tell_what_is_fixed_and_what_a_gradient_step_takes() -> None:
    # 20 and 80 gradient steps of 50 ms, and a quarter of a second.
    fixed_s, step_s = split((128, 1.25), (512, 4.25), num_epochs=10, minibatch_size=64)
    assert [fixed_s, step_s] == pytest.approx([0.25, 0.05])
    # Times that do not grow, or grow too much, were not measured well: nothing is negative.
    assert split((128, 2.0), (512, 1.0), num_epochs=1, minibatch_size=64)[1] > 0
    assert split((128, 0.1), (512, 9.0), num_epochs=1, minibatch_size=64)[0] == 0.0


def test_gradient_steps_are_passes_times_minibatches() -> None:
    assert KNOWN.gradient_steps(2048) == 320
    assert KNOWN.gradient_steps(2049) == 330


def test_a_learner_updates_measures_and_writes() -> None:
    update_s = 1.0 + 320 * 0.01
    assert KNOWN.learner_s(320, "cpu") == pytest.approx(0.6 * update_s + 0.27 + 0.008)
    assert KNOWN.learner_s(320, "gpu") == pytest.approx(update_s / 6.7 + 0.1 + 0.008)
    twice = KNOWN.learner_s(320, "cpu", measurements=2.0)
    assert twice - KNOWN.learner_s(320, "cpu") == pytest.approx(0.27)


def test_actors_and_episodes_take_their_steps_and_what_is_beside() -> None:
    assert KNOWN.fragment_s(256) == pytest.approx(0.356)
    assert KNOWN.episode_s(1000) == pytest.approx(1.6)


def test_a_workload_has_the_same_durations() -> None:
    job = KNOWN.workload(
        "Any-v0",
        total_steps=10_000,
        samples_per_round=2048,
        evaluate_every=5,
        evaluation_episodes=10,
        episode_steps=1000,
    )
    assert job.fragment_s(8) == pytest.approx(KNOWN.fragment_s(256))
    assert job.episode_s == pytest.approx(KNOWN.episode_s(1000))
    assert (job.update_s, job.gpu_update_s) == (
        KNOWN.learner_s(320, "cpu"),
        KNOWN.learner_s(320, "gpu"),
    )
