"""The folder of an ended run, once its learner has completed it."""

import contextlib
from pathlib import Path
from time import monotonic, sleep

from nitro.errors import CommandError
from nitro.runs.reading import read_job

_LAST_WORD_S = 10.0
"""Time for a learner to complete the run's folder after the job's end."""
_LOOK_S = 0.05


def finished_folder(folder: Path) -> Path | None:
    """Wait until the learner has completed the run's folder; return it; None if not here."""
    deadline = monotonic() + _LAST_WORD_S
    while folder.is_dir() and monotonic() < deadline:
        with contextlib.suppress(CommandError):
            if read_job(folder).finished_at is not None:
                break
        sleep(_LOOK_S)
    return folder if folder.is_dir() else None
