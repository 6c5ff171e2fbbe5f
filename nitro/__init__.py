"""Command line, Python client and local launcher: what a person types or imports."""
