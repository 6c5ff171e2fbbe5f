"""Jobs as the command line's tests have them."""

from tests.nitro.conftest import endless_job, tiny_job

__all__ = ["endless_job", "tiny_job"]
