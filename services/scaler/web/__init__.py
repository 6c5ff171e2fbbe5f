"""The dashboard: a page of static files over the REST API. docs/dashboard.md shows it."""
