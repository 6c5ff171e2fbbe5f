"""The configuration of a deployment on AWS, for the code that creates and prices it."""
