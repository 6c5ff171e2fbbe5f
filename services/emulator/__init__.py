"""A local stand-in for AWS Lambda: Invoke API in front, Runtime API behind."""
