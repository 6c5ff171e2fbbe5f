"""Parts that every service needs at its start: logs, port, token, credentials."""
