"""One module per performance claim, each measured beside its peer in the same run."""
