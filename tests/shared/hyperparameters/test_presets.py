"""The presets hold their sources' numbers, and an override that is none is refused."""

from collections.abc import Iterable

import pytest
from pydantic import ValidationError

from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.hyperparameters.presets import HyperparameterValue, Preset, complete_sets, resolve


def test_the_paper_preset_is_table_1_filled_up_with_rllibs_defaults() -> None:
    table_1 = {
        "learning_rate": 5e-5,
        "discount": 0.99,
        "clip": 0.3,
        "kl_coefficient": 0.2,
        "kl_target": 0.01,
        "entropy_coefficient": 0.0,
        "value_coefficient": 1.0,
    }
    rllib = {
        "learning_rate_decay": "none",
        "adam_epsilon": 1e-8,
        "gae_lambda": 1.0,
        "advantage_normalisation": "batch",
        "value_loss": "bounded_error",
        "value_clip": 10.0,
        "gradient_norm_max": 0.0,
        "num_epochs": 30,
        "minibatch_size": 128,
        "initialisation": "normc",
        "log_std": "state_dependent",
        "observation_normalisation": False,
        "reward_scaling": False,
        "action_mapping": "rescale",
    }
    section_8_1 = {
        "hidden_sizes": (256, 256),
        "value_hidden_sizes": (),
        "activation": "tanh",
        "image_network": "paper_cnn",
    }
    ours = {"kl_coefficient_max": 100.0}
    unused = {
        "observation_clip": 10.0,
        "reward_clip": 10.0,
        "layer_norm": False,
        "entropy_decay": "none",
        "network": "",
        "recurrent": "none",
        "recurrent_units": 64,
        "sequence_length": 32,
    }
    expected = table_1 | rllib | section_8_1 | ours | unused
    assert resolve("ppo", "paper", {}).model_dump() == expected


def test_the_standard_preset_is_cleanrls_for_continuous_control() -> None:
    cleanrl = {
        "learning_rate": 3e-4,
        "learning_rate_decay": "linear",
        "adam_epsilon": 1e-5,
        "discount": 0.99,
        "gae_lambda": 0.95,
        "advantage_normalisation": "minibatch",
        "clip": 0.2,
        "kl_coefficient": 0.0,
        "entropy_coefficient": 0.0,
        "value_loss": "clipped_step",
        "value_coefficient": 0.5,
        "value_clip": 0.2,
        "gradient_norm_max": 0.5,
        "num_epochs": 10,
        "minibatch_size": 64,
        "hidden_sizes": (64, 64),
        "value_hidden_sizes": (),
        "activation": "tanh",
        "layer_norm": False,
        "entropy_decay": "none",
        "network": "",
        "image_network": "nature_cnn",
        "initialisation": "orthogonal",
        "log_std": "free",
        "observation_normalisation": True,
        "observation_clip": 10.0,
        "reward_scaling": True,
        "reward_clip": 10.0,
        "action_mapping": "clip",
    }
    unused = {
        "kl_target": 0.01,
        "kl_coefficient_max": 100.0,
        "recurrent": "none",
        "recurrent_units": 64,
        "sequence_length": 32,
    }
    assert resolve("ppo", "standard", {}).model_dump() == cleanrl | unused


def test_standard_is_cleanrls_atari_agent_for_images() -> None:
    """`ppo_atari.py`: 8 environments of 128 steps, 4 epochs of 4 minibatches."""
    atari = {
        "learning_rate": 2.5e-4,
        "clip": 0.1,
        "entropy_coefficient": 0.01,
        "value_clip": 0.1,
        "num_epochs": 4,
        "minibatch_size": 256,
        "observation_normalisation": False,
        "reward_scaling": False,
    }
    usual = resolve("ppo", "standard", {})
    assert resolve("ppo", "standard", {}, images=True) == usual.model_copy(update=atari)


def test_presets_for_images_are_presets() -> None:
    assert complete_sets(images=True).keys() <= complete_sets().keys()
    assert resolve("ppo", "paper", {}, images=True) == resolve("ppo", "paper", {})
    wider = resolve("ppo", "standard", {"clip": 0.2}, images=True)
    usual = resolve("ppo", "standard", {}, images=True)
    assert wider == usual.model_copy(update={"clip": 0.2})


@pytest.mark.parametrize(("algorithm", "preset"), complete_sets())
def test_an_override_changes_its_field_only(algorithm: str, preset: Preset) -> None:
    overrides: dict[str, HyperparameterValue] = {"activation": "elu", "hidden_sizes": (32, 16)}
    usual = resolve(algorithm, preset, {})
    assert resolve(algorithm, preset, overrides) == usual.model_copy(update=overrides)


@pytest.mark.parametrize(
    ("algorithm", "name", "value"),
    [
        ("ppo", "clipp", 0.2),
        ("ppo", "clip", 0.0),
        ("ppo", "clip", float("nan")),
        ("ppo", "discount", 1.01),
        ("ppo", "learning_rate", float("inf")),
        ("ppo", "num_epochs", 0),
        ("ppo", "num_epochs", 2.5),
        ("ppo", "hidden_sizes", (0,)),
        ("ppo", "log_std", "none"),
        ("ppo", "reward_scaling", 1),
        ("ppo", "gradient_norm_max", -0.5),
        ("impact", "buffer_batches", 0),
        ("impact", "buffer_uses", 0),
        ("impact", "target_update_frequency", 0.0),
        ("impact", "importance_clip", -1.0),
        ("impact", "gae_lambda", 0.9),
        ("impala", "loss_reduction", "median"),
        ("impala", "rho_clip", 0.0),
        ("impala", "clip", 0.2),
        ("impala", "trace_lambda", 1.1),
        ("impala", "num_epochs", 2),
    ],
)
def test_an_impossible_override_is_refused_by_name(
    algorithm: str, name: str, value: float | str
) -> None:
    with pytest.raises(ValidationError) as caught:
        resolve(algorithm, "paper", {name: value})
    assert caught.value.errors()[0]["loc"][0] == name


def test_an_unknown_algorithm_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'trpo'; known: ppo/paper, ppo/standard"):
        resolve("trpo", "paper", {})


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("ppo", "clip"),
        ("ppo", "observation_clip"),
        ("ppo", "reward_clip"),
        ("impact", "importance_clip"),
        ("impala", "rho_clip"),
    ],
)
def test_a_bound_that_float32_cannot_hold_is_refused(algorithm: str, name: str) -> None:
    assert getattr(resolve(algorithm, "standard", {name: 3e38}), name) == 3e38
    with pytest.raises(ValidationError, match=name):
        resolve(algorithm, "standard", {name: 1e39})


def paper_values(algorithm: str, names: Iterable[str]) -> dict[str, object]:
    """The named values of a paper's preset."""
    found = resolve(algorithm, "paper", {}).model_dump()
    return {name: found[name] for name in names}


def test_impacts_paper_preset_is_table_1_filled_up_with_rllibs_defaults() -> None:
    table_1 = {
        "discount": 0.99,
        "clip": 0.4,
        "kl_coefficient": 1.0,
        "kl_target": 0.01,
        "value_coefficient": 1.0,
        "train_batch_size": 4096,
        "target_update_frequency": 1.0,
    }
    rllib = {
        "learning_rate": 5e-4,
        "gradient_norm_max": 40.0,
        "entropy_coefficient": 0.01,
        "trace_lambda": 1.0,
        "rho_clip": 1.0,
        "c_clip": 1.0,
        "importance_clip": 2.0,
        "buffer_batches": 4,
        "buffer_uses": 2,
        "advantage_normalisation": "none",
        "initialisation": "normc",
        "log_std": "state_dependent",
    }
    assert paper_values("impact", table_1 | rllib) == table_1 | rllib


def test_impalas_paper_preset_is_rllibs() -> None:
    rllib = {
        "learning_rate": 5e-4,
        "gradient_norm_max": 40.0,
        "loss_reduction": "sum",
        "entropy_coefficient": 0.01,
        "value_coefficient": 0.5,
        "train_batch_size": 500,
        "rho_clip": 1.0,
        "c_clip": 1.0,
    }
    assert paper_values("impala", rllib) == rllib


@pytest.mark.parametrize("algorithm", ["impact", "impala"])
def test_the_standard_presets_are_ppos_where_they_share_a_field(algorithm: str) -> None:
    ppo = resolve("ppo", "standard", {}).model_dump()
    theirs = resolve(algorithm, "standard", {}).model_dump()
    shared_fields = (theirs.keys() & ppo.keys()) - {"kl_target"}
    if algorithm == "impala":  # has no clip to hold large steps
        own_steps = {"learning_rate": 2e-4, "learning_rate_decay": "none", "kl_target": 0.004}
        assert {name: theirs[name] for name in own_steps} == own_steps
        shared_fields -= own_steps.keys()
    assert {name: theirs[name] for name in shared_fields} == {
        name: ppo[name] for name in shared_fields
    }
    assert theirs["trace_lambda"] == ppo["gae_lambda"]


@pytest.mark.parametrize("algorithm", ["impact", "impala"])
def test_for_images_steps_are_as_large_as_ppos_and_shrink_as_its_do(algorithm: str) -> None:
    ppo = resolve("ppo", "standard", {}, images=True).model_dump()
    theirs = resolve(algorithm, "standard", {}, images=True).model_dump()
    for name in ("learning_rate", "learning_rate_decay", "entropy_coefficient", "minibatch_size"):
        assert theirs[name] == ppo[name]
    if algorithm == "impala":
        assert theirs["kl_target"] == 0


def test_impalas_steps_are_steered_or_shrink_not_both() -> None:
    with pytest.raises(ValueError, match="kl_target would undo learning_rate_decay"):
        resolve("impala", "standard", {"learning_rate_decay": "linear"})
    assert resolve("impala", "standard", {"learning_rate_decay": "linear", "kl_target": 0.0})


def test_impalas_steps_are_steered_only_where_batches_have_several() -> None:
    with pytest.raises(ValueError, match="kl_target needs several steps per batch"):
        resolve("impala", "paper", {"kl_target": 0.004})
    assert resolve("impala", "paper", {"kl_target": 0.004, "minibatch_size": 64})
    # A job that was submitted before is read as it was.
    assert ImpalaHyperparameters(kl_target=0.004).minibatch_size == 65536


@pytest.mark.parametrize(
    ("frequency", "batches"), [(1.0, 8), (2.0, 16), (0.125, 1), (0.01, 1), (0.2, 2)]
)
def test_the_target_is_renewed_every_so_many_batches_of_n_times_k(
    frequency: float, batches: int
) -> None:
    made = ImpactHyperparameters(buffer_batches=4, buffer_uses=2, target_update_frequency=frequency)
    assert made.target_update_batches == batches
