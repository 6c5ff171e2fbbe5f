"""Results of a sweep: numbers, tables and picture."""
