"""The REST API: routes, guards and errors."""
