"""Errors for users: one message, one exit code, no traceback."""

EXIT_FAILED = 1
"""The job, or a part of the local system, failed."""
EXIT_USAGE = 2
"""The input or the machine does not allow the request."""
EXIT_INTERRUPTED = 130
"""The user asked to stop."""
EXIT_UNREAD = 141
"""Standard output was closed; shells report the same code for SIGPIPE."""


class CommandError(Exception):
    """Ends a command with `message` on stderr, line by line."""

    exit_code = EXIT_USAGE

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code is not None:
            self.exit_code = exit_code
