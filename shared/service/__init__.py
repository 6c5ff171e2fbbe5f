"""Common parts of every service's start: logs, port, token, credentials."""
