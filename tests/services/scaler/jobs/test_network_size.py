"""Networks that cannot be, and policies that no actor would load."""

from typing import Any

import numpy as np
import pytest

from learning.networks.building import build_network, policy_payload
from services.scaler.jobs.network_size import (
    function_errors,
    network_errors,
    network_weights,
    sequence_errors,
)
from shared.contracts.environment_spec import (
    ActionSpec,
    ContinuousActionSpec,
    DiscreteActionSpec,
    EnvironmentSpec,
    MultiDiscreteActionSpec,
    ObservationSpec,
)
from shared.contracts.gradients import MAX_MESSAGE_BYTES
from shared.contracts.job_spec import JobSpec
from shared.contracts.rollouts import MAX_POLICY_BYTES
from shared.gradients.messages import Weights
from shared.hyperparameters.ppo import PAPER
from shared.trajectory import codec

SPEC = JobSpec.model_validate({"env_id": "Mine-v0", "preset": "paper"})


def environment(shape: tuple[int, ...], *, n: int = 2) -> EnvironmentSpec:
    return EnvironmentSpec(
        env_id="Mine-v0",
        observation=ObservationSpec(shape=shape, dtype="uint8" if len(shape) == 3 else "float32"),
        action=DiscreteActionSpec(n=n),
        max_episode_steps=None,
        versions={},
    )


def test_the_largest_policy_that_is_admitted_can_be_loaded() -> None:
    per_input = network_weights(SPEC, environment((2,))) - network_weights(SPEC, environment((1,)))
    most = MAX_POLICY_BYTES // 4 // (per_input + 2)
    while [*network_errors(SPEC, environment((most,)))]:
        most -= 1
    arrays, metadata = policy_payload(build_network(environment((most,)), PAPER, seed=0))
    assert MAX_POLICY_BYTES * 0.98 < len(codec.encode_raw(arrays, metadata)) <= MAX_POLICY_BYTES
    counted = network_weights(SPEC, environment((most,)))
    assert sum(int(np.size(array)) for array in arrays.values()) == counted


def test_one_number_more_in_each_observation_and_the_largest_policy_is_refused() -> None:
    # Weights of one number to 256 units, its mean and its scale, four bytes each; the rest of the
    # network has 256 units' biases, 256 * 256 weights and biases, and two choices.
    rest = 256 + 256 * 257 + 2 * 257
    most = (MAX_POLICY_BYTES // 4 - rest) // (256 + 2)
    assert not [*network_errors(SPEC, environment((most - 32,)))]
    (error,) = network_errors(SPEC, environment((most + 1,)))
    assert error.field == "hyperparameters.hidden_sizes"


def test_a_policy_for_images_has_its_weights_and_a_header_and_no_scale() -> None:
    spec = SPEC.model_copy(update={"preset": "standard"})
    images = (4, 84, 84)
    per_choice = 512 + 1
    rest = network_weights(spec, environment(images, n=1)) - per_choice
    numbers = MAX_POLICY_BYTES // 4
    with_room = (numbers - 8192 // 4 - rest) // per_choice
    assert not [*network_errors(spec, environment(images, n=with_room))]
    without = (numbers - rest) // per_choice
    (error,) = network_errors(spec, environment(images, n=without))
    assert error.field == "env_id"


@pytest.mark.parametrize(
    "action",
    [
        ContinuousActionSpec(low=(-1.0,) * 3, high=(1.0,) * 3),
        DiscreteActionSpec(n=5),
        MultiDiscreteActionSpec(num_choices=(2, 3, 4)),
    ],
)
@pytest.mark.parametrize("shape", [(4,), (4, 84, 84)])
def test_every_action_has_the_outputs_that_its_network_has(
    action: ActionSpec, shape: tuple[int, ...]
) -> None:
    its = environment(shape).model_copy(update={"action": action})
    arrays, _ = policy_payload(build_network(its, PAPER, seed=0))
    assert sum(array.size for array in arrays.values()) == network_weights(SPEC, its)


@pytest.mark.parametrize(
    ("shape", "n", "field", "message"),
    [
        ((2**20,), 2, "hyperparameters.hidden_sizes", "actors load 64 MB; lower them"),
        ((3, 84, 84), 100_000, "env_id", "use smaller images or fewer actions"),
        ((40, 3, 60), 2, "env_id", "env_id 'Mine-v0': "),
    ],
)
def test_what_cannot_be_is_refused(
    shape: tuple[int, ...], n: int, field: str, message: str
) -> None:
    (error,) = network_errors(
        SPEC.model_copy(update={"preset": "standard"}), environment(shape, n=n)
    )
    assert error.field == field
    assert message in error.message


GAUSSIAN = environment((4,)).model_copy(
    update={"action": ContinuousActionSpec(low=(-1.0,), high=(1.0,))}
)


@pytest.mark.parametrize(
    ("there", "hyperparameters", "why"),
    [
        (environment((84, 84, 4)), {}, "observes images"),
        (environment((4,)), {}, "has discrete actions"),
        (GAUSSIAN, {"hidden_sizes": ()}, "without hidden layers"),
        (
            GAUSSIAN,
            {"value_hidden_sizes": (8,)},
            "value_hidden_sizes that differ from hidden_sizes",
        ),
        (GAUSSIAN, {"activation": "relu"}, "a network other than plain tanh layers"),
        (GAUSSIAN, {"layer_norm": True}, "a network other than plain tanh layers"),
    ],
)
def test_functions_are_refused_what_they_cannot_learn(
    there: EnvironmentSpec, hyperparameters: dict[str, Any], why: str
) -> None:
    spec = SPEC.model_copy(update={"learner": "functions", "hyperparameters": hyperparameters})
    (error,) = function_errors(spec, there)
    assert error.field == "learner"
    assert why in error.message
    on_cores = spec.model_copy(update={"learner": "cpu"})
    assert [*function_errors(on_cores, there)] == []


def test_functions_learn_gaussian_policies_of_vectors() -> None:
    assert [*function_errors(SPEC.model_copy(update={"learner": "functions"}), GAUSSIAN)] == []


def test_the_largest_network_that_is_admitted_to_functions_can_be_loaded() -> None:
    width = 3000
    while [*function_errors(_on_functions(width), GAUSSIAN)]:
        width -= 10
    hyperparameters = PAPER.model_copy(update={"hidden_sizes": (width, width)})
    flat = build_network(GAUSSIAN, hyperparameters, seed=0).flat.numpy()
    weights = Weights(version=1, flat=flat, network="x" * 2000, loss="x" * 2000)
    assert len(Weights.decode(weights.encode()).flat) * 4 > MAX_MESSAGE_BYTES * 0.98
    (error,) = function_errors(_on_functions(width + 10), GAUSSIAN)
    assert error.field == "hyperparameters.hidden_sizes"
    assert "functions load 64 MB" in error.message


def _on_functions(width: int) -> JobSpec:
    hyperparameters = {"hidden_sizes": (width, width)}
    return SPEC.model_copy(update={"learner": "functions", "hyperparameters": hyperparameters})


def recurrent(**changes: Any) -> JobSpec:
    settings = {"recurrent": "gru", **changes.pop("hyperparameters", {})}
    body = {"env_id": "Mine-v0", "preset": "standard", "hyperparameters": settings}
    return JobSpec.model_validate(body | changes).resolved()


def test_what_is_wrong_with_a_recurrent_policy_is_told_of_its_field() -> None:
    (error,) = network_errors(recurrent(), environment((3, 84, 84)))
    assert error.field == "hyperparameters.recurrent"
    large = recurrent(hyperparameters={"recurrent_units": 8_192})
    (error,) = network_errors(large, environment((4,)))
    assert error.field == "hyperparameters.recurrent_units"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"steps_per_actor": 127}, "steps_per_actor"),
        ({"steps_per_actor": 514}, "steps_per_actor"),
        ({"steps_per_actor": 524, "hyperparameters": {"sequence_length": 8}}, None),
        ({"steps_per_actor": 144}, None),
        ({"steps_per_actor": 13}, None),
        ({"steps_per_actor": 127, "hyperparameters": {"recurrent": "none"}}, None),
        (
            {"samples_per_round": 2048, "scaling": {"policy": "fixed", "num_actors": 9}},
            "samples_per_round",
        ),
        ({"samples_per_round": 2048, "scaling": {"policy": "fixed", "num_actors": 8}}, None),
    ],
)
def test_steps_that_cannot_be_cut_into_long_sequences_are_refused(
    changes: dict[str, Any], field: str | None
) -> None:
    errors = [*sequence_errors(recurrent(**changes), environment((4,)))]
    assert [error.field for error in errors] == ([field] if field else [])
