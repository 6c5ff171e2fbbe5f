"""The Lambda function that computes one gradient per invocation."""
