"""Values of trials: drawn at random, or proposed by Optuna's TPE. Equal seeds draw equal values."""

import logging
import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import JsonValue

from nitro.errors import CommandError
from nitro.sweeps.search.spec import SearchRange, SearchSpec
from nitro.sweeps.search.trial import Trial
from nitro.sweeps.spec import Fields

if TYPE_CHECKING:
    import optuna

_STUDY = "nitro"
_INDEX = "nitro_trial"
"""Attribute of Optuna's trials: the index of ours."""
_DIGITS = 4
"""Significant digits of random values; more have no meaning."""


def require_optuna() -> None:
    """Check that Optuna is installed.

    Raises:
        CommandError: It is not; says how to install it.
    """
    if find_spec("optuna") is None:
        raise CommandError(
            "--sampler tpe: needs Optuna: pip install 'nitro-rl[optuna]', or pip install -e "
            "'.[optuna]' in a clone; --sampler random needs nothing"
        )


def random_values(search: SearchSpec, index: int) -> Fields:
    """Return the values of a trial, drawn from its index and the search's seed alone."""
    rng = np.random.default_rng([search.seed, index])
    return {path: _drawn(each, rng.random()) for path, each in search.fields.items()}


def proposed_values(
    search: SearchSpec, journal: Path, indices: Sequence[int], told: Sequence[Trial]
) -> list[Fields]:
    """Return Optuna's proposed values for trials, given the results of earlier trials.

    Trials that paused for good count as pruned: they rank below all others, and by their rungs.

    Args:
        search: The search.
        journal: Optuna's storage of finished trials.
        indices: Trials to draw now.
        told: Earlier trials with a return.
    """
    import optuna

    study = _study(journal)
    known = {trial.user_attrs[_INDEX] for trial in study.trials}
    for each in told:
        if each.index not in known:
            study.add_trial(_over(search, each))
    asked = optuna.create_study(direction="maximize")
    asked.add_trials(study.trials)
    distributions = _distributions(search)
    found: list[Fields] = []
    for index in indices:
        # A generator per trial: a resumed search draws the same values.
        asked.sampler = _sampler(search, index)
        found.append({**asked.ask(distributions).params})
    return found


def _over(search: SearchSpec, told: Trial) -> "optuna.trial.FrozenTrial":
    from optuna.trial import TrialState, create_trial

    paused = math.isfinite(told.mark)
    return create_trial(
        params={path: told.values[path] for path in search.fields},
        distributions=_distributions(search),
        user_attrs={_INDEX: told.index},
        state=TrialState.PRUNED if paused else TrialState.COMPLETE,
        value=told.value,
        intermediate_values={int(told.mark): told.value} if paused else {},
    )


def _drawn(of: SearchRange, part: float) -> JsonValue:
    low, high = (math.log(of.low), math.log(of.high)) if of.log else (of.low, of.high)
    value = low + part * (high - low)
    value = math.exp(value) if of.log else value
    if of.whole:
        return min(max(round(value), math.ceil(of.low)), math.floor(of.high))
    return float(f"{value:.{_DIGITS}g}")


def _study(journal: Path) -> "optuna.Study":
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(logging.WARNING)
    storage = JournalStorage(JournalFileBackend(str(journal)))
    return optuna.create_study(
        study_name=_STUDY, storage=storage, direction="maximize", load_if_exists=True
    )


def _sampler(search: SearchSpec, index: int) -> "optuna.samplers.BaseSampler":
    from optuna.samplers import TPESampler

    seed = int(np.random.default_rng([search.seed, index]).integers(2**31))
    return TPESampler(seed=seed, n_startup_trials=search.batch_size)


def _distributions(
    search: SearchSpec,
) -> "dict[str, optuna.distributions.BaseDistribution]":
    from optuna.distributions import FloatDistribution, IntDistribution

    return {
        path: IntDistribution(math.ceil(each.low), math.floor(each.high), log=each.log)
        if each.whole
        else FloatDistribution(each.low, each.high, log=each.log)
        for path, each in search.fields.items()
    }
