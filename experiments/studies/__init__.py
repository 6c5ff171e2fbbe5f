"""One module per study, figure or table of the paper."""
