"""The trajectory cache: its client, keys, scripts and who may enter."""
