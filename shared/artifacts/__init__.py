"""A run's files: in a folder or in an S3 bucket."""
