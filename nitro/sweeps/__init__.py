"""`nitro sweep`: many jobs from one specification, with one budget, and their results."""
