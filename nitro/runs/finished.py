"""The folder of a run that has ended, once its learner has completed it."""

import contextlib
from pathlib import Path
from time import monotonic, sleep

from nitro.errors import CommandError
from nitro.runs.reading import read_job

_LAST_WORD_S = 10.0
"""How long after a job's end its learner may take to complete the run's folder."""
_LOOK_S = 0.05


def finished_folder(folder: Path) -> Path | None:
    """Return the run's folder once the learner has written its last word there, if it is here."""
    deadline = monotonic() + _LAST_WORD_S
    while folder.is_dir() and monotonic() < deadline:
        with contextlib.suppress(CommandError):
            if read_job(folder).finished_at is not None:
                break
        sleep(_LOOK_S)
    return folder if folder.is_dir() else None
