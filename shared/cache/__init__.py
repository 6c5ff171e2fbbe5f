"""The trajectory cache: its client, keys, scripts and authentication."""
