"""One module per study, figure or table, in rooms by what they are about."""
