"""Code that runs as AWS Lambda functions."""
