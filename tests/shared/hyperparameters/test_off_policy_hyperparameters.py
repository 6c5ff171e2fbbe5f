"""IMPACT's and IMPALA's presets hold their sources' numbers; impossible overrides are refused."""

import pytest

from shared.hyperparameters.impact import ImpactHyperparameters
from shared.hyperparameters.impala import ImpalaHyperparameters
from shared.hyperparameters.presets import resolve


def values(algorithm: str, preset: str, names: dict[str, object]) -> dict[str, object]:
    """The named values of a preset."""
    assert preset in ("paper", "standard")
    found = resolve(algorithm, preset, {}).model_dump()  # type: ignore[arg-type] # just checked
    return {name: found[name] for name in names}


def test_impacts_paper_preset_is_table_1_filled_up_with_rllibs_defaults() -> None:
    table_1: dict[str, object] = {
        "discount": 0.99,
        "clip": 0.4,
        "kl_coefficient": 1.0,
        "kl_target": 0.01,
        "value_coefficient": 1.0,
        "train_batch_size": 4096,
        "target_update_frequency": 1.0,
    }
    rllib: dict[str, object] = {
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
    assert values("impact", "paper", table_1 | rllib) == table_1 | rllib


def test_impalas_paper_preset_is_rllibs() -> None:
    rllib: dict[str, object] = {
        "learning_rate": 5e-4,
        "gradient_norm_max": 40.0,
        "loss_reduction": "sum",
        "entropy_coefficient": 0.01,
        "value_coefficient": 0.5,
        "train_batch_size": 500,
        "rho_clip": 1.0,
        "c_clip": 1.0,
    }
    assert values("impala", "paper", rllib) == rllib


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
