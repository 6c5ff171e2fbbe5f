"""`nitro sweep`: many jobs from one specification, with one budget, and what they came to."""
