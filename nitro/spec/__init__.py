"""A job's specification, from files and options."""
