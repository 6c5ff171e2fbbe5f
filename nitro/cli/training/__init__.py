"""`nitro train`: its options, the job and its seeds, and what is shown at the end."""
