"""A local system and its jobs, as the command line's tests have them."""

from tests.nitro.conftest import client, endless_job, runs_dir, system, tiny_job

__all__ = ["client", "endless_job", "runs_dir", "system", "tiny_job"]
