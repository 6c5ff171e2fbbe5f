"""One module per study, figure or table; each writes JSON and a picture drawn from it."""
