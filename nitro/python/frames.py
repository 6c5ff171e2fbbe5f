"""A run's rounds as a table of pandas, where that is installed."""

from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean
from typing import TYPE_CHECKING

from nitro.errors import CommandError
from nitro.runs.reading import training_return
from shared.contracts.rounds import RoundLine

if TYPE_CHECKING:
    import pandas


def rounds_frame(lines: Sequence[RoundLine]) -> "pandas.DataFrame":
    """Return a row for each round that was learned from.

    Raises:
        CommandError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise CommandError("to_pandas needs pandas: pip install pandas") from error
    learned = [(line, line.result) for line in lines if line.result is not None]
    steps = accumulate(result.env_steps for _, result in learned)
    return pandas.DataFrame(
        {
            "round": [line.plan.round for line, _ in learned],
            "env_steps": [*steps],
            "training_return": [training_return(line) for line, _ in learned],
            "evaluation": [_evaluated(line) for line, _ in learned],
            "num_actors": [line.plan.num_actors for line, _ in learned],
            "boosting_score": [line.plan.boosting_score for line, _ in learned],
            "seconds": [result.timing.total_s for _, result in learned],
        }
    ).astype(dict.fromkeys(("training_return", "evaluation", "boosting_score"), float))


def _evaluated(line: RoundLine) -> float | None:
    returns = () if line.evaluation is None else line.evaluation.returns
    return fmean(returns) if returns else None
