"""Log lines of every service: one line per event, with its fields as `key=value` at the end."""

import logging

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldFormatter(logging.Formatter):
    """Appends the fields of `extra` to the line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with its fields."""
        line = super().format(record)
        fields = {k: v for k, v in vars(record).items() if k not in _STANDARD}
        return line + "".join(f" {name}={value!r}" for name, value in fields.items())


def configure_logging(level: str) -> None:
    """Send log lines of `level` and above to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # One line per HTTP call only repeats the service's own lines.
    for noisy in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
